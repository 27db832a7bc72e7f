// What a status says, asked of the library: for the ABI that hides it (abi.h).

#include "comms/pmpi/pmpi_table.h"

namespace lockstep::pmpi {

#if LS_ABI_STANDARD
std::uint64_t BytesOf(const MPI_Status& status) {
  MPI_Count bytes = 0;
  const int result = g_table.Get_elements_x(&status, g_table.type_byte, &bytes);
  return result == MPI_SUCCESS && bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0;
}

bool IsCancelled(const MPI_Status& status) {
  int cancelled = 0;
  return g_table.Test_cancelled(&status, &cancelled) == MPI_SUCCESS && cancelled != 0;
}
#endif

}  // namespace lockstep::pmpi
