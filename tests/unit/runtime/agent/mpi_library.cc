// An MPI library by its names.
#define SHOWN extern "C" __attribute__((visibility("default")))

SHOWN int PMPI_Init() { return 0; }
SHOWN int MPI_Init() { return PMPI_Init(); }
SHOWN int PMPI_Send() { return 1; }
SHOWN int MPI_Send() { return PMPI_Send(); }
