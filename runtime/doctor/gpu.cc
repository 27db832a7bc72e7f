// Checks NVIDIA's driver, CUPTI and NCCL (or RCCL), and other tools that use the same hooks.

#include <fmt/format.h>
#include <glob.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/env.h"
#include "runtime/agent/inject/gpu_injection.h"
#include "runtime/agent/inject/injection.h"
#include "runtime/agent/rundir/list_entries.h"
#include "runtime/doctor/check.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat ..." or "... Open Kernel Module for x86_64
// 560.35.03".
std::string DriverVersion(const std::string& text) {
  for (const std::string& word : agent::ListEntries(text, " \n\t")) {
    int major = 0, minor = 0;
    if (std::sscanf(word.c_str(), "%d.%d", &major, &minor) == 2 && major >= 100) return word;
  }
  return {};
}

// The CUDA version that belongs to a driver of this number (CUDA Toolkit release notes, table of drivers); 0 unknown.
// Within one major version newer toolkits run on older drivers (minor version compatibility).
int CudaMajorOf(int driver) {
  if (driver >= 580) return 13;
  if (driver >= 525) return 12;
  if (driver >= 450) return 11;
  return driver >= 100 ? 10 : 0;
}

struct Driver {
  bool here = false;
  std::string version;
  int major = 0;
};
Driver FindDriver(const Machine& machine) {
  Driver driver;
  const auto text = machine.Read("/proc/driver/nvidia/version");
  driver.here = text.has_value() || !machine.find_library("libcuda.so.1").empty();
  if (text) driver.version = DriverVersion(*text);
  driver.major = std::atoi(driver.version.c_str());
  return driver;
}

// Searches as runtime/cupti does, except for libraries that the program itself has loaded.
std::string FindCupti(const Machine& machine) {
  if (std::string given = agent::Environment(env::kCupti); !given.empty()) return given;
  for (const char* name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so.11.7",
                           "libcupti.so.11.6", "libcupti.so.11.5", "libcupti.so.11.4", "libcupti.so.11.3",
                           "libcupti.so.11.2", "libcupti.so.11.1", "libcupti.so.11.0"})
    if (std::string path = machine.find_library(name); !path.empty()) return path;
  std::string found;
  for (const char* pattern :
       {"/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so.1*", "/usr/local/cuda*/lib64/libcupti.so.1*",
        "/usr/local/cuda*/targets/*/lib/libcupti.so.1*"}) {
    glob_t matches{};
    if (::glob(machine.Below(pattern).c_str(), 0, nullptr, &matches) == 0 && matches.gl_pathc > 0)
      found = matches.gl_pathv[matches.gl_pathc - 1];
    ::globfree(&matches);
    if (!found.empty()) break;
  }
  return found;
}

int MajorOf(const std::string& path, const char* before) {
  const std::size_t at = path.rfind(before);
  return at == std::string::npos ? 0 : std::atoi(path.c_str() + at + std::char_traits<char>::length(before));
}

Finding GpuRefused(const Machine& machine, std::string_view source, std::string good) {
  const auto libraries = machine.libraries();
  if (!libraries.ok() || libraries.value().gpu.empty())
    return {Status::kNotHere, "this Lockstep has no GPU library", ""};
  agent::Injection injection;
  agent::PlanGpuInjection(libraries.value().gpu, agent::Environment("LD_PRELOAD"), injection);
  for (const agent::RefusedSource& refused : injection.refused)
    if (refused.source.starts_with(source))
      return {Status::kWarning, refused.source + ": " + refused.why, refused.remedy};
  for (const std::string& notice : injection.notices)
    if (source == "NCCL") return {Status::kOk, notice, ""};
  return {Status::kOk, std::move(good), ""};
}

}  // namespace

