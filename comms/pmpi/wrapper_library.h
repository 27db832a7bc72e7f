#pragma once
// What the entry points (liblockstep-mpi.so) ask of the wrappers of one ABI (liblockstep-mpi-ABI.so). Both come from
// one build, so this is no stable interface.

namespace lockstep::pmpi {

struct Attachment {
  void* library;          // The MPI library's dlopen handle, never closed.
  const void* allreduce;  // The entry point of MPI_Allreduce, for the self-test.
  // By LS_MPI_ENTRY_POINTS (names.h): MPI_ and PMPI_, in turn. The wrappers fill in where to go; null stays null.
  const void** slots;
  unsigned slot_count;
  bool tools;  // Another tool's wrappers are here.
};

// lockstep_mpi_attach: false if this library is not one that these wrappers know in full; nothing is filled in then.
// Called before any of the wrappers, maybe by several threads, each of which does the same.
using AttachWrappers = bool (*)(const Attachment& attachment);

}  // namespace lockstep::pmpi
