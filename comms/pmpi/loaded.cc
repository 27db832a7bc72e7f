#include "comms/pmpi/loaded.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#include <cstdint>

namespace lockstep::pmpi {
namespace {

std::uint32_t GnuHash(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

// An object's symbols. Only the GNU hash table is read: every linker of the last fifteen years writes it.
struct Symbols {
  const ElfW(Sym) * table = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* hash = nullptr;
  std::size_t string_bytes = 0;
};

Symbols SymbolsOf(const dl_phdr_info& info) {
  Symbols symbols;
  const ElfW(Dyn)* entry = nullptr;
  for (int i = 0; i < info.dlpi_phnum; ++i)
    if (info.dlpi_phdr[i].p_type == PT_DYNAMIC)
      entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
  if (entry == nullptr) return symbols;
  // glibc turns these into addresses when it maps an object; the kernel's vdso keeps offsets.
  const auto address = [&](const ElfW(Dyn) & which) {
    return which.d_un.d_ptr < info.dlpi_addr ? info.dlpi_addr + which.d_un.d_ptr : which.d_un.d_ptr;
  };
  for (; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols.table = reinterpret_cast<const ElfW(Sym)*>(address(*entry));
    if (entry->d_tag == DT_STRTAB) symbols.strings = reinterpret_cast<const char*>(address(*entry));
    if (entry->d_tag == DT_STRSZ) symbols.string_bytes = entry->d_un.d_val;
    if (entry->d_tag == DT_GNU_HASH) symbols.hash = reinterpret_cast<const std::uint32_t*>(address(*entry));
  }
  return symbols;
}

bool Defines(const Symbols& symbols, const char* name, std::uint32_t hash) {
  if (symbols.table == nullptr || symbols.strings == nullptr || symbols.hash == nullptr) return false;
  const std::uint32_t buckets = symbols.hash[0], first = symbols.hash[1], words = symbols.hash[2];
  if (buckets == 0 || words == 0) return false;
  // Most objects lack most names, which the filter tells at once.
  constexpr std::uint32_t kBits = 8 * sizeof(ElfW(Addr));
  ElfW(Addr) filter = 0;
  memcpy(&filter, symbols.hash + 4 + hash / kBits % words * (kBits / 32), sizeof filter);
  if ((filter >> (hash % kBits) & filter >> (hash >> symbols.hash[3]) % kBits & 1) == 0) return false;
  const std::uint32_t* bucket = symbols.hash + 4 + words * (kBits / 32);
  const std::uint32_t* chain = bucket + buckets;
  std::uint32_t at = bucket[hash % buckets];
  if (at < first) return false;
  for (;; ++at) {
    const std::uint32_t there = chain[at - first];
    if ((there | 1) == (hash | 1)) {
      const ElfW(Sym)& symbol = symbols.table[at];
      if (symbol.st_shndx != SHN_UNDEF && strcmp(symbols.strings + symbol.st_name, name) == 0) return true;
    }
    if ((there & 1) != 0) return false;
  }
}

struct Search {
  const char* name;
  std::uint32_t hash;
  std::uintptr_t self;
  char* path;
  unsigned long path_bytes;
  bool found;
};

bool Contains(const dl_phdr_info& info, std::uintptr_t address) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& part = info.dlpi_phdr[i];
    if (part.p_type == PT_LOAD && address - (info.dlpi_addr + part.p_vaddr) < part.p_memsz) return true;
  }
  return false;
}

// The hash table lists what is defined; what is only referred to comes before that. Where nothing is defined, ld does
// not say how long the table is: it ends before the strings.
bool RefersTo(const Symbols& symbols, const char* prefix) {
  if (symbols.table == nullptr || symbols.strings == nullptr || symbols.hash == nullptr) return false;
  std::size_t end = symbols.hash[1];
  const auto table = reinterpret_cast<std::uintptr_t>(symbols.table);
  const auto strings = reinterpret_cast<std::uintptr_t>(symbols.strings);
  if (end <= 1 && strings > table) end = (strings - table) / sizeof(ElfW(Sym));
  for (std::size_t i = 1; i < end; ++i) {
    const ElfW(Sym)& symbol = symbols.table[i];
    if (symbol.st_shndx == SHN_UNDEF && symbol.st_name < symbols.string_bytes &&
        strncmp(symbols.strings + symbol.st_name, prefix, strlen(prefix)) == 0)
      return true;
  }
  return false;
}

constexpr unsigned kMostNames = 1024;
struct ToolSearch {
  const char* names;
  unsigned count;
  OtherTool* tools;
  unsigned found;
  std::uint32_t hashes[kMostNames];
};

int LookForTool(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<ToolSearch*>(data);
  const char* path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  const Symbols symbols = SymbolsOf(*info);
  if (search.found == kMostTools || Contains(*info, reinterpret_cast<std::uintptr_t>(search.names)) ||
      Defines(symbols, "PMPI_Init", GnuHash("PMPI_Init")))
    return 0;
  const char* name = search.names;
  for (unsigned i = 0; i + 1 < search.count; i += 2) {
    const char* pmpi = name + strlen(name) + 1;
    if (Defines(symbols, name, search.hashes[i]) && !Defines(symbols, pmpi, search.hashes[i + 1])) {
      OtherTool& tool = search.tools[search.found++];
      tool = {UINTPTR_MAX, 0, path, RefersTo(symbols, "PMPI_")};
      for (int p = 0; p < info->dlpi_phnum; ++p) {
        const auto& part = info->dlpi_phdr[p];
        const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
        if (part.p_type != PT_LOAD) continue;
        if (begin < tool.begin) tool.begin = begin;
        if (begin + part.p_memsz > tool.end) tool.end = begin + part.p_memsz;
      }
      return 0;
    }
    name = pmpi + strlen(pmpi) + 1;
  }
  return 0;
}

int Look(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (Contains(*info, search.self) || !Defines(SymbolsOf(*info), search.name, search.hash)) return 0;
  search.found = true;
  if (search.path == nullptr) return 1;
  const char* path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  search.found = strlen(path) < search.path_bytes;
  if (search.found) strcpy(search.path, path);
  return 1;
}

}  // namespace

bool LoadedObjectDefines(const char* symbol, const void* self, char* path, unsigned long path_bytes) {
  Search search{symbol, GnuHash(symbol), reinterpret_cast<std::uintptr_t>(self), path, path_bytes, false};
  dl_iterate_phdr(Look, &search);
  return search.found;
}

bool RefersToMpi(const dl_phdr_info& object) {
  const Symbols symbols = SymbolsOf(object);
  return (RefersTo(symbols, "PMPI_") || RefersTo(symbols, "MPI_")) &&
         !Defines(symbols, "PMPI_Init", GnuHash("PMPI_Init"));
}

unsigned FindTools(const char* names, unsigned count, OtherTool (&tools)[kMostTools]) {
  ToolSearch search{names, count < kMostNames ? count : kMostNames, tools, 0, {}};
  const char* name = names;
  for (unsigned i = 0; i < search.count; ++i, name += strlen(name) + 1) search.hashes[i] = GnuHash(name);
  dl_iterate_phdr(LookForTool, &search);
  return search.found;
}

}  // namespace lockstep::pmpi