Finding LookAtDriver(const Machine& machine) {
  const Driver driver = FindDriver(machine);
  std::error_code ignored;
  if (!driver.here && fs::exists(machine.Below("/dev/kfd"), ignored))
    return {Status::kWarning, "AMD GPUs: RCCL's operations are recorded, kernels and copies are not",
            "to see kernels, record with torch.profiler and read its traces with lockstep import"};
  if (!driver.here) return {Status::kNotHere, "no NVIDIA driver: GPU work cannot be, and need not be, recorded", ""};
  if (driver.version.empty())
    return {Status::kWarning, "libcuda.so.1 is here, but no driver runs (/proc/driver/nvidia)",
            "start the container with its GPUs (--gpus all), or load the driver"};
  if (driver.major < 450)
    return {Status::kBlocker,
            fmt::format("driver {} is older than CUDA 11, the first whose events are recorded", driver.version),
            "install driver 450 or newer"};
  return {Status::kOk, fmt::format("driver {}, CUDA {}", driver.version, CudaMajorOf(driver.major)), ""};
}

Finding LookAtCupti(const Machine& machine) {
  const Driver driver = FindDriver(machine);
  if (!driver.here) return {Status::kNotHere, "no NVIDIA driver", ""};
  const auto libraries = machine.libraries();
  if (libraries.ok() && libraries.value().gpu.empty())
    return {Status::kBlocker, "this Lockstep has no liblockstep-gpu.so: kernels are not recorded",
            "build it again: it needs no CUDA"};
  const std::string path = FindCupti(machine);
  if (path.empty())
    return {
        Status::kWarning,
        "no libcupti was found in the usual directories: kernels are recorded only of programs that bring their own "
        "(PyTorch's wheels do)",
        "install cuda-cupti, or name it: LOCKSTEP_CUPTI=/path/libcupti.so.12"};
  std::error_code ignored;
  const fs::path real = fs::canonical(path, ignored);
  const int major = MajorOf(path, "libcupti.so."), cuda = CudaMajorOf(driver.major);
  if (major > cuda && cuda > 0 && driver.major > 0)
    return {Status::kBlocker,
            fmt::format("{} is CUDA {}'s, driver {} knows CUDA {} at most", path, major, driver.version, cuda),
            "update the driver, or name an older one: LOCKSTEP_CUPTI=/path/libcupti.so"};
  return {Status::kOk, ignored ? path : real.string(), ""};
}

Finding LookAtCuptiSlot(const Machine& machine) {
  return GpuRefused(machine, "GPU activity", "no other tool (nsys, ncu) uses the CUDA injection");
}

Finding LookAtNccl(const Machine& machine) {
  const std::string path = machine.find_library("libnccl.so.2");
  if (path.empty()) {
    if (std::string rccl = machine.find_library("librccl.so.1"); !rccl.empty())
      return {Status::kOk, std::move(rccl), ""};
    if (!FindDriver(machine).here) return {Status::kNotHere, "no NVIDIA driver", ""};
    return {Status::kNotHere, "no libnccl.so.2 in the usual directories; one that a program brings is recorded as well",
            ""};
  }
  std::error_code ignored;
  const fs::path real = fs::canonical(path, ignored);
  const std::string name = ignored ? path : real.string();
  int major = 0, minor = 0;
  const std::size_t at = name.rfind("libnccl.so.");
  // The profiler interface came with NCCL 2.23; the first version that the plugin speaks, 4, with 2.27.
  if (at != std::string::npos && std::sscanf(name.c_str() + at, "libnccl.so.%d.%d", &major, &minor) == 2 &&
      (major < 2 || (major == 2 && minor < 27)))
    return {
        Status::kWarning,
        fmt::format(
            "{} has no profiler interface of 2.27: calls and kernels are recorded, what NCCL does inside is not", name),
        "NCCL 2.27 or newer"};
  return {Status::kOk, name, ""};
}

Finding LookAtNcclPlugin(const Machine& machine) {
  return GpuRefused(machine, "NCCL", "no other plugin is set as NCCL's profiler");
}

}  // namespace lockstep::doctor
