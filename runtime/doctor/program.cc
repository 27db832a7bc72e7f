// Whether a program lets itself be recorded: what ld.so will make of it.

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "runtime/doctor/check.h"

namespace lockstep::doctor {
namespace {

struct Elf {
  bool elf = false, elf64 = false, has_interpreter = false, dynamic = false;
  std::vector<std::string> needed;
};

class File {
 public:
  explicit File(const std::string& path) : file_(path, std::ios::binary) {}
  bool Read(std::uint64_t offset, void* out, std::size_t bytes) {
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(static_cast<char*>(out), static_cast<std::streamsize>(bytes));
    return file_.gcount() == static_cast<std::streamsize>(bytes);
  }

 private:
  std::ifstream file_;
};

// Offset in the file of a virtual address; UINT64_MAX if no segment has it.
std::uint64_t OffsetOf(const std::vector<Elf64_Phdr>& segments, std::uint64_t address) {
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz)
      return address - segment.p_vaddr + segment.p_offset;
  return UINT64_MAX;
}

Elf LookAtElf(const std::string& path) {
  Elf elf;
  File file(path);
  Elf64_Ehdr header;
  if (!file.Read(0, header.e_ident, EI_NIDENT) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return elf;
  elf.elf = true;
  elf.elf64 = header.e_ident[EI_CLASS] == ELFCLASS64;
  if (!elf.elf64 || !file.Read(0, &header, sizeof header) || header.e_phentsize != sizeof(Elf64_Phdr)) return elf;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!file.Read(header.e_phoff, segments.data(), segments.size() * sizeof segments[0])) return elf;
  std::vector<Elf64_Dyn> entries;
  for (const Elf64_Phdr& segment : segments) {
    elf.has_interpreter = elf.has_interpreter || segment.p_type == PT_INTERP;
    if (segment.p_type != PT_DYNAMIC || segment.p_filesz > 1 << 20) continue;
    elf.dynamic = true;
    entries.resize(segment.p_filesz / sizeof(Elf64_Dyn));
    if (!file.Read(segment.p_offset, entries.data(), entries.size() * sizeof entries[0])) entries.clear();
  }
  std::uint64_t strings = UINT64_MAX;
  for (const Elf64_Dyn& entry : entries)
    if (entry.d_tag == DT_STRTAB) strings = OffsetOf(segments, entry.d_un.d_ptr);
  for (const Elf64_Dyn& entry : entries) {
    char name[128] = {};
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag != DT_NEEDED || strings == UINT64_MAX) continue;
    // Near the end of the file fewer bytes are there.
    for (std::size_t i = 0;
         i + 1 < sizeof name && file.Read(strings + entry.d_un.d_val + i, name + i, 1) && name[i] != 0; ++i) {
    }
    elf.needed.emplace_back(name);
  }
  return elf;
}

// "#!/usr/bin/env python3" -> python3; "" if it is no script.
std::string Interpreter(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line) || !line.starts_with("#!")) return {};
  line.erase(0, 2);
  std::vector<std::string> words;
  for (std::size_t at = line.find_first_not_of(' '); at < line.size(); at = line.find_first_not_of(' ', at)) {
    const std::size_t end = std::min(line.find_first_of(" \r", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  if (words.empty()) return {};
  const bool env = words[0].ends_with("/env") && words.size() > 1;
  return env ? words[words[1] == "-S" && words.size() > 2 ? 2 : 1] : words[0];
}

}  // namespace

Finding LookAtProgram(const Machine& machine) {
  if (machine.program.empty()) return {Status::kNotHere, "no program is named (--program)", ""};
  std::string path = machine.find_program(machine.program);
  if (path.empty())
    return {Status::kBlocker, fmt::format("there is no program {}", machine.program), "mend its name or PATH"};
  if (const std::string interpreter = Interpreter(path); !interpreter.empty()) {
    const std::string found = machine.find_program(interpreter);
    if (found.empty())
      return {Status::kBlocker, fmt::format("{} is a script of {}, which is not here", path, interpreter),
              "install it"};
    path = found;
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return {Status::kBlocker, fmt::format("{} cannot be looked at: {}", path, std::strerror(errno)), "mend its path"};
  const std::string without = "run a copy without these rights (cp), or as its owner";
  const bool other_user = (info.st_mode & S_ISUID) != 0 && info.st_uid != ::geteuid();
  const bool other_group = (info.st_mode & S_ISGID) != 0 && info.st_gid != ::getegid();
  if (other_user || other_group)
    return {Status::kBlocker,
            fmt::format("{} is set-{}-id: ld.so ignores LD_PRELOAD for it, nothing is recorded", path,
                        other_user ? "user" : "group"),
            without};
  if (::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0 && !machine.superuser())
    return {Status::kBlocker,
            fmt::format("{} has capabilities: ld.so ignores LD_PRELOAD for it, nothing is recorded", path), without};
  const Elf elf = LookAtElf(path);
  if (!elf.elf)
    return {Status::kBlocker, path + " is neither a program nor a script with #!", "name the program itself"};
  if (!elf.elf64)
    return {Status::kBlocker, path + " is a 32-bit program: Lockstep's libraries are 64-bit", "build it for 64 bits"};
  if (!elf.has_interpreter)
    return {Status::kBlocker,
            path + " is linked statically: there is no ld.so to load Lockstep's library, nothing is recorded",
            "link it dynamically (without -static)"};
  for (const std::string& library : elf.needed)
    if (library.starts_with("libmpi.so") || library.starts_with("libmpich.so"))
      return library == "libmpi.so.40"
                 ? Finding{Status::kOk, path + " uses Open MPI's libmpi.so.40", ""}
                 : Finding{
                       Status::kBlocker,
                       fmt::format("{} uses {}, which is MPICH's (or Intel's) interface or an older Open MPI's: its "
                                   "MPI calls are not recorded",
                                   path, library),
                       "build it with Open MPI 4"};
  return {Status::kOk, path + " can be recorded", ""};
}

}  // namespace lockstep::doctor
