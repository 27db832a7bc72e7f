#pragma once
// The graph (graph.h) of a GPU run. Each host thread is a lane of its own work, each stream a queued lane. The work of
// a thread between two points that affect others (a collective launched, a synchronisation, the first kernel of a step)
// is one operation; the kernels that it launches in that time on one stream, if no other operation waits for one of
// them before the last, are one as well. This is exact: with h the begin of the host's stretch, f the time at which the
// stream is free, and kernel j of length d_j (unexplained gaps included) released at h + rel_j,
//   end = max(f, h + lead) + sum d_j,  lead = max_j (rel_j - sum of d_i before j)
// so a chain is an operation of its length that needs another of length `lead` (Role::kLaunch), which begins with the
// host's stretch: each replay decides which of the two holds it back. `Chain` computes these sums.

#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/replay/gpu/gpu_interference.h"
#include "analysis/replay/gpu/gpu_run.h"

namespace lockstep::replay {

// What ranks share while the graph is made.
struct GraphInMaking {
  // A rank's part in a collective.
  struct Member {
    std::uint32_t operation;
    std::int64_t arrival_ns, end_ns;
  };

  // A kernel that sends and receives: it arrives (`gate`), then moves the data that its partners send.
  struct Exchange {
    std::uint32_t gate, body;
    std::int64_t begin_ns, end_ns;
    std::vector<std::pair<std::uint32_t, bool>> messages;  // The collective, and whether it is the send.
  };

  const GpuRun& run;
  const JobOptions& options;
  const GpuAlone* alone;  // Null: durations are unchanged.
  Job job;
  std::vector<std::uint32_t> groups;         // [collective]: the graph's collective, or kNone.
  std::vector<std::vector<Member>> members;  // [collective]
  std::vector<Exchange> exchanges;
  // With interference, kernels are slowed one by one, not in chains: exact, and as large as the run.
  bool single_kernels = false;
};

// Adds what rank `r` of the run does. `job_origin_ns`: when the first rank's first step begins, cluster time. Not for
// several ranks at once.
void AddRank(GraphInMaking& shared, std::uint32_t r, std::int64_t job_origin_ns);

}  // namespace lockstep::replay
