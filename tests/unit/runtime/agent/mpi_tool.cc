// Another tool's wrappers of MPI: one that is exported and one that is hidden. Helpers may be named as MPI's functions.
#define SHOWN extern "C" __attribute__((visibility("default")))

extern "C" int PMPI_Send();
extern "C" __attribute__((used)) int MPI_Recv() { return 2; }
SHOWN int MPI_Send() { return PMPI_Send(); }
SHOWN int MPI_Mine() { return 3; }
SHOWN int MPI_Barrier() { return 4; }
SHOWN int PMPI_Barrier() { return MPI_Barrier(); }
