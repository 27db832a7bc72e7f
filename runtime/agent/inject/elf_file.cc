#include "runtime/agent/inject/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string_view>

#include "comms/pmpi/names.h"
#include "core/file_lock.h"
#include "runtime/agent/rundir/list_entries.h"

namespace lockstep::agent {
namespace {

// A read-only view of a whole file; empty if it cannot be read.
class FileView {
 public:
  explicit FileView(const std::string& path) {
    const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (fd.open() && ::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
      void* base = ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
      if (base != MAP_FAILED) {
        base_ = static_cast<const char*>(base);
        bytes_ = static_cast<std::size_t>(info.st_size);
      }
    }
  }
  ~FileView() {
    if (base_ != nullptr) ::munmap(const_cast<char*>(base_), bytes_);
  }
  FileView(const FileView&) = delete;
  FileView& operator=(const FileView&) = delete;

  std::size_t bytes() const { return bytes_; }
  template <typename T>
  bool Read(std::uint64_t offset, T& out) const {
    if (offset > bytes_ || sizeof out > bytes_ - offset) return false;
    std::memcpy(&out, base_ + offset, sizeof out);
    return true;
  }
  bool Has(std::uint64_t offset, std::string_view text) const {
    return offset <= bytes_ && text.size() <= bytes_ - offset &&
           std::memcmp(base_ + offset, text.data(), text.size()) == 0;
  }
  // "" if it does not end within the file.
  std::string Text(std::uint64_t offset) const {
    if (offset >= bytes_) return {};
    const void* end = std::memchr(base_ + offset, 0, bytes_ - offset);
    return end == nullptr ? std::string() : std::string(base_ + offset, static_cast<const char*>(end));
  }

 private:
  const char* base_ = nullptr;
  std::size_t bytes_ = 0;
};

// Offset in the file of a virtual address; UINT64_MAX if no segment has it.
std::uint64_t OffsetOf(const std::vector<Elf64_Phdr>& segments, std::uint64_t address) {
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz)
      return address - segment.p_vaddr + segment.p_offset;
  return UINT64_MAX;
}

bool IsElf(const FileView& file, ElfFacts& facts, Elf64_Ehdr& header) {
  unsigned char identity[EI_NIDENT];
  if (!file.Read(0, identity) || std::memcmp(identity, ELFMAG, SELFMAG) != 0) return false;
  facts.elf = true;
  facts.elf64 = identity[EI_CLASS] == ELFCLASS64;
  return facts.elf64 && file.Read(0, header);
}

}  // namespace

ElfFacts LookAtElf(const std::string& path) {
  ElfFacts facts;
  const FileView file(path);
  Elf64_Ehdr header;
  if (!IsElf(file, facts, header) || header.e_phentsize != sizeof(Elf64_Phdr)) return facts;
  std::vector<Elf64_Phdr> segments;
  for (std::uint32_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!file.Read(header.e_phoff + std::uint64_t{i} * sizeof segment, segment)) return facts;
    segments.push_back(segment);
  }
  std::vector<Elf64_Dyn> entries;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_INTERP) {
      facts.has_interpreter = true;
      facts.interpreter = file.Text(segment.p_offset);
    }
    if (segment.p_type != PT_DYNAMIC) continue;
    facts.dynamic = true;
    entries.clear();
    Elf64_Dyn entry;
    for (std::uint64_t at = 0; at + sizeof entry <= segment.p_filesz; at += sizeof entry) {
      if (!file.Read(segment.p_offset + at, entry) || entry.d_tag == DT_NULL) break;
      entries.push_back(entry);
    }
  }
  std::uint64_t strings = UINT64_MAX;
  for (const Elf64_Dyn& entry : entries)
    if (entry.d_tag == DT_STRTAB) strings = OffsetOf(segments, entry.d_un.d_ptr);
  if (strings == UINT64_MAX) return facts;
  for (const Elf64_Dyn& entry : entries)
    if (entry.d_tag == DT_NEEDED) facts.needed.push_back(file.Text(strings + entry.d_un.d_val));
  return facts;
}

