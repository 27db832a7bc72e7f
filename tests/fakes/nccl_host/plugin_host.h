#pragma once
// The half of NCCL that loads a profiler plugin and calls it, as NCCL 2.27 (interface 4),
// 2.28 (5), 2.29 (6) and 2.31 (7) do: the plugin is looked for at the first communicator's init,
// newest symbol first; a failure is never tried again; the library is closed with the last
// communicator; one mask for all of them. FAKE_RCCL: RCCL's half, which knows no interface after 6 and looks for
// librccl-profiler (ROCm/rocm-systems 1a905b50, projects/rccl/src/plugin/profiler.cc and plugin_open.cc).

#include <dlfcn.h>
#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "comms/nccl/profiler_abi.h"

namespace lockstep::fake {

namespace prof = nccl::profiler;

#ifdef FAKE_RCCL
inline constexpr int kNewestInterface = 6;
#define FAKE_PLUGIN_PREFIX "librccl-profiler"
#else
inline constexpr int kNewestInterface = 7;
#define FAKE_PLUGIN_PREFIX "libnccl-profiler"
#endif

class PluginHost {
 public:
  explicit PluginHost(int newest) : newest_(std::min(newest, kNewestInterface)) {}

  int version() const { return version_; }  // Of the table in use, 0 none.
  int mask() const { return __atomic_load_n(&mask_, __ATOMIC_RELAXED); }
  int* mask_address() { return &mask_; }
  void* library() const { return library_; }
  std::string why;

  // A communicator begins: loads the plugin if it is the first. Null if there is none.
  void* Init(std::uint64_t id, const char* name, int nodes, int ranks, int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!Acquire()) return nullptr;
    void* context = nullptr;
    if (v5_ != nullptr)
      v5_->init(&context, id, &mask_, name, nodes, ranks, rank, Log);
    else
      v4_->init(&context, &mask_, name, id, nodes, ranks, rank, Log);
    return context;
  }
  void Finalize(void* context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (context != nullptr) v5_ != nullptr ? v5_->finalize(context) : v4_->finalize(context);
    Release();
  }

  // As 2.31 says it; older interfaces get the part that they know.
  void Start(void* context, void** handle, prof::DescriptorV7& event) {
    if (version_ == 7) {
      reinterpret_cast<prof::TableV7*>(v5_)->start(context, handle, &event);
      return;
    }
    prof::Descriptor known;
    std::memcpy(static_cast<void*>(&known), &event, sizeof known);
    Start(context, handle, known);
  }
  // 2.27's events are the same but for the parent of collectives: their group launch.
  void Start(void* context, void** handle, prof::Descriptor& event) {
    if (version_ == 7) {
      prof::DescriptorV7 longer{};
      std::memcpy(static_cast<void*>(&longer), &event, sizeof event);
      Start(context, handle, longer);
      return;
    }
    if (v5_ != nullptr) {
      v5_->start(context, handle, &event);
      return;
    }
    prof::DescriptorV4 old{};
    old.type = static_cast<std::uint8_t>(event.type);
    old.parent = event.type == prof::kColl  ? event.coll.parent_group
                 : event.type == prof::kP2p ? event.p2p.parent_group
                                            : event.parent;
    old.rank = event.rank;
    std::memcpy(static_cast<void*>(old.raw), event.raw, sizeof old.raw);
    v4_->start(context, handle, &old);
  }
  void Stop(void* handle) { v5_ != nullptr ? v5_->stop(handle) : v4_->stop(handle); }
  void Record(void* handle, int state, prof::StateArgs* arguments) {
    v5_ != nullptr ? v5_->record(handle, state, arguments) : v4_->record(handle, state, arguments);
  }

 private:
  static void Log(int, unsigned long, const char*, int, const char*, ...) {}

  void* Open(const char* value) {
    // NCCL 2.27 to 2.30 copy the value into 255 characters.
    const std::string name = std::string(value == nullptr ? FAKE_PLUGIN_PREFIX ".so" : value).substr(0, 254);
    if (value != nullptr && strncasecmp(name.c_str(), "STATIC_PLUGIN", name.size()) == 0)
      return dlopen(nullptr, RTLD_NOW);
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
    why = dlerror();
    const bool file = name.find('/') != std::string::npos ||
                      (name.rfind("lib", 0) == 0 && name.size() > 3 && name.substr(name.size() - 3) == ".so");
    return file ? nullptr : dlopen((FAKE_PLUGIN_PREFIX "-" + name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  }

  bool Acquire() {
    if (failed_) return false;
    if (users_ == 0) {
      const char* value = std::getenv("NCCL_PROFILER_PLUGIN");
      library_ = value != nullptr && std::strcmp(value, "none") == 0 ? nullptr : Open(value);
      version_ = 0;
      v4_ = nullptr;
      v5_ = nullptr;
      for (int version = newest_; library_ != nullptr && version >= 4 && version_ == 0; --version) {
        void* table = dlsym(library_, ("ncclProfiler_v" + std::to_string(version)).c_str());
        if (table == nullptr) continue;
        version_ = version;
        if (version >= 5)
          v5_ = static_cast<prof::TableV5*>(table);
        else
          v4_ = static_cast<prof::TableV4*>(table);
      }
      if (version_ == 0) {
        failed_ = true;
        if (library_ != nullptr) dlclose(library_);
        library_ = nullptr;
        return false;
      }
    }
    ++users_;
    return true;
  }
  void Release() {
    if (users_ == 0 || --users_ != 0) return;
    dlclose(library_);
    library_ = nullptr;
    version_ = 0;
    v4_ = nullptr;
    v5_ = nullptr;
    mask_ = 0;
  }

  const int newest_;
  int version_ = 0, mask_ = 0, users_ = 0;
  bool failed_ = false;
  void* library_ = nullptr;
  prof::TableV4* v4_ = nullptr;
  prof::TableV5* v5_ = nullptr;
  std::mutex mutex_;
};

}  // namespace lockstep::fake
