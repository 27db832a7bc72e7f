// Finding libcupti.
//
// Its symbols are versioned per CUDA major, so everything goes through dlsym. PyTorch brings a
// copy of its own, and binds to the versions of just that one (a toolkit's of another minor
// version makes `import torch` fail: pytorch#157381), so while libtorch is in the process none is
// loaded that is not there yet but the one that lies beside it. Python's other packages find theirs
// in their interpreter's packages, too (nvidia-cuda-cupti): where one of those is in the process,
// theirs comes before a toolkit's, so that a later import brings no second copy.

#include "runtime/cupti/api.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

#include "core/env.h"

namespace lockstep::cupti {
namespace {

// Newest first. CUDA 11's libraries carry their minor version: 11.0 to 11.8.
constexpr const char* kNames[] = {"libcupti.so.13",   "libcupti.so.12",   "libcupti.so.11.8", "libcupti.so.11.7",
                                  "libcupti.so.11.6", "libcupti.so.11.5", "libcupti.so.11.4", "libcupti.so.11.3",
                                  "libcupti.so.11.2", "libcupti.so.11.1", "libcupti.so.11.0"};

struct Loaded {
  char cupti[512];
  bool torch, torch_in_packages;
  char packages[4][400];  // Directories of Python packages from which something was loaded, PyTorch's first; "" none.
};

// Notes the first `bytes` of `path`.
void NotePackages(Loaded& loaded, const char* path, std::size_t bytes, bool torch) {
  char packages[sizeof *loaded.packages] = {};
  if (bytes >= sizeof packages) return;
  memcpy(packages, path, bytes);
  if (torch && !loaded.torch_in_packages) {
    loaded.torch_in_packages = true;
    memmove(loaded.packages[1], loaded.packages[0], sizeof loaded.packages - sizeof packages);
    memcpy(loaded.packages[0], packages, sizeof packages);
    return;
  }
  for (char(&place)[400] : loaded.packages) {
    if (strcmp(place, packages) == 0) return;
    if (place[0] != 0) continue;
    memcpy(place, packages, sizeof packages);
    return;
  }
}

// By file name, because pip's copies are loaded by path and a name alone does not find them.
int Look(dl_phdr_info* library, std::size_t, void* data) {
  auto& loaded = *static_cast<Loaded*>(data);
  const char* slash = strrchr(library->dlpi_name, '/');
  const char* name = slash != nullptr ? slash + 1 : library->dlpi_name;
  if (strncmp(name, "libcupti.so", 11) == 0 && loaded.cupti[0] == 0)
    snprintf(loaded.cupti, sizeof loaded.cupti, "%s", library->dlpi_name);
  const bool torch = strncmp(name, "libtorch_c", 10) == 0;  // libtorch_cuda.so, libtorch_cpu.so
  loaded.torch = loaded.torch || torch;
  for (const char* packages : {"/site-packages/", "/dist-packages/"})
    if (const char* at = strstr(library->dlpi_name, packages); at != nullptr)
      NotePackages(loaded, library->dlpi_name, static_cast<std::size_t>(at - library->dlpi_name) + strlen(packages) - 1,
                   torch);
  return 0;
}

// The driver's CUDA major version, 0 unknown.
int DriverMajor() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return 0;
  auto* get = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
  int version = 0;
  const bool known = get != nullptr && get(&version) == 0;
  dlclose(driver);
  return known ? version / 1000 : 0;
}

// Of the files that match the patterns below `root`, loads the newest whose major version is not later than the
// driver's, because a newer CUPTI refuses to work.
void* NewestOf(const char* root, std::initializer_list<const char*> patterns, char* path, std::size_t path_bytes) {
  const int driver = DriverMajor();
  char pattern[1024];
  std::size_t bytes = 0;
  for (const char* at = root; *at != 0 && bytes + 2 < sizeof pattern / 2; ++at) {
    if (strchr("*?[\\", *at) != nullptr) pattern[bytes++] = '\\';
    pattern[bytes++] = *at;
  }
  glob_t found{};
  bool any = false;
  for (const char* below : patterns) {
    snprintf(pattern + bytes, sizeof pattern - bytes, "%s", below);
    glob(pattern, any ? GLOB_APPEND : 0, nullptr, &found);
    any = true;
  }
  void* library = nullptr;
  for (int wanted = driver != 0 ? driver : 99; wanted >= 11 && library == nullptr; --wanted) {
    for (std::size_t i = 0; i < found.gl_pathc && library == nullptr; ++i) {
      const char* file = found.gl_pathv[i];
      const int major = atoi(strrchr(file, '/') + sizeof "/libcupti.so." - 1);
      // Files with a build number in their name (libcupti.so.2025.3.1) are the targets of the other names.
      if (major != wanted) continue;
      library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) snprintf(path, path_bytes, "%s", file);
    }
  }
  globfree(&found);
  return library;
}

