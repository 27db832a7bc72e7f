#pragma once
// The interface of the fake libnccl.so.2: NCCL's own names and types, as far as jobs of the
// tests use them, and (fakeNccl...) what stands in for other ranks and for the GPU.

#include "comms/nccl/nccl_abi.h"

extern "C" {
using ncclComm_t = struct ncclComm*;
using cudaStream_t = void*;
using ncclUniqueId = lockstep::nccl::UniqueId;
using ncclConfig_t = lockstep::nccl::Config;

enum { ncclInt8 = 0, ncclFloat32 = 7, ncclFloat64 = 8 };
enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };

int ncclGetVersion(int* version);
int ncclGetUniqueId(ncclUniqueId* id);
int ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
int ncclCommInitAll(ncclComm_t* comms, int devices, const int* list);
int ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
int ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int ids, ncclUniqueId* id, ncclConfig_t* config);
int ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config);
int ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config, int flags);
int ncclCommFinalize(ncclComm_t comm);
int ncclCommDestroy(ncclComm_t comm);
int ncclCommAbort(ncclComm_t comm);
int ncclCommRevoke(ncclComm_t comm, int flags);
int ncclCommGrow(ncclComm_t parent, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* made,
                 ncclConfig_t* config);
int ncclPutSignal(const void*, size_t, int type, int peer, void* window, size_t offset, int signal, int context,
                  unsigned flags, ncclComm_t, cudaStream_t);
int ncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t, cudaStream_t);
int ncclWaitSignal(int count, void* signals, ncclComm_t, cudaStream_t);
int ncclGroupSimulateEnd(void* estimate);
int ncclAllReduceConfig(const void*, void*, size_t, int type, int op, ncclComm_t, cudaStream_t, const void* config);
int ncclReduceConfig(const void*, void*, size_t, int type, int op, int root, ncclComm_t, cudaStream_t,
                     const void* config);
int ncclCommCount(ncclComm_t comm, int* count);
int ncclCommUserRank(ncclComm_t comm, int* rank);
int ncclCommGetAsyncError(ncclComm_t comm, int* error);
int ncclAllReduce(const void*, void*, size_t, int type, int op, ncclComm_t, cudaStream_t);
int ncclAllGather(const void*, void*, size_t, int type, ncclComm_t, cudaStream_t);
int ncclReduceScatter(const void*, void*, size_t, int type, int op, ncclComm_t, cudaStream_t);
int ncclBroadcast(const void*, void*, size_t, int type, int root, ncclComm_t, cudaStream_t);
int ncclBcast(void*, size_t, int type, int root, ncclComm_t, cudaStream_t);
int ncclReduce(const void*, void*, size_t, int type, int op, int root, ncclComm_t, cudaStream_t);
int ncclAlltoAll(const void*, void*, size_t, int type, ncclComm_t, cudaStream_t);
int ncclGather(const void*, void*, size_t, int type, int root, ncclComm_t, cudaStream_t);
int ncclScatter(const void*, void*, size_t, int type, int root, ncclComm_t, cudaStream_t);
int ncclSend(const void*, size_t, int type, int peer, ncclComm_t, cudaStream_t);
int ncclRecv(void*, size_t, int type, int peer, ncclComm_t, cudaStream_t);
int ncclGroupStart();
int ncclGroupEnd();
int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, ncclComm_t);
int ncclRedOpDestroy(int op, ncclComm_t);
// Past the interposer, as those who do not want to be seen call.
int pncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);

// Size and rank of this thread's next communicator by split or shrink: the real one asks the other ranks.
void fakeNcclNextShape(int size, int rank);
// ncclCollConfig_t::userProfilerTag of this thread's operations from now on (2.31.2 and later), 0 none.
void fakeNcclTag(uint64_t tag);
// Operations of this thread are captured into a graph, until false; then they can be replayed. NCCL tells of them while
// they are captured; with FAKE_NCCL_PROXIES=1 of each replay instead, from a thread of CUDA's.
void fakeNcclCapture(bool on);
void fakeNcclReplay();
// How a graph with these kernels of NCCL is launched; null (default): not at all.
void fakeNcclOnReplay(void (*launch)(const char* const* kernels, int count));
// How a kernel is launched; null (default): not at all. On the launching thread, between NCCL's events.
void fakeNcclOnLaunch(void (*launch)(cudaStream_t stream, const char* kernel, size_t bytes));
// The same of a collective that copy engines do.
void fakeNcclOnCopies(void (*copy)(cudaStream_t stream, size_t bytes));
}
