#include "comms/pmpi/pmpi_table.h"

#include <dlfcn.h>
#include <string.h>

#include <atomic>

#include "comms/pmpi/state.h"

namespace lockstep::pmpi {

void* FindHandle(void* library, const char* symbol) {
  void* found = dlsym(RTLD_DEFAULT, symbol);
  return found != nullptr ? found : dlsym(library, symbol);
}

PmpiTable g_table;

namespace {

std::atomic<int> g_state{0};  // 0 not found yet, 1 being filled in, 2 found.

// Open MPI 4 and 5; MPICH and related libraries, whose calls are passed on unchanged.
constexpr const char* kLibraries[] = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi.so"};

template <typename Function>
void Find(void* library, const char* name, Function& function, bool& all) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  all = all && function != nullptr;
}

// Handles are addresses of data, and an executable may hold a copy of that data (R_X86_64_COPY, usual in PIE
// executables of gcc 12), which libmpi itself uses then. So the global scope is searched first, then the library, in
// case it is RTLD_LOCAL.
template <typename Handle>
void FindData(void* library, const char* name, Handle& handle, bool& all) {
  handle = static_cast<Handle>(FindHandle(library, name));
  all = all && handle != nullptr;
}

bool Fill(void* library, bool open_mpi) {
  PmpiTable& table = g_table;
  bool all = true, any = true;
#define LS_FIND(name) Find(library, "PMPI_" #name, table.name, all);
  LS_PMPI_WRAPPED(LS_FIND)
  LS_PMPI_CALLED(LS_FIND)
#undef LS_FIND
#define LS_FIND(name) Find(library, "PMPI_" #name, table.name, any);
  LS_PMPI_OPTIONAL(LS_FIND)
#undef LS_FIND
#define LS_FIND(name) Find(library, "PMPIX_" #name, table.X_##name, any), Find(library, "PMPI_" #name, table.name, any);
  LS_PMPI_PERSISTENT(LS_FIND)
#undef LS_FIND
  if (open_mpi) {
#define LS_FIND(member, type, symbol) FindData(library, #symbol, table.member, all);
    LS_PMPI_HANDLES(LS_FIND)
#undef LS_FIND
  }
  return all;
}

}  // namespace

bool Resolve() {
  int state = g_state.load(std::memory_order_acquire);
  if (state == 2) return true;
  for (const char* name : kLibraries) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    const bool open_mpi = dlsym(library, "ompi_mpi_comm_world") != nullptr;
    // Two threads may both get here before MPI_Init: one fills the table in, the other waits some microseconds.
    int expected = 0;
    if (g_state.compare_exchange_strong(expected, 1)) {
      const bool all = Fill(library, open_mpi);
      g_table.open_mpi = open_mpi && all;
      // If functions are missing, this is not a library that the wrappers support; the existing ones are still called.
      g_table.found = g_table.Init != nullptr && g_table.Initialized != nullptr;
      g_state.store(g_table.found ? 2 : 0, std::memory_order_release);
    } else {
      while (g_state.load(std::memory_order_acquire) == 1) {
      }
    }
    // The library is never closed: it is loaded anyway, and must stay while its functions are called.
    return g_state.load(std::memory_order_acquire) == 2;
  }
  return false;
}

const PmpiTable& Pmpi() {
  if (g_state.load(std::memory_order_acquire) != 2) [[unlikely]]
    Resolve();
  return g_table;
}

}  // namespace lockstep::pmpi
