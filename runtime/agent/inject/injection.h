#pragma once
// Which environment variables the application gets so that the probe and its sources
// load into it, and what other tools already hold a place that a source needs. The one
// place that says so.

#include <string>
#include <utility>
#include <vector>

#include "runtime/agent/inject/libraries.h"

namespace lockstep::agent {

// A source that is not installed because another tool already uses the hook that it needs, or nothing would reach it.
// One sentence each.
struct RefusedSource {
  std::string source, why, remedy;
};

struct Injection {
  std::vector<std::pair<std::string, std::string>> variables;  // Name, value.
  std::vector<RefusedSource> refused;
  std::vector<std::string> notices;  // Worth telling the user, although nothing is lost.
  // A symbolic link that the values lead through; "" if there is none. Call RemoveLink when the run is over.
  std::string link;

  void RemoveLink() const;
};

// For the application of the agent whose segment this is, as this process's environment
// stands. What others set is never overwritten, only added to:
//   LD_PRELOAD            appended (PreloadValue)
//   NVTX_INJECTION64_PATH set, unless another tool is named there
//   PYTHONPATH            prepended with the directory of sitecustomize.py and module lockstep
//   ASAN_OPTIONS          appended: verify_asan_link_order=0
//   CUDA_INJECTION64_PATH and NCCL_PROFILER_PLUGIN: see gpu_injection.h
// Libraries::gpu empty: without the GPU sources.
// An error: there is no way to name the libraries to ld.so.
// `program`: as it will be started; "" not known.
Result<Injection> PlanInjection(const Libraries& libraries, const std::string& segment_path,
                                const std::string& program);

// Why the loader of the program at this path cannot load Lockstep's libraries, "" if it can, or would ignore LD_PRELOAD
// altogether (a static program). musl's ends the program (1.2.3: exit code 127), glibc's complains to stderr of another
// ELF class.
std::string OtherLoader(const std::string& path);

// Why LD_PRELOAD does nothing for the program at this path (set-user-id, capabilities, static), "" if it does.
std::string NoPreload(const std::string& path, bool superuser);

// Why calls of MPI in the program at this path reach nobody else, "" if they do. Wrappers of another tool, wherever
// they are, have each call first and pass it on to ours (comms/pmpi/choose.cc), if ld.so leads it there.
std::string UnseenMpi(const std::string& program);
inline constexpr const char *kMpiSource = "MPI",
                            *kMpiRemedy = "link it with the MPI library as a shared one, and show its symbols";

// Process id of an agent that records this process already, for the same rank: of a
// `lockstep run` around this one. 0 if there is none.
long EnclosingAgent(int rank);

// Where ld.so would find a library by this name; "" if not in the usual directories (LD_LIBRARY_PATH, the
// system's directories). Names with a slash are returned as they are.
std::string LocateLibrary(const std::string& name);

// A variable of this process, "" if it is not set.
std::string Environment(const char* name);

}  // namespace lockstep::agent
