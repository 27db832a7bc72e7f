// Finds functions by the tables of the libraries themselves: dlsym allocates when it fails, and until glibc 2.34 in
// each thread's first call, and allocators lock; and of symbols with several versions (pthread_cond_wait has two) the
// default one is wanted, as every program that is linked today gets it, but the one of another preloaded library if it
// has one.

#include "runtime/probe/blocked/real.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

namespace lockstep::probe {

constinit void* g_real[kRealCalls] = {};
constinit bool g_foreign[kRealCalls] = {};

namespace {

constinit int g_anchor = 0;  // In this library.

struct Symbols {
  const ElfW(Sym) * symbols = nullptr;
  const char* texts = nullptr;
  const std::uint32_t* gnu_hash = nullptr;
  const std::uint32_t* old_hash = nullptr;
  const ElfW(Half) * versions = nullptr;
};

Symbols SymbolsOf(const link_map& library) {
  Symbols found;
  // glibc has made them addresses, but for libraries that it does not write to (the kernel's).
  const auto address = [&](const ElfW(Dyn) & entry) {
    return entry.d_un.d_ptr < library.l_addr ? library.l_addr + entry.d_un.d_ptr : entry.d_un.d_ptr;
  };
  for (const ElfW(Dyn)* entry = library.l_ld; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_SYMTAB:
        found.symbols = reinterpret_cast<const ElfW(Sym)*>(address(*entry));
        break;
      case DT_STRTAB:
        found.texts = reinterpret_cast<const char*>(address(*entry));
        break;
      case DT_GNU_HASH:
        found.gnu_hash = reinterpret_cast<const std::uint32_t*>(address(*entry));
        break;
      case DT_HASH:
        found.old_hash = reinterpret_cast<const std::uint32_t*>(address(*entry));
        break;
      case DT_VERSYM:
        found.versions = reinterpret_cast<const ElfW(Half)*>(address(*entry));
        break;
      default:
        break;
    }
  }
  return found;
}

bool IsWanted(const Symbols& in, std::uint32_t index, const char* name) {
  const ElfW(Sym)& symbol = in.symbols[index];
  constexpr ElfW(Half) kHidden = 0x8000;  // Not the default version.
  const unsigned type = symbol.st_info & 15, binding = symbol.st_info >> 4;
  return symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 &&
         (type == STT_FUNC || type == STT_OBJECT || type == STT_NOTYPE) &&
         (binding == STB_GLOBAL || binding == STB_WEAK) &&
         (in.versions == nullptr || (in.versions[index] & kHidden) == 0) &&
         strcmp(in.texts + symbol.st_name, name) == 0;
}

std::uint32_t GnuHashOf(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != 0; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

void* Find(const link_map& library, const char* name) {
  const Symbols in = SymbolsOf(library);
  if (in.symbols == nullptr || in.texts == nullptr) return nullptr;
  const auto address = [&](std::uint32_t index) {
    return reinterpret_cast<void*>(library.l_addr + in.symbols[index].st_value);
  };
  if (in.gnu_hash != nullptr) {
    // Numbers of buckets, of the first symbol and of words of the filter; a shift; filter, buckets, chains.
    const std::uint32_t buckets = in.gnu_hash[0], first = in.gnu_hash[1], words = in.gnu_hash[2];
    if (buckets == 0) return nullptr;
    const std::uint32_t* bucket = in.gnu_hash + 4 + words * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
    const std::uint32_t* chain = bucket + buckets;
    const std::uint32_t hash = GnuHashOf(name);
    std::uint32_t index = bucket[hash % buckets];
    if (index < first) return nullptr;
    for (;; ++index) {
      const std::uint32_t each = chain[index - first];
      if ((each | 1) == (hash | 1) && IsWanted(in, index, name)) return address(index);
      if ((each & 1) != 0) return nullptr;
    }
  }
  for (std::uint32_t i = 1; in.old_hash != nullptr && i < in.old_hash[1]; ++i)
    if (IsWanted(in, i, name)) return address(i);
  return nullptr;
}

const link_map* Own() {
  Dl_info info;
  void* map = nullptr;
  return dladdr1(&g_anchor, &info, &map, RTLD_DL_LINKMAP) != 0 ? static_cast<const link_map*>(map) : nullptr;
}

const link_map* First(const link_map* any) {
  while (any != nullptr && any->l_prev != nullptr) any = any->l_prev;
  return any;
}

// The library that has the next definition behind this one's, as RTLD_NEXT searches. This one was opened by the program
// if there is none behind it; then the first one of all.
const link_map* Behind(const link_map* own, const char* name, void** at) {
  for (const link_map* each = own == nullptr ? nullptr : own->l_next; each != nullptr; each = each->l_next)
    if ((*at = Find(*each, name)) != nullptr) return each;
  for (const link_map* each = First(own); each != nullptr && each != own; each = each->l_next)
    if ((*at = Find(*each, name)) != nullptr) return each;
  return nullptr;
}

// libc's own, or of a library that was preloaded as this one was: it means to stand in libc's place. Any other library
// may have a function of its own that happens to be called "wait" or "connect", with other parameters.
bool StandsForLibc(const link_map& library) {
  const ElfW(Dyn)* soname = nullptr;
  const char* texts = SymbolsOf(library).texts;
  for (const ElfW(Dyn)* entry = library.l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_SONAME) soname = entry;
  if (soname != nullptr && texts != nullptr)
    for (const char* name : {"libc.so.6", "libpthread.so.0"})
      if (strcmp(texts + soname->d_un.d_val, name) == 0) return true;
  const char* preloaded = getenv("LD_PRELOAD");
  const char* path = library.l_name;
  if (preloaded == nullptr || path == nullptr || *path == 0) return false;
  const char* slash = strrchr(path, '/');
  return strstr(preloaded, slash == nullptr ? path : slash + 1) != nullptr;
}

long MissingCall() {
  errno = ENOSYS;
  return -1;
}
int MissingThreadCall() { return ENOSYS; }

struct Name {
  std::size_t number;
  const char* name;
};
#define LS_ANY_CALL_(number, name, ...) {number, #name},
#define LS_PLAIN_CALL LS_ANY_CALL_
#define LS_WAITING_CALL LS_ANY_CALL_
#define LS_LOCKING_CALL LS_ANY_CALL_
#define LS_OTHER_(name) \
  { static_cast<std::size_t>(OtherCall::name), #name }
constexpr Name kNames[] = {
#include "core/blocked_calls.def"
    LS_OTHER_(pthread_cond_signal),
    LS_OTHER_(pthread_cond_broadcast),
    LS_OTHER_(sem_post),
    LS_OTHER_(pthread_mutex_trylock),
    LS_OTHER_(pthread_rwlock_tryrdlock),
    LS_OTHER_(pthread_rwlock_trywrlock),
    LS_OTHER_(sem_trywait)};
#undef LS_ANY_CALL_
#undef LS_OTHER_

}  // namespace

void ResolveReal() {
  const link_map* own = Own();
  for (const Name& each : kNames) {
    if (__atomic_load_n(&g_real[each.number], __ATOMIC_RELAXED) != nullptr) continue;
    void* at = nullptr;
    const link_map* library = Behind(own, each.name, &at);
    g_foreign[each.number] = library != nullptr && !StandsForLibc(*library);
    if (own == nullptr) at = dlsym(RTLD_NEXT, each.name);  // It is not known why, but the program has to go on.
    // This libc is too old for it. Nobody who was linked to this libc calls it.
    if (at == nullptr)
      at = strncmp(each.name, "pthread_", 8) == 0 ? reinterpret_cast<void*>(&MissingThreadCall)
                                                  : reinterpret_cast<void*>(&MissingCall);
    __atomic_store_n(&g_real[each.number], at, __ATOMIC_RELAXED);
  }
}

bool OfOneLibrary(const char* name, const char* other) {
  const link_map* own = Own();
  void* ignored = nullptr;
  return Behind(own, name, &ignored) == Behind(own, other, &ignored);
}

void* StartedWith(const char* name) {
  for (const link_map* each = First(Own()); each != nullptr; each = each->l_next)
    if (void* at = Find(*each, name); at != nullptr) return at;
  return nullptr;
}

bool OtherWatcher() {
  for (const char* name : {"__asan_init", "__tsan_init", "__msan_init", "__hwasan_init", "__lsan_init", "__rtsan_init"})
    if (StartedWith(name) != nullptr) return true;
  for (const link_map* each = First(Own()); each != nullptr; each = each->l_next)
    if (each->l_name != nullptr && strstr(each->l_name, "/vgpreload_") != nullptr) return true;
  return false;
}

}  // namespace lockstep::probe
