#pragma once
// Examines a spool found in a run directory: whose it is, and whether all processes that wrote to it have ended. Every
// command that finishes or removes spools asks here first, and keeps the lock that it gets until it is done.

#include <cstdint>
#include <string>

#include "core/file_lock.h"
#include "trace/spool/spool_facts.h"

namespace lockstep::agent {

struct LeftSpool {
  enum class State : std::uint8_t {
    kAbsent,
    kFree,        // Its agent and its application have ended, and no other process uses it. The caller owns it now.
    kRunning,     // The agent or the application still runs, or may; or another command is finishing the spool.
    kElsewhere,   // Part of it is in memory or on a disk that this machine or container cannot see.
    kForeign,     // It belongs to another user, or is a link to a file outside of this run. It must not be changed.
    kUnreadable,  // It contains no valid block.
  };
  State state = State::kAbsent;
  // The reason, as part of a sentence, for all states but kFree and kAbsent; with host and command where they are
  // known.
  std::string why;
  std::string path;  // The file itself, with the link of --spool-dir resolved.
  bool linked = false;
  bool of_this_run = true;  // Only then may the file behind a link be removed.
  OwnedFd lock;             // The exclusive lock, where the file system has locks.
  trace::SpoolFacts facts;
  trace::SpoolSegment segment;  // kFree: with the exclusive lock, if it was found.
};

struct SpoolPlace {
  std::string run_dir, link;  // RUN, RUN/ranks/rank-NNNNN.spool
  std::int32_t slot = -1;
};
// `without_memory`: records that only exist in shared memory which cannot be seen from here are given up.
LeftSpool TakeSpool(const SpoolPlace& place, bool without_memory);

// The reason why nothing in this run directory may be finished or removed: the directory or its ranks/ belongs to
// another user or is a link. "" if it may.
std::string NotOurRun(const std::string& run_dir);

}  // namespace lockstep::agent
