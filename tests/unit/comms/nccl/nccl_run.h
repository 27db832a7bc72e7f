#pragma once
// Running programs on the fake libnccl, with the sources of one's choice.

#include "tests/unit/comms/nccl/nccl_records.h"

namespace lockstep::nccl {

inline constexpr char kCalls[] = LOCKSTEP_BUILD_DIR "/tests/nccl_calls";
inline constexpr char kRcclCalls[] = LOCKSTEP_BUILD_DIR "/tests/rccl_calls";
inline constexpr char kFind[] = LOCKSTEP_BUILD_DIR "/tests/nccl_find";
inline constexpr char kFakeDir[] = LOCKSTEP_BUILD_DIR "/tests/fake_nccl";

struct Output {
  std::string out, errors;
  int status = 0;
};

inline Output Finish(probe::ProbeChild& child) {
  Output output;
  for (std::string line; !(line = child.Line()).empty();) output.out += line + "\n";
  output.errors = child.Errors();
  output.status = child.Wait();
  return output;
}

enum Sources { kBare = 0, kPlugin = 1, kInterposed = 2, kBoth = 3, kNeither = 4 };

inline Output Traced(probe::TestSegment& segment, const char* program, std::vector<std::string> arguments,
                     int sources = kBoth, std::vector<std::string> env = {}) {
  std::string preload = "LD_PRELOAD=";
  if (sources != kBare) preload += probe::kProbe;
  if ((sources & kInterposed) != 0) preload += std::string(" ") + kGpuLibrary;
  env.push_back(preload);
  if (sources == kBare) env.emplace_back("LOCKSTEP_SEGMENT=");
  if ((sources & kPlugin) != 0) env.push_back(std::string("NCCL_PROFILER_PLUGIN=") + kGpuLibrary);
  if ((sources & kPlugin) == 0) env.emplace_back("NCCL_PROFILER_PLUGIN=none");
  probe::ProbeChild child(segment.path(), std::move(arguments), env, program);
  return Finish(child);
}

}  // namespace lockstep::nccl
