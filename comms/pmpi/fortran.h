#pragma once
// Calls from Fortran. Bindings (mpif.h, mpi, mpi_f08) convert their arguments and call C: Open MPI's the PMPI_
// functions (4.1.4), which would pass the wrappers by, MPICH's both kinds (4.0.2).

namespace lockstep::pmpi {

// Finds the address ranges of the bindings. Called when MPI starts; a binding that is loaded later is noticed by its
// calls.
void FindFortranBindings();

// Whether the code at this address is a binding's.
bool FromFortran(const void* caller);

}  // namespace lockstep::pmpi
