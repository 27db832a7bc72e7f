#pragma once
// A spool found in a run directory: whose it is, and whether everybody who wrote to it is dead. Everything that
// finishes or removes spools asks here first, and holds what it gets until it is done.

#include <cstdint>
#include <string>

#include "core/file_lock.h"
#include "trace/spool/spool_facts.h"

namespace lockstep::agent {

struct LeftSpool {
  enum class State : std::uint8_t {
    kAbsent,
    kFree,        // Its agent and its application have ended, and nobody else is at it: it is the caller's.
    kRunning,     // Agent or application still run, or may; or another command is finishing it.
    kElsewhere,   // Part of it lies where this machine or container cannot see it.
    kForeign,     // Not this user's, or a link to something that is not this run's: not to be touched.
    kUnreadable,  // There is no good block in it.
  };
  State state = State::kAbsent;
  std::string why;   // Of all but kFree and kAbsent: a sentence's part, with host and command where there is one.
  std::string path;  // The file itself, behind --spool-dir's link.
  bool linked = false;
  bool of_this_run = true;  // Only then the file behind a link may go.
  OwnedFd lock;             // Exclusive, where there are locks.
  trace::SpoolFacts facts;
  trace::SpoolSegment segment;  // kFree: with the exclusive lock, if it was found.
};

struct SpoolPlace {
  std::string run_dir, link;  // RUN, RUN/ranks/rank-NNNNN.spool
  std::int32_t slot = -1;
};
// `without_memory`: what cannot be seen from here is given up.
LeftSpool TakeSpool(const SpoolPlace& place, bool without_memory);

// Why nothing in this run directory may be finished or removed: it, or its ranks/, is not this user's, or is a link.
// "" if it may.
std::string NotOurRun(const std::string& run_dir);

}  // namespace lockstep::agent
