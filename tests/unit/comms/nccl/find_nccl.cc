// For calls_test.cc: a program that is not linked with NCCL and looks for it.
//   nccl_find absent          as PyTorch extensions do: is there one in the process?
//   nccl_find local PATH      loaded for itself only, called through its handle and by name
//   nccl_find real PATH       what the real libnccl answers without a driver

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "comms/nccl/nccl_abi.h"

using lockstep::nccl::UniqueId;
using AllReduce = int (*)(const void*, void*, std::size_t, int, int, void*, void*);
using InitRank = int (*)(void**, int, UniqueId, int);

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  float data[4] = {};
  if (how == "absent") {
    std::printf("version %d\n", dlsym(RTLD_DEFAULT, "ncclGetVersion") != nullptr);
    auto* call = reinterpret_cast<AllReduce>(dlsym(RTLD_DEFAULT, "ncclAllReduce"));
    if (call != nullptr) std::printf("answer %d\n", call(data, data, 4, 7, 0, nullptr, nullptr));
    auto* group = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "ncclGroupEnd"));
    if (group != nullptr) std::printf("answer %d\n", group());
    return 0;
  }
  void* library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  UniqueId id{};
  std::strcpy(id.internal, "local");
  void* comm = nullptr;
  if (how == "local") {
    reinterpret_cast<InitRank>(dlsym(library, "ncclCommInitRank"))(&comm, 2, id, 0);
    auto* call = reinterpret_cast<AllReduce>(dlsym(RTLD_DEFAULT, "ncclAllReduce"));
    if (call == nullptr) call = reinterpret_cast<AllReduce>(dlsym(library, "ncclAllReduce"));
    std::printf("result %d\n", call(data, data, 4, 7, 0, comm, nullptr));
    std::printf("result %d\n",
                reinterpret_cast<AllReduce>(dlsym(library, "ncclAllReduce"))(data, data, 4, 7, 0, comm, nullptr));
    return 0;
  }
  int version = 0;
  std::printf("version %d %d\n", reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"))(&version), version);
  std::printf("id %d\n", reinterpret_cast<int (*)(UniqueId*)>(dlsym(library, "ncclGetUniqueId"))(&id));
  auto* init = reinterpret_cast<InitRank>(dlsym(RTLD_DEFAULT, "ncclCommInitRank"));
  if (init == nullptr) init = reinterpret_cast<InitRank>(dlsym(library, "ncclCommInitRank"));
  std::printf("init %d\n", init(&comm, 1, id, 0));
  return 5;
}