void* OfToolkit(char* path, std::size_t path_bytes) {
  return NewestOf("/usr/local",
                  {"/cuda*/extras/CUPTI/lib64/libcupti.so.*", "/cuda*/lib64/libcupti.so.*", "/cuda*/lib/libcupti.so.*",
                   "/cuda*/targets/*/lib/libcupti.so.*"},
                  path, path_bytes);
}

// nvidia-cuda-cupti of CUDA 13 lies in cu13/lib, of 11 and 12 (nvidia-cuda-cupti-cu12) in cuda_cupti/lib.
void* OfPackages(const Loaded& loaded, char* path, std::size_t path_bytes) {
  if (loaded.torch && !loaded.torch_in_packages) return nullptr;
  for (const char* packages : loaded.packages) {
    if (packages[0] == 0) return nullptr;
    if (void* library = NewestOf(packages, {"/nvidia/cu*/lib/libcupti.so.*"}, path, path_bytes); library != nullptr)
      return library;
    if (loaded.torch) return nullptr;  // Only the libraries beside PyTorch's own, which were tried first, may be used.
  }
  return nullptr;
}

void* Open(Api& api, char* why, std::size_t why_bytes) {
  if (void* library = LoadedCupti(api.path, sizeof api.path); library != nullptr) return library;
  Loaded loaded{};
  dl_iterate_phdr(Look, &loaded);
  const char* wanted = getenv(env::kCupti);
  if (wanted != nullptr && *wanted != 0) {
    void* library = dlopen(wanted, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) snprintf(why, why_bytes, "LOCKSTEP_CUPTI=%s cannot be loaded", wanted);
    snprintf(api.path, sizeof api.path, "%s", wanted);
    return library;
  }
  if (void* library = OfPackages(loaded, api.path, sizeof api.path); library != nullptr) return library;
  if (loaded.torch) {
    snprintf(why, why_bytes, "PyTorch is loaded without its libcupti, and another copy would break it");
    return nullptr;
  }
  const int driver = DriverMajor();
  for (const char* name : kNames) {
    if (driver != 0 && atoi(name + sizeof "libcupti.so." - 1) > driver) continue;
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      snprintf(api.path, sizeof api.path, "%s", name);
      return library;
    }
  }
  void* library = OfToolkit(api.path, sizeof api.path);
  if (library == nullptr)
    snprintf(why, why_bytes, "no libcupti found; install CUDA's CUPTI or set LOCKSTEP_CUPTI to its path");
  return library;
}

