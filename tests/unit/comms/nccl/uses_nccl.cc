// A library with an NCCL of its own inside, whose functions it calls by their public names.

#include "tests/fakes/nccl_host/fake_nccl.h"

extern "C" __attribute__((visibility("default"))) int use_nccl() {
  ncclComm_t comm = nullptr;
  float data[4] = {};
  int result = ncclCommInitRank(&comm, 2, ncclUniqueId{}, 1);
  result += ncclAllReduce(data, data, 4, ncclFloat32, ncclMin, comm, nullptr);
  return result + ncclCommDestroy(comm);
}
