#pragma once
// Describes a run: manifest.json in the run directory, and the meta block of a rank's
// spool.

#include <cstdint>
#include <string>

#include "core/event_clock.h"
#include "runtime/agent/rundir/run_dir.h"
#include "runtime/agent/slot/agent.h"

namespace lockstep::agent {

// Quotes words so that a POSIX shell reads the same words back.
std::string ShellQuote(const std::vector<std::string>& words);

// Writes RUN/manifest.json ("lockstep.manifest/1") of a run that began `age_ns` ago, whole or not at all. Returns false
// if there is no space or no permission.
bool WriteManifest(const RunDir& dir, const RunOptions& options, const launch::LaunchEnv& launch,
                   std::int64_t age_ns = 0);

struct RankFacts {
  EventClock clock;
  std::string test_clock;  // LOCKSTEP_TEST_CLOCK, "".
  std::uint64_t clock_domain = 0, ring_bytes = 0;
  std::int64_t app_pid = -1;
  std::string segment_path, run_dir;
  std::uint64_t segment_device = 0, nonce = 0;
  bool locked = false;  // Whether the spool is locked: if so, a lock that is released proves that the agent has ended.
  std::string recording = "all";  // The windows that are recorded, in words.
};
// "key\tvalue\n" lines of the start; see docs/trace-format.md for the keys.
std::string StartMeta(const RunOptions& options, const launch::LaunchEnv& launch, const RankFacts& facts);

}  // namespace lockstep::agent
