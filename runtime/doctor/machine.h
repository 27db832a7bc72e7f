#pragma once
// Provides the facts for the checks of `lockstep doctor`. ThisMachine() reads the real machine; a test replaces the
// functions one by one, and so tests each fault separately.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/agent/inject/libraries.h"

namespace lockstep::doctor {

struct CommandOutput {
  bool started = false, timed_out = false;
  int code = -1;     // 128 + signal if it was killed.
  std::string text;  // Standard output and error.
};

// adjtimex(2).
struct ClockSync {
  bool synchronised = false;
  std::int64_t max_error_us = 0;
};

struct Space {
  std::uint64_t free_bytes = 0, total_bytes = 0;
  std::string kind;  // "tmpfs", "nfs", "lustre" ..; "" another.
};

struct Machine {
  std::string root;                  // Prepended to the paths of files in /proc, /sys and similar directories.
  std::string shm_dir = "/dev/shm";  // As the agent's.
  std::string scratch = ".";         // The directory where runs will be written.
  std::string program;               // The program that will be run; "" not known.
  int ranks_per_node = 1;            // Expected.
  double write_seconds = 0.5;        // The longest time for which the scratch directory is written to.
  std::function<Result<agent::Libraries>()> libraries;
  // Path of a shared library or of a program by name, "" if there is none.
  std::function<std::string(const std::string&name)> find_library, find_program;
  // The environment is this process's, without the variables that a launcher set.
  std::function<CommandOutput(const std::vector<std::string>& words, int timeout_s)> run;
  // Soft limit of getrlimit(2), RLIM_INFINITY as UINT64_MAX; empty: not known.
  std::function<std::optional<std::uint64_t>(int resource)> limit;
  std::function<std::optional<ClockSync>()> clock_sync;
  std::function<std::optional<Space>(const std::string& directory)> space;
  std::function<bool()> superuser;

  // A file below root; empty if it cannot be read.
  std::optional<std::string> Read(const std::string& path) const;
  std::string Below(const std::string& path) const { return root + path; }
};

Machine ThisMachine();

}  // namespace lockstep::doctor
