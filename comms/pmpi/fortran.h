#pragma once
// PMPI_ calls that pass one of the application's on. Fortran's bindings (mpif.h, mpi, mpi_f08) convert their arguments
// and call C: Open MPI's the PMPI_ functions (4.1.4), which would pass the wrappers by, MPICH's both kinds (4.0.2).
// Another tool's wrappers call the PMPI_ functions, too, maybe as their last act (a jump): the call then comes from who
// called them.

namespace lockstep::pmpi {

// Finds the address ranges of the bindings. Called when MPI starts; a binding that is loaded later is noticed by its
// calls.
void FindFortranBindings();

// There is another tool: from now on, whatever refers to functions of MPI passes calls on, except modules of the MPI
// library.
void HearOtherTools();

// Whether the code at this address passes calls on.
bool PassesOn(const void* caller);

}  // namespace lockstep::pmpi
