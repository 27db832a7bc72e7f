#pragma once
// Finishes what agents could not: spools (and the rings they left in shared
// memory) of a run become rank files, as the agent would have made them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::agent {

enum class SlotRecovery : std::uint8_t {
  kComplete,    // The agent's own rank file; nothing to do.
  kRecovered,   // Its rank file was made now.
  kBefore,      // Its rank file was made from a spool earlier.
  kRunning,     // Agent or application still run, or may.
  kElsewhere,   // Part of it lies on another machine, or in another container's memory.
  kForeign,     // Another user's, or behind a link that is not ours: only read.
  kUnreadable,  // Neither spool nor rank file says anything.
  kUnwritten,   // The rank file could not be written; the spool is as it was.
};

struct RecoveredSlot {
  std::int32_t slot = -1;  // As in rank-NNNNN; -1: the file is named otherwise.
  SlotRecovery state = SlotRecovery::kComplete;
  std::vector<std::string> files;  // Rank files, the main one first.
  std::uint64_t records = 0;       // Events in them.
  std::uint64_t from_rings = 0;    // Records of these that were in shared memory only; of kRecovered.
  std::uint64_t bad_blocks = 0;    // Of the spool, skipped.
  bool end_known = true;           // The agent saw how the application ended.
  bool spool_kept = false;         // Beside its rank file, because part of it cannot be read.
  std::string why;                 // Of what could not be done; in words.
  std::string exit;                // "signal 9", "exit code 3"; "" good or not known.
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
