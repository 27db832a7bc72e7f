#pragma once
// The MPI library's own functions and handles, found in the process at run time. The
// wrappers have no DT_NEEDED on libmpi: in a process without MPI they cost
// nothing, and under mpi4py libmpi is RTLD_LOCAL, so that its PMPI_ symbols are
// invisible to the dynamic linker although it is loaded (Open MPI 4.1.4).
// Everything in the shim calls MPI through this table, never by name.

#include "comms/pmpi/abi.h"

namespace lockstep::pmpi {

// X(member, C type, Open MPI's symbol, constant). Open MPI's handles are addresses of data, those of the other ABIs
// numbers.
#define LS_PMPI_HANDLES(X)                                              \
  X(comm_world, MPI_Comm, ompi_mpi_comm_world, MPI_COMM_WORLD)          \
  X(comm_self, MPI_Comm, ompi_mpi_comm_self, MPI_COMM_SELF)             \
  X(comm_null, MPI_Comm, ompi_mpi_comm_null, MPI_COMM_NULL)             \
  X(info_null, MPI_Info, ompi_mpi_info_null, MPI_INFO_NULL)             \
  X(request_null, MPI_Request, ompi_request_null, MPI_REQUEST_NULL)     \
  X(type_null, MPI_Datatype, ompi_mpi_datatype_null, MPI_DATATYPE_NULL) \
  X(type_byte, MPI_Datatype, ompi_mpi_byte, MPI_BYTE)                   \
  X(errors_return, MPI_Errhandler, ompi_mpi_errors_return, MPI_ERRORS_RETURN)

struct PmpiTable {
#define LS_PMPI_MEMBER(name) decltype(&::PMPI_##name) name = nullptr;
  LS_PMPI_WRAPPED(LS_PMPI_MEMBER)
  LS_PMPI_OPTIONAL(LS_PMPI_MEMBER)
  LS_PMPI_CALLED(LS_PMPI_MEMBER)
#undef LS_PMPI_MEMBER
  // PMPIX_name and PMPI_name; null where the library lacks them.
#define LS_PMPI_MEMBER(name) decltype(&::MPI_##name) X_##name = nullptr, name = nullptr;
  LS_PMPI_PERSISTENT(LS_PMPI_MEMBER)
#undef LS_PMPI_MEMBER
#define LS_PMPI_MEMBER(name) decltype(&::MPI_##name) name = nullptr;
  LS_PMPI_NEWER(LS_PMPI_MEMBER)
#undef LS_PMPI_MEMBER
#if LS_LARGE_COUNTS
#define LS_PMPI_MEMBER(name) decltype(&::PMPI_##name) name = nullptr;
  LS_PMPI_LARGE(LS_PMPI_MEMBER)
#undef LS_PMPI_MEMBER
#endif
#define LS_PMPI_MEMBER(member, type, symbol, constant) type member{};
  LS_PMPI_HANDLES(LS_PMPI_MEMBER)
#undef LS_PMPI_MEMBER
  bool complete = false;  // Every function that must be there was found, and the handles have values.
  void* library = nullptr;
};

// Filled in by AttachLibrary, before any wrapper can be called. Thread: any.
extern PmpiTable g_table;
inline const PmpiTable& Pmpi() { return g_table; }

// The functions and handles of the MPI library with this dlopen handle, which is of this ABI. False: functions are
// missing that every library of it has. Called before the wrappers can be called; again, it writes the same.
bool AttachLibrary(void* library);

// Open MPI's spelling of constants that mpi.h gives as addresses of data in libmpi
// must not be used in the shim (MPI_COMM_WORLD, MPI_INT, MPI_REQUEST_NULL, ...):
// they would be undefined symbols where libmpi is absent. Use the members above.

}  // namespace lockstep::pmpi
