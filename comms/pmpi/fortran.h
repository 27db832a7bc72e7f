#pragma once
// Calls from Fortran. Open MPI's bindings (mpif.h, mpi, mpi_f08; 4.1.4) convert
// their arguments and call the PMPI_ functions, which would pass the wrappers by.

namespace lockstep::pmpi {

// Finds the address ranges of the bindings. Called when MPI starts; a binding that is loaded later is noticed by its
// calls.
void FindFortranBindings();

}  // namespace lockstep::pmpi
