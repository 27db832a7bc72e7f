#pragma once
// mpi.h of the ABI for which these wrappers are compiled, and what differs between ABIs in the source: what a handle
// is, and what a status says. One shared library is made of this folder for each ABI (CMakeLists.txt).
//
//   Open MPI    handles are pointers to its objects, the predefined ones addresses of data in libmpi
//   MPICH       handles are ints (since 2013 also the ABI of Intel MPI, MVAPICH and Cray MPICH)
//   standard    MPI 5.0, chapter 20: handles are pointers, the predefined ones small numbers

#ifdef LOCKSTEP_STANDARD_ABI
#include <mpi_abi.h>
#define LS_ABI_STANDARD 1
#else
#include <mpi.h>
#define LS_ABI_STANDARD 0
#endif

#include <cstdint>

#if defined(OPEN_MPI) && !LS_ABI_STANDARD
// After mpi.h.
#include <mpi-ext.h>
#define LS_ABI_OPEN_MPI 1
#else
#define LS_ABI_OPEN_MPI 0
#endif
#define LS_ABI_MPICH (!LS_ABI_OPEN_MPI && !LS_ABI_STANDARD)

// Large counts came with MPI 4.0. Open MPI had none up to 5.0.
#define LS_LARGE_COUNTS (MPI_VERSION >= 4 && !LS_ABI_OPEN_MPI)

// MPICH (4.0.2, 5.0.2) and Intel MPI (2021.19) leave the status of MPI_Isendrecv as it was: what it says of the message
// that was received is anything.
#define LS_ISENDRECV_TELLS LS_ABI_OPEN_MPI

#include "comms/pmpi/names.h"

// Persistent collectives have two names: Open MPI 4's mpi.h declares MPIX_, all others MPI_.
#if LS_ABI_OPEN_MPI && MPI_VERSION < 4
#define LS_DECLARE(name) extern "C" decltype(MPIX_##name) MPI_##name;
#else
#define LS_DECLARE(name) extern "C" decltype(MPI_##name) MPIX_##name;
#endif
LS_PMPI_PERSISTENT(LS_DECLARE)
#undef LS_DECLARE

#include "comms/pmpi/newer.h"

namespace lockstep::pmpi {

// A handle as it is recorded and looked up. 0 is none: no library has a handle of that value.
inline std::uint64_t HandleOf(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }
inline std::uint64_t HandleOf(int handle) { return static_cast<std::uint32_t>(handle); }

#if LS_ABI_MPICH
inline MPI_Request RequestOf(std::uint64_t handle) { return static_cast<MPI_Request>(handle); }
// Bytes of the message, also of derived types (mpir_status.h, since MPICH 3.1).
inline std::uint64_t BytesOf(const MPI_Status& status) {
  return static_cast<std::uint32_t>(status.count_lo) |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(status.count_hi_and_cancelled) >> 1) << 32;
}
inline bool IsCancelled(const MPI_Status& status) { return (status.count_hi_and_cancelled & 1) != 0; }
// MPICH leaves the rest of a send's status as it was (4.0.2): what it says can belong to an earlier call.
inline bool SaysInactive(const MPI_Status&) { return false; }
#else
inline MPI_Request RequestOf(std::uint64_t handle) { return reinterpret_cast<MPI_Request>(handle); }
#if LS_ABI_OPEN_MPI
inline std::uint64_t BytesOf(const MPI_Status& status) { return status._ucount; }  // Bytes, also of derived types.
inline bool IsCancelled(const MPI_Status& status) { return status._cancelled != 0; }
// Open MPI's empty status: the request was inactive, nothing completed. (A cancelled receive's differs in being
// cancelled only.)
inline bool SaysInactive(const MPI_Status& status) {
  return status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG && status._cancelled == 0;
}
#else
// The standard gives the fields of a status to the library, so it is asked (status.cc).
std::uint64_t BytesOf(const MPI_Status& status);
bool IsCancelled(const MPI_Status& status);
inline bool SaysInactive(const MPI_Status&) { return false; }
#endif
#endif

}  // namespace lockstep::pmpi
