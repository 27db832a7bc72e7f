// Calls MPI and defines nothing that others see.
extern "C" int MPI_Barrier();

namespace {
__attribute__((used)) int Call() { return MPI_Barrier(); }
}  // namespace
