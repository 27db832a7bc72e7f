#pragma once
// Finishes the work of agents that were killed: makes rank files from the spools of a run, and from the rings left in
// shared memory, as the agents would have made them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::agent {

enum class SlotRecovery : std::uint8_t {
  kComplete,    // The agent itself wrote the rank file; there is nothing to do.
  kRecovered,   // The rank file was made by this call.
  kBefore,      // The rank file was made from a spool by an earlier recovery.
  kRunning,     // The agent or the application still runs, or may.
  kElsewhere,   // Part of the records is on another machine, or in the memory of another container.
  kForeign,     // It belongs to another user, or is behind a link that is not ours. It was only read.
  kUnreadable,  // Neither the spool nor the rank file contains valid data.
  kUnwritten,   // The rank file could not be written; the spool was not changed.
};

struct RecoveredSlot {
  std::int32_t slot = -1;  // The number in rank-NNNNN; -1 if the file is named otherwise.
  SlotRecovery state = SlotRecovery::kComplete;
  std::vector<std::string> files;  // Rank files, the main one first.
  std::uint64_t records = 0;       // Events in them.
  std::uint64_t from_rings = 0;    // How many of these were in shared memory only; set for kRecovered.
  std::uint64_t bad_blocks = 0;    // Of the spool, skipped.
  bool end_known = true;           // The agent recorded how the application ended.
  bool spool_kept = false;         // The spool stays beside its rank file, because part of it cannot be read.
  std::string why;                 // What could not be done and why, in words.
  std::string exit;                // "signal 9", "exit code 3"; "" if it ended well or the end is not known.
  struct Lost {
    std::string name, detail;
    std::uint64_t count;
  };
  std::vector<Lost> lost;  // What the file says is not in it: data losses only.
};

struct Recovery {
  std::vector<RecoveredSlot> slots;  // By slot.
  std::vector<std::string> removed;  // Spools, segments and unfinished files that are no longer needed.
};

// Everything that is left in RUN/ranks: writes rank files, then removes spools and segments. The files' root attribute
// `recovered` is 1: what ended badly stays known. A spool with damaged blocks is kept beside its file. May be
// repeated and interrupted at any time: a rank file appears whole and on the disk, the main one last, and nothing is
// removed before. What an agent, an application or another recovery holds (left_spool.h) is not touched.
// `without_memory`: what lies where this machine cannot see it is given up, if its agent is known to have ended.
Recovery RecoverRun(const std::string& run_dir, bool without_memory = false);

// The same, but looks at slots without a rank file only: for commands that are about to read the run. Returns the
// number of slots finished; trouble is no error: the spool stays, and everything reads spools as well.
std::size_t FinishLeftSpools(const std::string& run_dir);

}  // namespace lockstep::agent
