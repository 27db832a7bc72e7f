#pragma once
// The environment that brings liblockstep-gpu.so to CUDA and NCCL, and what other tools
// and the user have there already. Part of PlanInjection.
//
//   CUDA_INJECTION64_PATH  names it: libcuda loads it in cuInit. One library only; nsys and ncu use it too.
//   NCCL_PROFILER_PLUGIN   names it: NCCL loads it for its first communicator. A plugin that the user chose
//                          (variable, NCCL's or RCCL's configuration files, libnccl-profiler.so or
//                          librccl-profiler.so on the library path) is called by ours (env::kNcclPluginChained).

#include <cstddef>
#include <string>

namespace lockstep::agent {

struct Injection;

// NCCL copies the plugin's name into 255 bytes, end included, and cuts it silently (2.28.9 plugin_open.cc).
inline constexpr std::size_t kLongestPluginPath = 254;

// `library` is the path under which the application will load it; `preload` is the value of LD_PRELOAD without
// Lockstep's libraries.
void PlanGpuInjection(const std::string& library, const std::string& preload, Injection& injection);

// What NCCL_PROFILER_PLUGIN would be for NCCL in this process's environment: the variable, else the first
// of its configuration files that sets it ($NCCL_CONF_FILE or ~/.nccl.conf, then /etc/nccl.conf; RCCL's names begin
// with rccl).
struct PluginSetting {
  std::string value;  // "" if neither the variable nor a file sets it.
  std::string where;  // "NCCL_PROFILER_PLUGIN", or the file.
};
PluginSetting ReadPluginSetting();

// Value of a name in a file of NCCL's format (NAME=value lines, # comments); "" if it is not there.
std::string NcclConfValue(const std::string& path, const std::string& name);

}  // namespace lockstep::agent
