#include "runtime/agent/inject/libraries.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/env.h"
#include "runtime/agent/rundir/list_entries.h"

extern char** environ;

namespace lockstep::agent {
namespace {

constexpr const char* kProbe = "/liblockstep.so";
constexpr const char* kMpi = "/liblockstep-mpi.so";
constexpr const char* kGpu = "/liblockstep-gpu.so";
constexpr const char* kCudart = "/liblockstep-cudart.so";
constexpr const char* kClock = "/lockstep-clock";
constexpr const char* kStacks = "/lockstep-stacks";

// The names in comms/pmpi/choose.cc.
constexpr std::pair<LinkedMpi, const char*> kAbis[] = {
    {LinkedMpi::kOpenMpi4, "ompi40"}, {LinkedMpi::kMpich, "mpich12"}, {LinkedMpi::kStandard, "abi1"}};

bool Readable(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }
bool Executable(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

}  // namespace

std::string SelfPath() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? std::string(path, static_cast<std::size_t>(n)) : std::string();
}

bool Libraries::Wraps(LinkedMpi mpi) const {
  for (const auto& [kind, abi] : kAbis)
    if (kind == mpi) return std::find(mpi_abis.begin(), mpi_abis.end(), abi) != mpi_abis.end();
  return false;
}

Result<Libraries> FindLibraries() {
  const std::string self = SelfPath(), bin = self.substr(0, self.rfind('/'));
  std::vector<std::string> places;
  if (const char* given = std::getenv(env::kLibraryDir); given != nullptr && *given != '\0') {
    char real[PATH_MAX];
    places.emplace_back(::realpath(given, real) != nullptr ? real : given);
  } else {
    const std::string prefix = bin.substr(0, bin.rfind('/'));
    places = {bin, prefix + "/lib/lockstep", prefix + "/lib64/lockstep"};
#if defined(__x86_64__)
    places.push_back(prefix + "/lib/x86_64-linux-gnu/lockstep");  // Debian's CMAKE_INSTALL_LIBDIR.
#elif defined(__aarch64__)
    places.push_back(prefix + "/lib/aarch64-linux-gnu/lockstep");
#endif
  }
  std::string tried;
  for (const std::string& place : places) {
    tried += (tried.empty() ? "" : ", ") + place;
    if (!Readable(place + kProbe)) continue;
    Libraries libraries;
    libraries.probe = place + kProbe;
    if (Readable(place + kMpi)) libraries.mpi = place + kMpi;
    for (const auto& [kind, abi] : kAbis)
      if (!libraries.mpi.empty() && Readable(place + "/liblockstep-mpi-" + abi + ".so"))
        libraries.mpi_abis.emplace_back(abi);
    if (Readable(place + kGpu)) libraries.gpu = place + kGpu;
    if (Readable(place + kCudart)) libraries.cudart = place + kCudart;
    const auto beside = [&](const char* program) {
      for (const std::string& path : {bin + program, place + program})
        if (Executable(path)) return path;
      return std::string();
    };
    libraries.clock_program = beside(kClock);
    libraries.stacks_program = beside(kStacks);
    return libraries;
  }
  return Error{ErrorCode::kNotFound, "liblockstep.so was not found", tried,
               "set LOCKSTEP_LIBRARY_DIR to the directory that holds it"};
}

std::string PreloadValue(const std::string& existing, const Libraries& libraries) {
  std::string value;
  const auto add = [&](const std::string& library) {
    if (!library.empty()) value += (value.empty() ? "" : ":") + library;
  };
  bool added = false;
  const auto add_ours = [&] {
    if (!std::exchange(added, true))
      for (const std::string& library : {libraries.probe, libraries.mpi, libraries.gpu}) add(library);
  };
  for (const std::string& entry : ListEntries(existing, " :")) {
    const std::string base = entry.find('/') == std::string::npos ? "/" + entry : entry.substr(entry.rfind('/'));
    if (base == kProbe || base == kMpi || base == kGpu) continue;
    for (const char* wrapped : {"/libmpi.so", "/libnccl.so", "/libcupti.so"})
      if (base.starts_with(wrapped)) add_ours();
    add(entry);
  }
  add_ours();
  return value;
}

std::vector<std::string> EnvironmentWith(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> words;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    bool replaced = false;
    for (const auto& [name, value] : changes)
      replaced = replaced || (std::strncmp(*at, name.c_str(), name.size()) == 0 && (*at)[name.size()] == '=');
    if (!replaced) words.emplace_back(*at);
  }
  for (const auto& [name, value] : changes) words.push_back(name + "=" + value);
  return words;
}

}  // namespace lockstep::agent
