// Programs for plugin_test.cc: nccl_plugin_scenarios NAME VERSION. Each is an NCCL of that
// profiler interface which calls the plugin in its own order; the plugin is found through
// NCCL_PROFILER_PLUGIN.

#include <errno.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/lockstep.h"
#include "tests/fakes/nccl_host/plugin_host.h"

namespace {

using namespace lockstep::fake;

PluginHost* g_host;
int g_failures = 0;

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  ++g_failures;
}

prof::Descriptor Event(std::uint64_t type, void* parent = nullptr) {
  prof::Descriptor event{};
  event.type = type;
  event.parent = parent;
  return event;
}

void* Begin(void* context, prof::Descriptor event) {
  void* handle = reinterpret_cast<void*>(0x5555);  // Of the past: must be overwritten.
  g_host->Start(context, &handle, event);
  Expect(handle != reinterpret_cast<void*>(0x5555), "the handle is always written");
  return handle;
}

// Proxy operations of another process, whose parent is a pointer there.
void ForeignOperations(void* context, int count) {
  for (int i = 0; i < count; ++i) {
    prof::Descriptor event = Event(prof::kProxyOp, reinterpret_cast<void*>(0xdead0000));
    event.proxy_op.pid = getpid() + 1;
    Begin(context, event);
  }
}

// One all-reduce as NCCL 2.28 tells it: the kernel comes before the collective.
struct Handles {
  void *group_api, *api, *launch, *group, *coll;
};
Handles AllReduce(void* context, std::uint64_t seq, std::uint64_t count = 1024, bool stop = true) {
  Handles made{};
  const bool api = g_host->version() >= 5;
  if (api) {
    prof::Descriptor event = Event(prof::kGroupApi);
    event.group_api.depth = 1;
    made.group_api = Begin(context, event);
    g_host->Record(made.group_api, 23, nullptr);
    event = Event(prof::kCollApi, made.group_api);
    event.coll_api.function = "AllReduce";
    event.coll_api.count = count;
    event.coll_api.datatype = "ncclFloat32";
    event.coll_api.stream = reinterpret_cast<void*>(0x77);
    made.api = Begin(context, event);
    g_host->Stop(made.api);
    event = Event(prof::kKernelLaunch, made.group_api);
    event.kernel_launch.stream = reinterpret_cast<void*>(0x77);
    made.launch = Begin(context, event);
    g_host->Stop(made.launch);
  }
  made.group = Begin(context, Event(prof::kGroup));
  prof::Descriptor event = Event(prof::kColl, api ? made.api : made.group);
  event.rank = 3;
  event.coll.seq = seq;
  event.coll.function = "AllReduce";
  event.coll.send_buffer = reinterpret_cast<void*>(0x1000);
  event.coll.count = count;
  event.coll.datatype = "ncclFloat32";
  event.coll.channels = 24;
  event.coll.algorithm = "RING";
  event.coll.protocol = "SIMPLE";
  event.coll.parent_group = made.group;
  made.coll = Begin(context, event);
  if (!stop) return made;
  g_host->Stop(made.coll);
  g_host->Stop(made.group);
  if (api) g_host->Stop(made.group_api);
  return made;
}

void Simple() {
  errno = 77;
  void* context = g_host->Init(0xabcdef, "trainer", 2, 16, 3);
  Expect(context != nullptr, "a context");
  for (std::uint64_t i = 0; i < 10; ++i) AllReduce(context, i);
  g_host->Finalize(context);
  Expect(errno == 77, "errno is kept");
  Expect(g_host->library() == nullptr, "closed with the last communicator");
}

// Two rounds with a dlclose between; two communicators on one thread.
void Again() {
  for (int round = 0; round < 2; ++round) {
    void* one = g_host->Init(100, nullptr, 1, 4, 0);
    void* two = g_host->Init(200, "second", 1, 2, 1);
    for (std::uint64_t i = 0; i < 3; ++i) {
      AllReduce(one, i, 10);
      AllReduce(two, i, 20);
    }
    g_host->Finalize(two);
    AllReduce(two, 99, 30);  // Used after its end.
    g_host->Finalize(one);
  }
}

