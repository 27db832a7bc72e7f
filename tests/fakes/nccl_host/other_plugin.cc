// A profiler plugin such as a user may have set, of interface 4, 5 or 7 (OTHER_PLUGIN_VERSION
// at build time). It looks into every handle it is given, as NVIDIA's example does: one
// that is not its own, or ended, is an error. Writes what it saw to OTHER_PLUGIN_OUT when
// the last communicator ends. OTHER_PLUGIN_MASK: what it asks for.

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "comms/nccl/profiler_abi.h"

namespace {

using namespace lockstep::nccl::profiler;
#if OTHER_PLUGIN_VERSION == 4
using Event = DescriptorV4;
#elif OTHER_PLUGIN_VERSION == 7
using Event = DescriptorV7;
#else
using Event = Descriptor;
#endif

struct Handle {
  std::uint64_t magic = 0x600d, type = 0;
  bool open = true;
};
struct Context {
  std::uint64_t magic = 0xc017e87;
  std::uint64_t id;
  int ranks, rank;
  std::string name;
};

std::mutex g_mutex;
int g_users = 0;
std::map<std::string, int> g_seen;

void Saw(const std::string& what) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  ++g_seen[what];
}

int InitOf(void** context, std::uint64_t id, int* mask, const char* name, int ranks, int rank) {
  const char* wanted = std::getenv("OTHER_PLUGIN_MASK");
  *mask = wanted != nullptr ? std::atoi(wanted) : 2;
  *context = new Context{0xc017e87, id, ranks, rank, name == nullptr ? "" : name};
  const std::lock_guard<std::mutex> lock(g_mutex);
  ++g_users;
  ++g_seen["init " + std::to_string(id) + " " + std::to_string(ranks) + " " + std::to_string(rank) + " " +
           (name == nullptr ? "-" : name)];
  return kSuccess;
}
#if OTHER_PLUGIN_VERSION == 4
int Init(void** context, int* mask, const char* name, std::uint64_t id, int, int ranks, int rank, Logger) {
#else
int Init(void** context, std::uint64_t id, int* mask, const char* name, int, int ranks, int rank, Logger) {
#endif
  return InitOf(context, id, mask, name, ranks, rank);
}

bool Mine(void* handle) {
  if (handle == nullptr || static_cast<Handle*>(handle)->magic != 0x600d) {
    Saw("foreign handle");
    return false;
  }
  return true;
}

int Start(void* context, void** handle, Event* event) {
  *handle = nullptr;
  if (context == nullptr || static_cast<Context*>(context)->magic != 0xc017e87) {
    Saw("foreign context");
    return kSuccess;
  }
  if (event->parent != nullptr) Mine(event->parent);
  Saw("start " + std::to_string(static_cast<std::uint64_t>(event->type)) +
      (event->parent == nullptr ? "" : " of " + std::to_string(static_cast<Handle*>(event->parent)->type)));
#if OTHER_PLUGIN_VERSION == 7
  if (event->type == kColl) Saw("tag " + std::to_string(event->coll.user_tag));
#endif
  auto* made = new Handle;  // Never freed, so that a use after its end is seen and not a crash.
  made->type = static_cast<std::uint64_t>(event->type);
  *handle = made;
  return kSuccess;
}
int Stop(void* handle) {
  if (!Mine(handle)) return kSuccess;
  auto* own = static_cast<Handle*>(handle);
  Saw(own->open ? "stop " + std::to_string(own->type) : "stopped twice");
  own->open = false;
  return kSuccess;
}
int Record(void* handle, int state, StateArgs*) {
  if (Mine(handle)) Saw("state " + std::to_string(state));
  return kSuccess;
}
int Finalize(void* context) {
  if (context == nullptr || static_cast<Context*>(context)->magic != 0xc017e87) Saw("foreign context");
  const std::lock_guard<std::mutex> lock(g_mutex);
  ++g_seen["finalize"];
  const char* path = std::getenv("OTHER_PLUGIN_OUT");
  if (--g_users != 0 || path == nullptr) return kSuccess;
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");  // A file each.
  std::FILE* file = std::fopen((std::string(path) + (rank == nullptr ? "" : rank)).c_str(), "w");
  if (file == nullptr) return kSuccess;
  for (const auto& [what, count] : g_seen) std::fprintf(file, "%s: %d\n", what.c_str(), count);
  std::fclose(file);
  return kSuccess;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#if OTHER_PLUGIN_VERSION == 4
EXPORT TableV4 ncclProfiler_v4;
TableV4 ncclProfiler_v4 = {"Other", Init, Start, Stop, Record, Finalize};
#elif OTHER_PLUGIN_VERSION == 7
EXPORT TableV7 ncclProfiler_v7;
TableV7 ncclProfiler_v7 = {"Other", Init, Start, Stop, Record, Finalize};
#else
EXPORT TableV5 ncclProfiler_v5;
TableV5 ncclProfiler_v5 = {"Other", Init, Start, Stop, Record, Finalize};
#endif