template <typename Function>
void Take(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

void* LoadedCupti(char* path, std::size_t path_bytes) {
  Loaded loaded{};
  dl_iterate_phdr(Look, &loaded);
  if (loaded.cupti[0] == 0) return nullptr;
  snprintf(path, path_bytes, "%s", loaded.cupti);
  return dlopen(loaded.cupti, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

bool TorchIsLoaded() {
  Loaded loaded{};
  dl_iterate_phdr(Look, &loaded);
  return loaded.torch;
}

const char* FindCupti(Api& api, char* why, std::size_t why_bytes) {
  api = {};
  void* library = Open(api, why, why_bytes);
  if (library == nullptr) return why;
  Take(library, "cuptiGetVersion", api.get_version);
  Take(library, "cuptiActivityRegisterCallbacks", api.register_callbacks);
  Take(library, "cuptiActivityRegisterTimestampCallback", api.register_timestamp);
  Take(library, "cuptiActivityEnable", api.enable);
  Take(library, "cuptiActivityDisable", api.disable);
  Take(library, "cuptiActivityFlushAll", api.flush_all);
  Take(library, "cuptiActivityGetNextRecord", api.get_next_record);
  Take(library, "cuptiActivityGetNumDroppedRecords", api.get_dropped);
  Take(library, "cuptiActivitySetAttribute", api.set_attribute);
  Take(library, "cuptiActivityGetAttribute", api.get_attribute);
  Take(library, "cuptiSetThreadIdType", api.set_thread_id_type);
  Take(library, "cuptiGetCallbackName", api.get_callback_name);
  Take(library, "cuptiGetResultString", api.get_result_string);
  Take(library, "cuptiActivityEnableRuntimeApi", api.enable_runtime_api);
  Take(library, "cuptiActivityEnableDriverApi", api.enable_driver_api);
  Take(library, "cuptiActivityEnableCudaEventDeviceTimestamps", api.enable_event_timestamps);
  Take(library, "cuptiActivityEnableAllSyncRecords", api.enable_all_sync_records);
  Take(library, "cuptiActivityEnableDeviceGraph", api.enable_device_graph);
  Take(library, "cuptiFinalize", api.finalize);
  if (api.get_version == nullptr || api.get_version(&api.version) != kSuccess || api.version == 0) {
    snprintf(why, why_bytes, "the version of %s is unknown", api.path);
    return why;
  }
  if (api.register_callbacks == nullptr || api.enable == nullptr || api.disable == nullptr ||
      api.flush_all == nullptr || api.get_next_record == nullptr) {
    snprintf(why, why_bytes, "%s lacks the activity interface", api.path);
    return why;
  }
  return nullptr;
}

namespace {

// The lengths in the headers of each version, for libraries that do not check the end (or return nothing for kinds that
// are not read). For a version between two known ones, the shorter length.
std::uint32_t DocumentedBytes(std::uint32_t kind, std::uint32_t version) {
  const auto since = [&](std::uint32_t first, std::uint32_t then, std::uint32_t before) {
    return version >= first ? then : before;
  };
  switch (kind) {
    case kKindConcurrentKernel:
    case kKindSerialKernel:
      return since(130000, 216, since(19, 208, since(18, 200, since(17, 176, since(14, 168, since(13, 160, 144))))));
    case kKindMemcpy:
      return since(18, 88, since(14, 80, since(13, 72, 64)));
    case kKindMemcpyPeer:
      return since(18, 96, since(14, 88, since(13, 80, 72)));
    case kKindMemset:
      return since(18, 88, since(14, 80, since(13, 72, 64)));
    case kKindSynchronization:
      return since(26, 56, 40);
    case kKindCudaEvent:
      return since(26, 56, 24);
    case kKindRuntime:
    case kKindDriver:
      return kApiBytes;
    case kKindOverhead:
      return kOverheadBytes;
    case kKindDevice:
      return kDeviceBytes;
    case kKindContext:
      return kContextBytes;
    case kKindGraphTrace:
      return kGraphBytes;
    case kKindDeviceGraphTrace:
      return kDeviceGraphBytes;
    case kKindMemory2:
      return kMemoryBytes;
    default:
      return 8;
  }
}

}  // namespace

void MeasureRecords(const Api& api, RecordSizes& sizes) {
  constexpr std::uint32_t kMost = 1024;
  alignas(8) static std::uint8_t memory[kMost];
  for (std::uint32_t kind = 1; kind < kKindLimit; ++kind) {
    memset(memory, 0, sizeof memory);
    memcpy(memory, &kind, sizeof kind);
    const auto fits = [&](std::uint32_t bytes) {
      AnyRecord* record = nullptr;
      return api.get_next_record(memory, bytes, &record) == kSuccess && record != nullptr;
    };
    sizes.bytes[kind] = 0;
    if (!fits(kMost)) continue;
    std::uint32_t low = 0, high = kMost;  // fits(high), not fits(low)
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (fits(middle) ? high : low) = middle;
    }
    sizes.bytes[kind] = high >= 16 ? high : DocumentedBytes(kind, api.version);
  }
}

}  // namespace lockstep::cupti
