#pragma once
// Where a run's files go, agreed among its slots without talking to each other.
//
// Default: lockstep.out/YYYYMMDD-HHMMSS-xxxx, xxxx from the run id. The first slot
// to come makes it and the link lockstep.out/.id-<hash> -> it; symlink() is atomic
// and refuses to replace (over NFS too), so the others follow the winner's. With
// --output DIR, DIR itself: the first to link DIR/.run-id in place owns it.
//
// A slot claims its place by making ranks/.agent-NNNNN with O_EXCL. A claim that
// is there already is an earlier run with the same id (torchrun's repeat, and a
// script may call `lockstep run` twice in one slot): then .id-<hash>-2, DIR-2, and
// so on. All slots walk the same sequence, so they meet again.
//
// Without a shared file system each node's slots agree on a directory of the node.

#include <cstdint>
#include <string>

#include "comms/launch/launch_env.h"
#include "core/result.h"

namespace lockstep {

struct RunDir {
  std::string path;  // As the user would type it: relative to the working directory if it is below it.
  std::string absolute;
  std::string latest;  // Link to be pointed here; "" with --output.
  std::string notice;  // One line about why it is not where it was asked for; "".
  std::string claim;   // This slot's claim file.

  std::string RankFile(std::int32_t slot, const char* suffix) const;  // absolute/ranks/rank-NNNNN<suffix>
};

// Falls back to $TMPDIR or /tmp if the wanted place cannot be written. kIo if
// nothing can. `output` "" for the default.
Result<RunDir> ClaimRunDir(const LaunchEnv& launch, const std::string& output);

// Points `latest` at the directory (rank 0). Failure is harmless.
void PointLatest(const RunDir& dir);

// What became of the slot, for rank 0 to wait on: the claim's first word becomes "done" or "failed".
void WriteClaim(const RunDir& dir, bool done);

// Takes this slot's empty leftovers away (the command could not be started).
void AbandonRunDir(const RunDir& dir);

}  // namespace lockstep
