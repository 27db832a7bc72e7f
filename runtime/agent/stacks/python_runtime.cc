#include "runtime/agent/stacks/python_runtime.h"

#include <elf.h>
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "core/own_file.h"

namespace lockstep::agent {
namespace {

// Read piece by piece and not mapped: a file that is cut off meanwhile would end this process. It may be anything.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : file_(OpenPlain(path, O_RDONLY | O_CLOEXEC)) {
    good_ = file_.open() && ReadAt(file_.get(), 0, &head_, sizeof head_) &&
            std::memcmp(head_.e_ident, ELFMAG, SELFMAG) == 0 && head_.e_ident[EI_CLASS] == ELFCLASS64 &&
            head_.e_shentsize == sizeof(Elf64_Shdr) && head_.e_phentsize == sizeof(Elf64_Phdr);
    if (!good_) return;
    sections_ = Rows<Elf64_Shdr>(head_.e_shoff, head_.e_shnum * sizeof(Elf64_Shdr));
    segments_ = Rows<Elf64_Phdr>(head_.e_phoff, head_.e_phnum * sizeof(Elf64_Phdr));
  }

  bool good() const { return good_; }

  // Where its first byte would be in memory, by its own addresses.
  std::optional<std::uint64_t> Base() const {
    for (const Elf64_Phdr& segment : segments_)
      if (segment.p_type == PT_LOAD) return segment.p_vaddr - segment.p_offset;
    return std::nullopt;
  }

  std::optional<std::uint64_t> AddressOfSection(std::string_view name) const {
    if (head_.e_shstrndx >= sections_.size()) return std::nullopt;
    const std::string names = Bytes(sections_[head_.e_shstrndx]);
    for (const Elf64_Shdr& section : sections_)
      if (section.sh_addr != 0 && NameAt(names, section.sh_name) == name) return section.sh_addr;
    return std::nullopt;
  }

  std::optional<std::uint64_t> AddressOfSymbol(std::string_view name) const {
    for (const std::uint32_t kind : {SHT_DYNSYM, SHT_SYMTAB}) {
      for (const Elf64_Shdr& table : sections_) {
        if (table.sh_type != kind || table.sh_link >= sections_.size()) continue;
        const std::string names = Bytes(sections_[table.sh_link]);
        for (const Elf64_Sym& symbol : Rows<Elf64_Sym>(table.sh_offset, table.sh_size))
          if (symbol.st_shndx != SHN_UNDEF && NameAt(names, symbol.st_name) == name) return symbol.st_value;
      }
    }
    return std::nullopt;
  }

  // What the file has at an address of its own.
  template <typename T>
  bool GetAtAddress(std::uint64_t address, T& value) const {
    for (const Elf64_Phdr& segment : segments_)
      if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz)
        return ReadAt(file_.get(), segment.p_offset + (address - segment.p_vaddr), &value, sizeof value);
    return false;
  }

 private:
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // Of a table of symbols or names.

  template <typename Row>
  std::vector<Row> Rows(std::uint64_t offset, std::uint64_t bytes) const {
    std::vector<Row> rows(std::min<std::uint64_t>(bytes, kMostBytes) / sizeof(Row));
    if (!rows.empty() && !ReadAt(file_.get(), offset, rows.data(), rows.size() * sizeof(Row))) rows.clear();
    return rows;
  }
  std::string Bytes(const Elf64_Shdr& section) const {
    return ReadUpTo(file_.get(), section.sh_offset, std::min<std::uint64_t>(section.sh_size, kMostBytes));
  }
  static std::string_view NameAt(const std::string& names, std::uint64_t at) {
    if (at >= names.size()) return {};
    const std::string_view rest = std::string_view(names).substr(at);
    return rest.substr(0, rest.find('\0'));
  }

  OwnedFd file_;
  Elf64_Ehdr head_{};
  std::vector<Elf64_Shdr> sections_;
  std::vector<Elf64_Phdr> segments_;
  bool good_ = false;
};

// "libpython3.9.so.1.0", "python3.9": 0x0309.
std::uint32_t VersionOfName(std::string_view name) {
  const std::size_t at = name.find("python3.");
  if (at == std::string_view::npos) return 0;
  std::uint32_t minor = 0;
  for (std::size_t i = at + 8; i < name.size() && name[i] >= '0' && name[i] <= '9' && minor < 100; ++i)
    minor = 10 * minor + static_cast<std::uint32_t>(name[i] - '0');
  return minor == 0 ? 0 : 0x0300U | minor;
}

}  // namespace

PythonRuntime FindPython(const std::vector<Mapping>& mappings) {
  std::set<std::string> seen;
  bool program = true;  // The first file that is mapped, as a rule; one that is not is looked at for nothing.
  for (const Mapping& mapping : mappings) {
    if (mapping.path.empty() || mapping.path[0] != '/' || mapping.offset != 0 || !seen.insert(mapping.path).second)
      continue;
    const std::string_view name = BaseName(mapping.path);
    const bool named = name.starts_with("libpython3.") || name.starts_with("python");
    if (!named && !program) continue;
    program = false;
    const ElfFile file(mapping.path);
    if (!file.good()) continue;
    std::optional<std::uint64_t> address = file.AddressOfSection(".PyRuntime");
    if (!address) address = file.AddressOfSymbol("_PyRuntime");
    const std::optional<std::uint64_t> base = file.Base();
    if (!address || !base) continue;
    PythonRuntime found{.path = mapping.path, .address = *address - *base + mapping.begin};
    std::uint64_t version = 0;
    if (const auto at = file.AddressOfSymbol("Py_Version"); at && file.GetAtAddress(*at, version))
      found.version = static_cast<std::uint32_t>(version >> 16);
    if (found.version == 0) found.version = VersionOfName(name);
    return found;
  }
  return {};
}

}  // namespace lockstep::agent
