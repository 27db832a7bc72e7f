#pragma once
// Where a run's files go, agreed among its slots without talking to each other.
//
// Default: lockstep.out/YYYYMMDD-HHMMSS-xxxx, xxxx from the run id. The first slot
// to come makes it and the link lockstep.out/.id-<hash> -> it; symlink() is atomic
// and refuses to replace (over NFS too), so the others follow the winner's. With
// --output DIR, DIR itself: the first to link DIR/.run-id in place owns it.
//
// A slot claims its place by making ranks/.agent-NNNNN (claim.h). A claim that is there already is an earlier run with
// the same id (a script may call `lockstep run` twice in one slot): then .id-<hash>-2, DIR-2, and so on. All slots
// walk the same sequence, so they meet again.
//
// An id that a later job may have, too (LaunchEnv::run_id_weak), leads into a directory only if that is this launch's:
// what the first slot of each node left there (ranks/.launch-<node>) says the same launch key. Where there is no such
// word - no key, or the first slot of its node - the run must be of the same size and not over: a run whose slots
// have all ended takes in nobody but, in its first minute, a slot that the same process started or one of another node
// (a launcher starts all of them at once, and a rank may fail at once).
//
// Without a shared file system each node's slots agree on a directory of the node.

#include <cstdint>
#include <memory>
#include <string>

#include "comms/launch/launch_env.h"
#include "core/file_lock.h"
#include "core/result.h"

namespace lockstep::agent {

struct RunDir {
  std::string path;  // Relative to the working directory if it is below it, as the user would type it.
  std::string absolute;
  std::string latest;       // The link that will point here; "" with --output.
  std::string notice;       // One line saying why the run is not in the directory that was asked for; "" if it is.
  std::string claim;        // This slot's claim file.
  std::string launch_word;  // The file in which this node records the launch, if it does.
  std::shared_ptr<const OwnedFd> claim_held;

  std::string RankFile(std::int32_t slot, const char* suffix) const;  // absolute/ranks/rank-NNNNN<suffix>
};

// Where files of another host are, as an agent there told.
struct RunPlace {
  std::int32_t slot = -1;   // Of that agent.
  std::string host, dir;    // The run directory there, absolute.
  std::int32_t ranks = -1;  // That the launcher started on that host; -1 not known.
};

// If the wanted directory cannot be written, or is another user's inside a directory that everybody may write to, falls
// back to $TMPDIR or /tmp, to a directory that belongs to this user alone. kIo if no directory can be used. `output` is
// "" for the default.
Result<RunDir> ClaimRunDir(const launch::LaunchEnv& launch, const std::string& output);

// Points `latest` at the directory, if its manifest is there: rank 0 has none of a directory of another host's. Failure
// is harmless.
void PointLatest(const RunDir& dir);

// Records what became of the slot, which rank 0 waits for: the claim's first word becomes "done" or "failed".
void WriteClaim(const RunDir& dir, bool done);

// Removes this slot's empty files (the command could not be started).
void AbandonRunDir(const RunDir& dir);

}  // namespace lockstep::agent
