// What another MPI tool's library looks like to `lockstep run`: it defines MPI functions.
extern "C" __attribute__((visibility("default"))) int MPI_Init(int*, char***) { return 0; }