void Nasty() {
  void* context = g_host->Init(5, "nasty", 1, 8, 0);
  g_host->Stop(nullptr);
  g_host->Stop(reinterpret_cast<void*>(0x7fff12345678));
  g_host->Stop(reinterpret_cast<void*>(~std::uintptr_t{0}));
  g_host->Stop(reinterpret_cast<void*>(std::uintptr_t{1} << 58));
  g_host->Record(nullptr, 8, nullptr);
  g_host->Record(reinterpret_cast<void*>(0x1234), 22, nullptr);
  prof::StateArgs arguments{};
  g_host->Record(reinterpret_cast<void*>(~std::uintptr_t{0}), 22, &arguments);
  // Without a context, and with contexts that are none.
  for (void* wrong : {static_cast<void*>(nullptr), reinterpret_cast<void*>(0x7fff00000001),
                      reinterpret_cast<void*>(~std::uintptr_t{0})})
    AllReduce(wrong, 1000);
  // Events nobody asked for.
  for (std::uint64_t type : {prof::kProxyOp, prof::kProxyStep, prof::kProxyCtrl, prof::kKernelCh, prof::kNetPlugin,
                             std::uint64_t{1} << 5, std::uint64_t{0}}) {
    prof::Descriptor event = Event(type);
    if (type == prof::kProxyOp) event.proxy_op.pid = getpid();
    void* handle = Begin(context, event);
    Expect(handle == nullptr, "no handle of what is not recorded");
    g_host->Record(handle, 20, &arguments);
    g_host->Stop(handle);
  }
  if (g_host->version() >= 5) {
    for (std::uint64_t type : {prof::kCeSync, prof::kCeBatch, std::uint64_t{1} << 15, std::uint64_t{1} << 40})
      Expect(Begin(context, Event(type)) == nullptr, "no handle of what is not known");
  }
  ForeignOperations(context, 5);
  // A child begun after its parent's end, an end that comes twice, one that never comes, names that are not there.
  const Handles first = AllReduce(context, 1);
  prof::Descriptor child = Event(prof::kColl, first.api);
  child.coll.parent_group = first.group;
  void* late = Begin(context, child);
  g_host->Stop(first.api);
  g_host->Stop(first.api);
  g_host->Stop(late);
  AllReduce(context, 2, 1024, false);
  // A graph's replays: the parent is the capture's, from another thread.
  std::thread([&] {
    for (std::uint64_t i = 0; i < 3; ++i) {
      prof::Descriptor replay = Event(prof::kColl, first.api);
      replay.coll.seq = 3;
      replay.coll.function = "AllReduce";
      g_host->Stop(Begin(context, replay));
    }
  }).join();
  // Point-to-point.
  prof::Descriptor p2p = Event(prof::kP2p, first.api);
  p2p.p2p.function = "Recv";
  p2p.p2p.datatype = "ncclBfloat16";
  p2p.p2p.count = 7;
  p2p.p2p.peer = 6;
  p2p.p2p.channels = 2;
  g_host->Stop(Begin(context, p2p));
  g_host->Finalize(context);
  g_host->Finalize(nullptr);
}

void Threads(int count) {
  void* context = g_host->Init(64, nullptr, 8, 64, 0);
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      ++ready;
      while (ready < count) std::this_thread::yield();
      for (std::uint64_t i = 0; i < 100; ++i) AllReduce(context, static_cast<std::uint64_t>(t) * 1000 + i);
    });
  for (std::thread& thread : threads) thread.join();
  g_host->Finalize(context);
}

