#include "comms/pmpi/pmpi_table.h"

#include <dlfcn.h>

#include "comms/pmpi/state.h"

namespace lockstep::pmpi {

PmpiTable g_table;

// An executable may hold a copy of that data (R_X86_64_COPY, usual in PIE executables of gcc 12), which libmpi itself
// uses then. So the global scope is searched first, then the library, in case it is RTLD_LOCAL.
void* FindHandle(void* library, const char* symbol) {
  void* found = dlsym(RTLD_DEFAULT, symbol);
  return found != nullptr ? found : dlsym(library, symbol);
}

namespace {

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

#if LS_ABI_OPEN_MPI
template <typename Handle>
bool FindData(void* library, const char* name, Handle& handle) {
  handle = static_cast<Handle>(FindHandle(library, name));
  return handle != nullptr;
}
#endif

}  // namespace

bool AttachLibrary(void* library) {
  PmpiTable& table = g_table;
  bool all = true;
#define LS_FIND(name) all = Find(library, "PMPI_" #name, table.name) && all;
  LS_PMPI_WRAPPED(LS_FIND)
  LS_PMPI_CALLED(LS_FIND)
#undef LS_FIND
#define LS_FIND(name) Find(library, "PMPI_" #name, table.name);
  LS_PMPI_OPTIONAL(LS_FIND)
  LS_PMPI_NEWER(LS_FIND)
#if LS_LARGE_COUNTS
  LS_PMPI_LARGE(LS_FIND)
#endif
#undef LS_FIND
#define LS_FIND(name) Find(library, "PMPIX_" #name, table.X_##name), Find(library, "PMPI_" #name, table.name);
  LS_PMPI_PERSISTENT(LS_FIND)
#undef LS_FIND
#if LS_ABI_OPEN_MPI
#define LS_FIND(member, type, symbol, constant) all = FindData(library, #symbol, table.member) && all;
#else
#define LS_FIND(member, type, symbol, constant) table.member = constant;
#endif
  LS_PMPI_HANDLES(LS_FIND)
#undef LS_FIND
  table.library = library;
  table.complete = all;
  return all;
}

}  // namespace lockstep::pmpi
