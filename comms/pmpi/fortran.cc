#include "comms/pmpi/fortran.h"

#include <link.h>
#include <string.h>

#include <type_traits>

#include "comms/pmpi/traced.h"

// This library defines the PMPI_ function of everything it wraps. A call that comes from the code of a Fortran binding
// goes to the wrapper, with handles that the binding has converted already. Any other call (other tools, the library's
// own modules, programs that avoid profiling) goes straight to the library. Our own calls are found by dlsym in libmpi
// itself and never come here.

namespace lockstep::pmpi {
namespace {

struct Text {
  std::atomic<std::uintptr_t> begin, end;
};
Text g_text[4];  // Empty entries match no address. There are two such libraries.
std::atomic<std::uint32_t> g_strangers{0};

int Look(dl_phdr_info* info, std::size_t, void*) {
  const char* name = info->dlpi_name != nullptr ? strrchr(info->dlpi_name, '/') : nullptr;
  name = name != nullptr ? name + 1 : info->dlpi_name;
  if (name == nullptr || (strncmp(name, "libmpi_mpifh", 12) != 0 && strncmp(name, "libmpi_usempi", 13) != 0)) return 0;
  std::uintptr_t begin = 0, end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    begin = info->dlpi_addr + part.p_vaddr;
    end = begin + part.p_memsz;
  }
  for (Text& text : g_text) {
    const std::uintptr_t there = text.begin.load(std::memory_order_relaxed);
    if (there != 0 && there != begin) continue;
    text.end.store(end, std::memory_order_relaxed);
    text.begin.store(begin, std::memory_order_relaxed);
    return 0;
  }
  return 0;
}

bool Inside(std::uintptr_t address) {
  for (const Text& text : g_text)
    if (address - text.begin.load(std::memory_order_relaxed) <
        text.end.load(std::memory_order_relaxed) - text.begin.load(std::memory_order_relaxed))
      return true;
  return false;
}

bool FromFortran(const void* caller) {
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  if (Inside(address)) [[likely]]
    return true;
  // A binding may be loaded after MPI has started (f2py modules), so the search is repeated, less often over time.
  const std::uint32_t strangers = g_strangers.fetch_add(1, std::memory_order_relaxed);
  if ((strangers & (strangers + 1)) != 0 && strangers % 64 != 0) return false;
  FindFortranBindings();
  return Inside(address);
}

template <auto kWrapper, auto kMember>
struct Entry;
template <typename... Args, int (*kWrapper)(Args...), int (*PmpiTable::*kMember)(Args...)>
struct Entry<kWrapper, kMember> {
  static int Call(Args... args) {
    if (FromFortran(__builtin_return_address(0))) return kWrapper(args...);
    // Another tool's MPI_Finalize is called instead of ours, but the other ranks wait for this rank's vote.
    if constexpr (std::is_same_v<decltype(kWrapper), decltype(&MPI_Finalize)>)
      if (kWrapper == &MPI_Finalize) FinalizeBegins();
    auto* function = g_table.*kMember;
    if (function == nullptr) [[unlikely]]
      function = Pmpi().*kMember;
    return function != nullptr ? function(args...) : static_cast<int>(MPI_ERR_OTHER);
  }
};

}  // namespace

void FindFortranBindings() { dl_iterate_phdr(Look, nullptr); }

}  // namespace lockstep::pmpi

// The symbol takes the template's address: all of them have C linkage and the types that mpi.h gives them.
#define LS_ENTRY(symbol, wrapper, member)                                                                \
  extern "C" __attribute__((used, visibility("hidden"))) decltype(&symbol) lockstep_resolve_##symbol() { \
    return &lockstep::pmpi::Entry<&wrapper, &lockstep::pmpi::PmpiTable::member>::Call;                   \
  }                                                                                                      \
  extern "C" decltype(symbol) symbol __attribute__((ifunc("lockstep_resolve_" #symbol), visibility("default")));
#define LS_PMPI_ENTRY(name) LS_ENTRY(PMPI_##name, MPI_##name, name)
LS_PMPI_WRAPPED(LS_PMPI_ENTRY)
LS_PMPI_OPTIONAL(LS_PMPI_ENTRY)
#define LS_PMPIX_ENTRY(name) LS_ENTRY(PMPIX_##name, MPIX_##name, X_##name)
LS_PMPI_PERSISTENT(LS_PMPIX_ENTRY)

extern "C" __attribute__((visibility("default"))) int PMPI_Pcontrol(const int level, ...) {
  if (lockstep::pmpi::FromFortran(__builtin_return_address(0))) return MPI_Pcontrol(level);
  return LS_PMPI(Pcontrol, level);
}
