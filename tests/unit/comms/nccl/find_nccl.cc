// For calls_test.cc: a program that is not linked with NCCL and looks for it.
//   nccl_find absent          as PyTorch extensions do: is there one in the process?
//   nccl_find local PATH      loaded for itself only, called through its handle and by name
//   nccl_find inside PATH [LIBNCCL]   a library that brings its own NCCL along, linked statically
//   nccl_find real PATH       what the real libnccl answers without a driver
//   nccl_find ranges PATH     its functions by its handle, without a communicator: each fails, after its NVTX range
//   began

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
  if (how == "inside") {
    // Perhaps beside an NCCL of somebody else, which is called first.
    void* other = argc > 3 ? dlopen(argv[3], RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (argc > 3) {
      auto* call = reinterpret_cast<AllReduce>(dlsym(RTLD_DEFAULT, "ncclAllReduce"));
      if (call == nullptr) call = reinterpret_cast<AllReduce>(dlsym(other, "ncclAllReduce"));
      std::printf("other %d\n", call(data, data, 4, 7, 0, nullptr, nullptr));
    }
    std::printf("result %d\n", reinterpret_cast<int (*)()>(dlsym(library, "use_nccl"))());
    return 0;
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
  if (how == "ranges") {
    const auto find = [&](const char* name) { return dlsym(library, name); };
    using Plain = int (*)(const void*, void*, std::size_t, int, void*, void*);
    using Rooted = int (*)(const void*, void*, std::size_t, int, int, void*, void*);
    using Reduce = int (*)(const void*, void*, std::size_t, int, int, int, void*, void*);
    using Message = int (*)(const void*, std::size_t, int, int, void*, void*);
    constexpr int kFloat = 7;
    int failures = 0;
    for (const char* name : {"ncclAllGather", "ncclAlltoAll"})
      if (auto* call = reinterpret_cast<Plain>(find(name)))
        failures += call(data, data, 4, kFloat, nullptr, nullptr) != 0;
    // ReduceScatter and AllReduce take an operation where the rooted ones take the root.
    for (const char* name : {"ncclAllReduce", "ncclReduceScatter", "ncclBroadcast", "ncclGather", "ncclScatter"})
      if (auto* call = reinterpret_cast<Rooted>(find(name)))
        failures += call(data, data, 4, kFloat, 3, nullptr, nullptr) != 0;
    failures += reinterpret_cast<Reduce>(find("ncclReduce"))(data, data, 4, kFloat, 2, 1, nullptr, nullptr) != 0;
    for (const char* name : {"ncclSend", "ncclRecv"})
      failures += reinterpret_cast<Message>(find(name))(data, 4, kFloat, 6, nullptr, nullptr) != 0;
    std::printf("failed %d\n", failures);
    return 0;
  }
  int version = 0;
  std::printf("version %d %d\n", reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"))(&version), version);
  std::printf("id %d\n", reinterpret_cast<int (*)(UniqueId*)>(dlsym(library, "ncclGetUniqueId"))(&id));
  auto* init = reinterpret_cast<InitRank>(dlsym(RTLD_DEFAULT, "ncclCommInitRank"));
  if (init == nullptr) init = reinterpret_cast<InitRank>(dlsym(library, "ncclCommInitRank"));
  std::printf("init %d\n", init(&comm, 1, id, 0));
  // By their public names where the program's scope has them, as a caller's are: first ours, then the library's.
  const auto find = [&](const char* name) {
    void* own = dlsym(library, name);  // What this NCCL lacks is not called.
    void* found = own != nullptr ? dlsym(RTLD_DEFAULT, name) : nullptr;
    return found != nullptr ? found : own;
  };
  void* comms[2] = {};
  const int devices[2] = {0, 1};
  std::printf("all %d\n",
              reinterpret_cast<int (*)(void**, int, const int*)>(find("ncclCommInitAll"))(comms, 2, devices));
  for (const char* name : {"ncclCommRevoke", "ncclCommSuspend"})
    if (auto* call = reinterpret_cast<int (*)(void*, int)>(find(name))) std::printf("%s %d\n", name, call(nullptr, 0));
  if (auto* call = reinterpret_cast<int (*)(int, int, int, unsigned, void*, void*)>(find("ncclSignal")))
    std::printf("signal %d\n", call(1, 0, 0, 0, nullptr, nullptr));
  if (auto* call = reinterpret_cast<int (*)(const void*, void*, std::size_t, int, int, void*, void*, const void*)>(
          find("ncclAllReduceConfig")))
    std::printf("config %d\n", call(data, data, 4, 7, 0, nullptr, nullptr, nullptr));
  if (auto* call = reinterpret_cast<int (*)(void*)>(find("ncclGroupSimulateEnd")))
    std::printf("simulate %d\n", call(nullptr));
  return 5;
}
