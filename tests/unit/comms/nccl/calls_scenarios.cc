// Programs for calls_test.cc: nccl_calls NAME. Linked with the fake libnccl as an
// application is with the real one. What they print is the same with and without Lockstep.

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "runtime/lockstep.h"
#include "tests/fakes/nccl_host/fake_nccl.h"

namespace {

float g_in[4096], g_out[4096];
cudaStream_t const kStream = reinterpret_cast<cudaStream_t>(0x51);

void Say(const char* what, int result) { std::printf("%s %d\n", what, result); }

ncclConfig_t Named(const char* name, int blocking = 1) {
  ncclConfig_t config{};
  config.size = sizeof config;
  config.magic = lockstep::nccl::kConfigMagic;
  config.version = 22800;
  config.blocking = blocking;
  config.comm_name = name;
  return config;
}

ncclUniqueId IdOf(const char* text) {
  ncclUniqueId id{};
  std::strcpy(id.internal, text);
  return id;
}

void Each(ncclComm_t comm) {
  Say("AllReduce", ncclAllReduce(g_in, g_out, 100, ncclFloat32, ncclSum, comm, kStream));
  Say("AllReduce", ncclAllReduce(g_in, g_out, 100, ncclFloat32, ncclAvg, comm, kStream));
  fakeNcclTag(41);
  Say("AllGather", ncclAllGather(g_in, g_out, 10, ncclFloat64, comm, kStream));
  fakeNcclTag(0);
  Say("ReduceScatter", ncclReduceScatter(g_in, g_out, 11, ncclFloat32, ncclMax, comm, kStream));
  Say("Broadcast", ncclBroadcast(g_in, g_out, 12, ncclFloat32, 2, comm, kStream));
  Say("Bcast", ncclBcast(g_out, 13, ncclFloat32, 1, comm, kStream));
  Say("Reduce", ncclReduce(g_in, g_out, 14, ncclFloat32, ncclProd, 3, comm, kStream));
  Say("AlltoAll", ncclAlltoAll(g_in, g_out, 15, ncclFloat32, comm, kStream));
  Say("Gather", ncclGather(g_in, g_out, 16, ncclFloat32, 2, comm, kStream));
  Say("Scatter", ncclScatter(g_in, g_out, 17, ncclFloat32, 2, comm, kStream));
  Say("GroupStart", ncclGroupStart());
  fakeNcclTag(42);
  Say("Send", ncclSend(g_in, 18, ncclFloat32, 1, comm, kStream));
  fakeNcclTag(std::uint64_t{1} << 63 | 43);  // NCCL reserves such tags.
  Say("Recv", ncclRecv(g_out, 19, ncclFloat32, 3, comm, kStream));
  fakeNcclTag(0);
  Say("GroupEnd", ncclGroupEnd());
  int op = 0;
  Say("RedOpCreatePreMulSum", ncclRedOpCreatePreMulSum(&op, g_in, ncclFloat32, 1, comm));
  Say("AllReduce", ncclAllReduce(g_in, g_out, 20, ncclFloat32, op, comm, kStream));
  Say("RedOpDestroy", ncclRedOpDestroy(op, comm));
}

void All() {
  ncclComm_t comm = nullptr;
  ncclConfig_t config = Named("world");
  Say("CommInitRankConfig", ncclCommInitRankConfig(&comm, 4, IdOf("all"), 1, &config));
  Each(comm);
  Say("CommFinalize", ncclCommFinalize(comm));
  Say("CommDestroy", ncclCommDestroy(comm));
}

// One rank: NCCL tells the plugin of the communicator, and of none of its operations.
void Alone() {
  ncclComm_t comm = nullptr;
  Say("CommInitRank", ncclCommInitRank(&comm, 1, IdOf("alone"), 0));
  for (int i = 0; i < 5; ++i) ncclAllReduce(g_in, g_out, 64, ncclFloat32, ncclSum, comm, kStream);
  Say("AllReduce", ncclAllReduce(g_in, g_out, 64, 99, ncclSum, comm, kStream));  // An error, and counted as none.
  Say("AllReduce", ncclAllReduce(g_in, g_out, 64, ncclFloat32, ncclSum, comm, kStream));
  Say("CommDestroy", ncclCommDestroy(comm));
  Say("CommInitRank", ncclCommInitRank(&comm, 2, IdOf("bad"), 7));
  Say("AllReduce", ncclAllReduce(g_in, g_out, 64, ncclFloat32, ncclSum, nullptr, kStream));
}

// FAKE_NCCL_COPY_ENGINES: large ones are copies, whose numbers are those of earlier kernels.
void Copies() {
  ncclComm_t comm = nullptr;
  Say("CommInitRank", ncclCommInitRank(&comm, 4, IdOf("copies"), 0));
  for (int i = 0; i < 3; ++i) {
    ncclAllGather(g_in, g_out, 10, ncclFloat32, comm, kStream);
    ncclAllGather(g_in, g_out, 1000, ncclFloat32, comm, kStream);
    ncclAlltoAll(g_in, g_out, 1001, ncclFloat32, comm, kStream);
  }
  ncclGroupStart();
  ncclAllGather(g_in, g_out, 1002, ncclFloat32, comm, kStream);
  ncclAllReduce(g_in, g_out, 64, ncclFloat32, ncclSum, comm, kStream);
  ncclGroupEnd();
  fakeNcclCapture(true);
  ncclAllGather(g_in, g_out, 1003, ncclFloat32, comm, kStream);
  fakeNcclCapture(false);
  Say("CommDestroy", ncclCommDestroy(comm));
}

// Several in one process.
void InitAll() {
  ncclComm_t comms[4];
  const int list[4] = {3, 2, 1, 0};
  Say("CommInitAll", ncclCommInitAll(comms, 4, list));
  ncclGroupStart();
  for (ncclComm_t comm : comms) ncclAllReduce(g_in, g_out, 64, ncclFloat32, ncclSum, comm, kStream);
  ncclGroupEnd();
  for (ncclComm_t comm : comms) Say("CommDestroy", ncclCommDestroy(comm));
}

void Grouped() {
  ncclComm_t one = nullptr, two = nullptr;
  ncclConfig_t named = Named("named in a group");
  ncclGroupStart();
  ncclCommInitRank(&one, 2, IdOf("one"), 0);
  ncclCommInitRankConfig(&two, 2, IdOf("two"), 1, &named);
  ncclGroupEnd();
  ncclAllReduce(g_in, g_out, 1, ncclFloat32, ncclSum, one, kStream);
  ncclAllReduce(g_in, g_out, 2, ncclFloat32, ncclSum, two, kStream);
  // A group of operations of both: a kernel each.
  ncclGroupStart();
  ncclAllReduce(g_in, g_out, 3, ncclFloat32, ncclSum, one, kStream);
  ncclAllGather(g_in, g_out, 4, ncclFloat32, one, kStream);
  ncclAllReduce(g_in, g_out, 5, ncclFloat32, ncclSum, two, kStream);
  ncclGroupEnd();
  ncclCommDestroy(one);
  ncclCommDestroy(two);
}

void NonBlocking() {
  ncclComm_t comm = nullptr;
  ncclConfig_t config = Named(nullptr, 0);
  Say("CommInitRankConfig", ncclCommInitRankConfig(&comm, 8, IdOf("later"), 5, &config));
  int state = 7;
  while (state == 7) {
    ncclCommGetAsyncError(comm, &state);
    usleep(1000);
  }
  Say("AllReduce", ncclAllReduce(g_in, g_out, 6, ncclFloat32, ncclSum, comm, kStream));
  ncclCommDestroy(comm);
}

void Split() {
  ncclComm_t world = nullptr, half = nullptr, none = nullptr, other = nullptr, shrunk = nullptr;
  ncclCommInitRank(&world, 8, IdOf("parent"), 6);
  ncclConfig_t named = Named("half");
  fakeNcclNextShape(4, 2);
  Say("CommSplit", ncclCommSplit(world, 1, 6, &half, &named));
  Say("CommSplit", ncclCommSplit(world, -1, 6, &none, nullptr));
  std::printf("%d\n", none == nullptr);
  fakeNcclNextShape(4, 2);
  Say("CommSplit", ncclCommSplit(world, 1, 6, &other, nullptr));
  fakeNcclNextShape(7, 5);
  int excluded = 0;
  Say("CommShrink", ncclCommShrink(world, &excluded, 1, &shrunk, nullptr, 0));
  for (ncclComm_t comm : {half, other, shrunk, world})
    ncclAllReduce(g_in, g_out, 7, ncclFloat32, ncclSum, comm, kStream);
  for (ncclComm_t comm : {half, other, shrunk, world}) ncclCommAbort(comm);
}

// What NCCL 2.29 to 2.32 added.
void Newer() {
  ncclComm_t world = nullptr, grown = nullptr, joined = nullptr;
  ncclCommInitRank(&world, 4, IdOf("newer"), 3);
  Say("CommGrow", ncclCommGrow(world, 6, nullptr, -1, &grown, nullptr));
  const ncclUniqueId id = IdOf("grown");
  ncclConfig_t named = Named("joined");
  Say("CommGrow", ncclCommGrow(nullptr, 6, &id, 5, &joined, &named));
  Say("CommGrow", ncclCommGrow(nullptr, 6, &id, -1, &joined, nullptr));
  Say("AllReduceConfig", ncclAllReduceConfig(g_in, g_out, 30, ncclFloat32, ncclMax, grown, kStream, nullptr));
  Say("ReduceConfig", ncclReduceConfig(g_in, g_out, 31, ncclFloat32, ncclSum, 2, joined, kStream, nullptr));
  Say("PutSignal", ncclPutSignal(g_in, 32, ncclFloat64, 1, g_out, 0, 0, 0, 0, world, kStream));
  Say("Signal", ncclSignal(2, 0, 0, 0, world, kStream));
  Say("WaitSignal", ncclWaitSignal(1, g_in, world, kStream));
  Say("Signal", ncclSignal(2, 0, 0, 0, nullptr, kStream));
  ncclGroupStart();
  ncclAllReduce(g_in, g_out, 33, ncclFloat32, ncclSum, world, kStream);
  Say("GroupSimulateEnd", ncclGroupSimulateEnd(nullptr));
  Say("CommRevoke", ncclCommRevoke(world, 0));
  for (ncclComm_t comm : {grown, joined, world}) Say("CommDestroy", ncclCommDestroy(comm));
}

// Communicators are made of each other, grown and aborted on many threads, while others are in their operations.
void Storm() {
  ncclComm_t last = nullptr;  // The fake's plugin is closed with it, as nobody waits for those in flight.
  ncclCommInitRank(&last, 2, IdOf("last"), 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([t] {
      for (int round = 0; round < 25; ++round) {
        ncclComm_t comms[4] = {};
        ncclCommInitRank(&comms[0], 4, IdOf(("s" + std::to_string(t) + "." + std::to_string(round)).c_str()), 0);
        fakeNcclNextShape(2, 1);
        ncclCommSplit(comms[0], 1, 0, &comms[1], nullptr);
        fakeNcclNextShape(3, 1);
        ncclCommShrink(comms[0], nullptr, 1, &comms[2], nullptr, 0);
        ncclCommGrow(comms[0], 5, nullptr, -1, &comms[3], nullptr);
        std::thread user([&] {
          for (int i = 0; i < 20; ++i)
            for (ncclComm_t comm : comms) ncclAllReduce(g_in, g_out, 1, ncclFloat32, ncclSum, comm, kStream);
        });
        for (ncclComm_t comm : comms) ncclCommAbort(comm);
        user.join();
      }
    });
  for (std::thread& thread : threads) thread.join();
  ncclCommDestroy(last);
}

// Captured once, replayed twice.
void Graph() {
  ncclComm_t comm = nullptr;
  ncclCommInitRank(&comm, 2, IdOf("graph"), 0);
  fakeNcclCapture(true);
  ncclAllReduce(g_in, g_out, 8, ncclFloat32, ncclSum, comm, kStream);
  fakeNcclCapture(false);
  ncclAllReduce(g_in, g_out, 9, ncclFloat32, ncclSum, comm, kStream);
  fakeNcclReplay();
  fakeNcclReplay();
  ncclCommDestroy(comm);
}

// A capture window, many operations outside of it, and another window.
void Channels() {
  ncclComm_t comm = nullptr;
  ncclCommInitRank(&comm, 2, IdOf("channels"), 0);
  for (const int outside : {20, 0}) {
    lockstep_start();
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    std::printf("%lld\n", static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
    ncclAllReduce(g_in, g_out, 8, ncclFloat32, ncclSum, comm, kStream);
    lockstep_stop();
    for (int i = 0; i < outside; ++i) ncclAllReduce(g_in, g_out, 9, ncclFloat32, ncclSum, comm, kStream);
  }
  ncclCommDestroy(comm);
}

// A communicator that was made past the interposer.
void Unseen() {
  ncclComm_t comm = nullptr;
  pncclCommInitRank(&comm, 2, IdOf("unseen"), 1);
  ncclAllReduce(g_in, g_out, 10, ncclFloat32, ncclSum, comm, kStream);
  ncclCommDestroy(comm);
}

void Threads() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([t] {
      for (int round = 0; round < 20; ++round) {
        ncclComm_t comm = nullptr;
        ncclCommInitRank(&comm, 32, IdOf(("t" + std::to_string(t) + "." + std::to_string(round)).c_str()), t);
        for (int i = 0; i < 10; ++i)
          ncclAllReduce(g_in, g_out, static_cast<size_t>(t + 1), ncclFloat32, ncclSum, comm, kStream);
        ncclCommDestroy(comm);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const struct {
    const char* name;
    void (*run)();
  } all[] = {
      {"all", All},       {"alone", Alone}, {"init-all", InitAll},  {"grouped", Grouped}, {"nonblocking", NonBlocking},
      {"split", Split},   {"graph", Graph}, {"channels", Channels}, {"unseen", Unseen},   {"threads", Threads},
      {"copies", Copies}, {"newer", Newer}, {"storm", Storm}};
  for (const auto& each : all) {
    if (name != each.name) continue;
    each.run();
    return 3;  // Not 0, so that the exit code says something.
  }
  return 2;
}