// Communicators that come and go on many threads at once.
void Churn() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 1000; ++i) {
        void* context = g_host->Init(static_cast<std::uint64_t>(t) * 10000 + static_cast<std::uint64_t>(i) + 1, nullptr,
                                     1, 2, t % 2);
        if (i % 100 == 0) AllReduce(context, 0);
        g_host->Finalize(context);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// More at once than there is room for.
void Many() {
  std::vector<void*> contexts;
  for (int i = 0; i < 4200; ++i) {
    contexts.push_back(g_host->Init(static_cast<std::uint64_t>(i) + 1, nullptr, 1, 2, 0));
    Expect(contexts.back() != nullptr, "a context although the table is full");
  }
  AllReduce(contexts.back(), 1);
  for (void* context : contexts) g_host->Finalize(context);
  void* context = g_host->Init(9999, nullptr, 1, 2, 0);
  AllReduce(context, 1);
  g_host->Finalize(context);
}

// Recording goes on and off by lockstep_start and lockstep_stop; the mask follows.
void Windows() {
  void* context = g_host->Init(1, "windows", 1, 2, 0);
  std::printf("%d\n", g_host->mask());
  AllReduce(context, 0);
  lockstep_start();
  std::printf("%d\n", g_host->mask());
  AllReduce(context, 1);
  const Handles open = AllReduce(context, 2, 1024, false);
  lockstep_stop();
  std::printf("%d\n", g_host->mask());
  g_host->Stop(open.coll);
  g_host->Stop(open.group);
  AllReduce(context, 3);
  for (int i = 0; i < 100; ++i) g_host->Stop(open.api);  // NCCL 2.28 does while the mask is 0.
  lockstep_start();
  AllReduce(context, 4);
  g_host->Finalize(context);
  std::printf("%d\n", g_host->mask());
  lockstep_stop();  // The mask's library is gone.
}

void Kernels() {
  void* context = g_host->Init(1, nullptr, 1, 2, 0);
  std::printf("%d\n", g_host->mask());
  const Handles made = AllReduce(context, 0);
  for (std::uint8_t channel = 0; channel < 4; ++channel) {
    prof::Descriptor event = Event(prof::kKernelCh, made.coll);
    event.kernel_channel.channel = channel;
    event.kernel_channel.timer = 1'756'135'989'724'672'000 + channel * 32u;
    void* handle = Begin(context, event);
    prof::StateArgs arguments{};
    arguments.kernel_timer = event.kernel_channel.timer + 6400;
    g_host->Record(handle, prof::kKernelChStop, &arguments);
    g_host->Stop(handle);
  }
  g_host->Finalize(context);
}

// For callgrind: so many all-reduces, 5 events each.
void Loop(int count) {
  void* context = g_host->Init(1, nullptr, 1, 2, 0);
  for (int i = 0; i < 10 + count; ++i) AllReduce(context, static_cast<std::uint64_t>(i));
  g_host->Finalize(context);
}

// Losses that come while the ring is full.
void Full() {
  void* context = g_host->Init(1, nullptr, 1, 2, 0);
  for (int i = 0; i < 20000; ++i) lockstep_mark("fills the ring");
  ForeignOperations(context, 5);
  std::puts("full");
  std::fflush(stdout);
  std::getchar();
  ForeignOperations(context, 3);
  g_host->Finalize(context);
}

// A copy-engine collective (v6), written byte by byte at the offsets of the interface's layout.
void Layout() {
  void* context = g_host->Init(1, nullptr, 1, 2, 0);
  alignas(8) unsigned char raw[136] = {};
  const auto put = [&](std::size_t at, auto value) { std::memcpy(raw + at, &value, sizeof value); };
  put(0, std::uint64_t{4096});
  put(24, std::uint64_t{17});
  put(32, static_cast<const char*>("AllGather"));
  put(40, std::uint64_t{0x4000});
  put(56, std::uint64_t{555});
  put(64, std::int32_t{0});
  put(72, static_cast<const char*>("ncclInt8"));
  put(104, std::uint64_t{0x99});
  void* handle = nullptr;
  g_host->Start(context, &handle, *reinterpret_cast<prof::DescriptorV7*>(raw));
  g_host->Stop(handle);
  std::memset(raw, 0, sizeof raw);
  put(0, std::uint64_t{512});
  put(24, static_cast<const char*>("Broadcast"));
  put(32, std::uint64_t{321});
  put(40, static_cast<const char*>("ncclFloat64"));
  put(48, std::int32_t{5});
  put(56, std::uint64_t{0x98});
  put(64, std::uint8_t{1});
  g_host->Start(context, &handle, *reinterpret_cast<prof::DescriptorV7*>(raw));
  g_host->Stop(handle);
  g_host->Finalize(context);
}

// Version 7, likewise: a collective by a symmetric kernel and an ordinary one, with tags of the caller's.
void Layout7() {
  void* context = g_host->Init(1, nullptr, 1, 2, 0);
  alignas(8) unsigned char raw[136] = {};
  const auto put = [&](std::size_t at, auto value) { std::memcpy(raw + at, &value, sizeof value); };
  const auto start = [&] {
    void* handle = nullptr;
    g_host->Start(context, &handle, *reinterpret_cast<prof::DescriptorV7*>(raw));
    g_host->Stop(handle);
    std::memset(raw, 0, sizeof raw);
    return handle;
  };
  put(0, std::uint64_t{512});
  put(24, static_cast<const char*>("AllReduce"));
  put(32, std::uint64_t{4096});
  put(40, static_cast<const char*>("ncclFloat32"));
  put(56, std::uint64_t{0x98});
  put(72, std::uint64_t{0x1234567890});  // userTag
  void* api = start();
  for (const bool symmetric : {true, false}) {
    put(0, std::uint64_t{2});
    put(8, api);
    put(24, std::uint64_t{21});
    put(32, static_cast<const char*>("AllReduce"));
    put(56, std::uint64_t{4096});
    put(72, static_cast<const char*>("ncclFloat32"));
    put(80, std::uint8_t{12});
    put(88, static_cast<const char*>(symmetric ? "AGxLL_R" : "TREE"));
    put(96, static_cast<const char*>(symmetric ? "" : "LL"));
    if (symmetric) put(112, static_cast<const char*>("AllReduce_AGxLL_R"));
    put(120, symmetric);
    put(128, std::uint64_t{0x1234567890});
    start();
  }
  put(0, std::uint64_t{32768});  // kernelPhase: not asked for.
  put(32, static_cast<const char*>("compute"));
  Expect(start() == nullptr, "no handle of a phase");
  g_host->Finalize(context);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  PluginHost host(std::atoi(argv[2]));
  g_host = &host;
  const std::string name = argv[1];
  if (name == "simple")
    Simple();
  else if (name == "again")
    Again();
  else if (name == "nasty")
    Nasty();
  else if (name == "threads")
    Threads(64);
  else if (name == "churn")
    Churn();
  else if (name == "many")
    Many();
  else if (name == "windows")
    Windows();
  else if (name == "kernels")
    Kernels();
  else if (name == "loop")
    Loop(argc > 3 ? std::atoi(argv[3]) : 0);
  else if (name == "full")
    Full();
  else if (name == "layout")
    Layout();
  else if (name == "layout7")
    Layout7();
  else
    return 2;
  return g_failures == 0 ? 0 : 1;
}