OwnMpi LookForMpi(const std::string& path) {
  // Only what MPI programs call: a program may have functions of its own whose names begin as MPI's.
  static const std::set<std::string_view> names = {
#define LS_NAME(name) "MPI_" #name,  // NOLINT(bugprone-suspicious-missing-comma)
      LS_MPI_ENTRY_POINTS(LS_NAME, LS_NAME, LS_NAME, LS_NAME)
#undef LS_NAME
  };
  const FileView file(path);
  Elf64_Ehdr header;
  ElfFacts facts;
  if (!IsElf(file, facts, header)) return {};
  std::set<std::string> exported, all;
  for (std::uint32_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section, strings;
    if (!file.Read(header.e_shoff + std::uint64_t{i} * header.e_shentsize, section)) return {};
    if ((section.sh_type != SHT_DYNSYM && section.sh_type != SHT_SYMTAB) || section.sh_entsize < sizeof(Elf64_Sym))
      continue;
    if (!file.Read(header.e_shoff + std::uint64_t{section.sh_link} * header.e_shentsize, strings)) return {};
    for (std::uint64_t at = 0; at + section.sh_entsize <= section.sh_size; at += section.sh_entsize) {
      Elf64_Sym symbol;
      if (!file.Read(section.sh_offset + at, symbol)) return {};
      const std::uint64_t name = strings.sh_offset + symbol.st_name;
      const unsigned type = ELF64_ST_TYPE(symbol.st_info);
      if (symbol.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC) ||
          (!file.Has(name, "MPI_") && !file.Has(name, "PMPI_")))
        continue;
      all.insert(file.Text(name));
      if (section.sh_type == SHT_DYNSYM) exported.insert(file.Text(name));
    }
  }
  OwnMpi own{.library = all.contains("PMPI_Init")};
  for (const std::string& name : all) {
    if (!names.contains(name) || all.contains("P" + name)) continue;
    std::string& first = exported.contains(name) ? own.wrapper : own.hidden;
    if (first.empty()) first = name;
  }
  return own;
}

std::string ScriptInterpreter(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char mark[2] = {};
  if (!file.read(mark, 2) || mark[0] != '#' || mark[1] != '!') return {};
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> words = ListEntries(line, " \r");
  if (words.empty()) return {};
  const bool env = words[0].ends_with("/env") && words.size() > 1;
  return env ? words[words[1] == "-S" && words.size() > 2 ? 2 : 1] : words[0];
}

std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
  const char* variable = std::getenv("PATH");
  for (const std::string& directory : ListEntries(variable == nullptr ? "" : variable, ":"))
    if (std::string path = directory + "/" + name; ::access(path.c_str(), X_OK) == 0) return path;
  return {};
}

ProgramMpi MpiOfLibraries(const std::vector<std::string>& needed) {
  ProgramMpi mpi;
  for (const std::string& library : needed) {
    const auto is = [&](const char* prefix) { return library.rfind(prefix, 0) == 0; };
    // Bindings for Fortran and C++ need the C library, which a program linked with them may not name itself.
    if (is("libmpich") || library == "libmpi.so.12" || library == "libmpifort.so.12" || library == "libmpicxx.so.12") {
      mpi = {LinkedMpi::kMpich, library};
    } else if (library == "libmpi.so.40" || is("libmpi_mpifh.so.40") || is("libmpi_usempi") ||
               library == "libmpi_cxx.so.40") {
      return {LinkedMpi::kOpenMpi4, library};
    } else if (is("libmpi_abi.so")) {
      mpi = {LinkedMpi::kStandard, library};
    } else if (is("libmpi.so") && mpi.kind == LinkedMpi::kNone) {
      mpi = {LinkedMpi::kOther, library};
    }
  }
  return mpi;
}

ProgramMpi MpiOfProgram(const std::string& name) {
  const std::string path = FindProgram(name);
  return path.empty() ? ProgramMpi{} : MpiOfLibraries(LookAtElf(path).needed);
}

}  // namespace lockstep::agent
