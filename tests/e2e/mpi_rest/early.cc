// A library that asks MPI something when it is loaded, as Open MPI's C++ bindings do: before the probe is set up, which
// is loaded first and set up after all that the program is linked with.

#include <mpi.h>

namespace {
__attribute__((constructor)) void OnLoad() {
  int initialized = 0;
  MPI_Initialized(&initialized);
}
}  // namespace

int Early() { return 1; }
