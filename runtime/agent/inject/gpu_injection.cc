#include "runtime/agent/inject/gpu_injection.h"

#include <pwd.h>
#include <strings.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <vector>

#include "core/env.h"
#include "core/own_file.h"
#include "runtime/agent/inject/injection.h"
#include "runtime/agent/rundir/list_entries.h"

namespace lockstep::agent {
namespace {

constexpr const char* kCuda = "CUDA_INJECTION64_PATH";
constexpr const char* kPlugin = "NCCL_PROFILER_PLUGIN";
constexpr const char* kStatic = "STATIC_PLUGIN";
constexpr const char* kDefaultPlugins[] = {"libnccl-profiler.so", "librccl-profiler.so"};  // RCCL's, too.

// nsys and ncu start the program through launchers that set CUDA's variable themselves, after this process.
std::string NvidiaToolIn(const std::string& preload) {
  for (const std::string& entry : ListEntries(preload, " :"))
    for (const char* tool : {"libToolsInjection", "libTreeLauncher", "libcuda-injection"})
      if (BaseName(entry).starts_with(tool)) return entry;
  return {};
}

void PlanCuda(const std::string& library, const std::string& preload, Injection& injection) {
  const std::string named = Environment(kCuda), tool = NvidiaToolIn(preload);
  if ((named.empty() || BaseName(named) == BaseName(library)) && tool.empty()) {
    injection.variables.emplace_back(kCuda, library);
    return;
  }
  injection.refused.push_back({"GPU activity (CUDA)",
                               tool.empty() ? std::string(kCuda) + " names another tool's library: " + named
                                            : "another tool is preloaded: " + tool,
                               "run without that tool (nsys, ncu) to record kernels; all else is recorded"});
}

// NCCL compares only as many letters as the value has, so any prefix of the name matches.
bool IsStatic(const std::string& value) { return ::strncasecmp(value.c_str(), kStatic, value.size()) == 0; }

void PlanNccl(const std::string& library, Injection& injection) {
  const PluginSetting setting = ReadPluginSetting();
  const std::string said = setting.where == kPlugin ? setting.where + "=" + setting.value
                                                    : setting.where + " has " + kPlugin + "=" + setting.value;
  if (::strcasecmp(setting.value.c_str(), "none") == 0) {
    injection.refused.push_back({"NCCL through its profiler interface", said + " switches that off",
                                 "unset it to record NCCL's own events; NCCL calls, NVTX ranges and kernels are "
                                 "recorded in any case"});
    return;
  }
  if (!setting.value.empty() && IsStatic(setting.value)) {
    // NCCL then takes the first such symbol in the process. That is the program's own, or the one of our preloaded
    // library, which calls the next one.
    injection.variables.emplace_back(env::kNcclPluginChained, setting.value);
    injection.notices.push_back(said +
                                " stays: NCCL finds Lockstep's preloaded plugin, which calls the next one; "
                                "if the program itself is one, NCCL's own events are not recorded");
    return;
  }
  std::string chained = setting.value;
  if (chained.empty()) {
    // The library that NCCL loads when no variable names another one.
    for (const char* plugin : kDefaultPlugins)
      if (chained.empty()) chained = LocateLibrary(plugin);
    if (!chained.empty()) injection.notices.push_back("NCCL's profiler plugin " + chained + " is called by Lockstep's");
  } else if (BaseName(chained) == BaseName(library)) {
    chained.clear();
  } else {
    injection.notices.push_back("NCCL's profiler plugin " + chained +
                                (setting.where == kPlugin ? "" : " (" + setting.where + ")") +
                                " is called by Lockstep's");
  }
  // NCCL cannot load a plugin whose path is too long, and no shorter link to it could be made.
  if (library.size() > kLongestPluginPath) {
    injection.refused.push_back({"NCCL through its profiler interface",
                                 "the path of liblockstep-gpu.so is longer than NCCL reads (" +
                                     std::to_string(kLongestPluginPath) +
                                     " characters), and no shorter one could be made",
                                 "install Lockstep under a shorter path"});
    return;
  }
  injection.variables.emplace_back(kPlugin, library);
  if (!chained.empty()) injection.variables.emplace_back(env::kNcclPluginChained, chained);
}

}  // namespace

// NCCL 2.28.9 and RCCL of ROCm 7, param.cc: lines as they are, no spaces taken off, cut at 1023 characters.
std::string NcclConfValue(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t equals = line.find('=');
    if (!line.empty() && line[0] != '#' && equals != std::string::npos && line.compare(0, equals, name) == 0)
      return line.substr(equals + 1, 1023);
  }
  return {};
}

PluginSetting ReadPluginSetting() {
  // A variable that is set but empty selects the default, and NCCL does not read the files then (it calls setenv
  // without overwriting).
  if (const char* value = std::getenv(kPlugin); value != nullptr) return {value, kPlugin};
  std::vector<std::string> files{Environment("NCCL_CONF_FILE")};
  if (files[0].empty()) {
    const passwd* user = ::getpwuid(::getuid());
    const std::string home = user != nullptr && user->pw_dir != nullptr ? user->pw_dir : "";
    files = {home + "/.nccl.conf", Environment("HOME") + "/.rccl.conf"};
  }
  files.insert(files.end(), {"/etc/nccl.conf", "/etc/rccl.conf"});
  for (const std::string& file : files)
    if (const std::string value = NcclConfValue(file, kPlugin); !value.empty()) return {value, file};
  return {};
}

void PlanGpuInjection(const std::string& library, const std::string& preload, Injection& injection) {
  PlanCuda(library, preload, injection);
  PlanNccl(library, injection);
}

}  // namespace lockstep::agent
