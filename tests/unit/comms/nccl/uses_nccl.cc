// A library with an NCCL of its own inside, whose functions it calls by their public names.

#include "tests/fakes/nccl_host/fake_nccl.h"

namespace {

int g_launches = 0;
void Launched(cudaStream_t, const char*, size_t) { ++g_launches; }

}  // namespace

// 0 if all went well; 100 if it was another NCCL that worked.
extern "C" __attribute__((visibility("default"))) int use_nccl() {
  fakeNcclOnLaunch(Launched);
  ncclComm_t comm = nullptr;
  float data[4] = {};
  int result = ncclCommInitRank(&comm, 2, ncclUniqueId{}, 1);
  result += ncclAllReduce(data, data, 4, ncclFloat32, ncclMin, comm, nullptr);
  return result + ncclCommDestroy(comm) + (g_launches == 1 ? 0 : 100);
}
