#pragma once
// The graph (graph.h) of a GPU run. Each host thread is a lane of its own work, each stream a
// queued lane. What a thread does between two points that others see (a collective launched, a
// synchronisation, the first kernel of a step) is one operation; the kernels that it launches in
// that time on one stream, with nobody waiting for one in their middle, are one as well. That is exact:
// with h the begin of the host's stretch, f the time at which the stream is free, and kernel j of length d_j
// (gaps that nothing explains included) released at h + rel_j,
//   end = max(f, h + lead) + sum d_j,  lead = max_j (rel_j - sum of d_i before j)
// so a chain is an operation of its length that needs another of length `lead` (Role::kLaunch), which
// begins with the host's stretch: which of both holds it back is decided in each replay. `Chain` adds this up.

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

  // A kernel that sends and receives: it arrives (`gate`), then moves what its partners give.
  struct Exchange {
    std::uint32_t gate, body;
    std::int64_t begin_ns, end_ns;
    std::vector<std::pair<std::uint32_t, bool>> messages;  // Collective, a send.
  };

  const GpuRun& run;
  const JobOptions& options;
  const GpuAlone* alone;  // Null: durations stay as they are.
  Job job;
  std::vector<std::uint32_t> groups;         // [collective]: the graph's, kNone.
  std::vector<std::vector<Member>> members;  // [collective]
  std::vector<Exchange> exchanges;
  // Under interference kernels are slowed one by one, not in chains: exact, and as large as the run.
  bool single_kernels = false;
};

// Adds what rank `r` of the run does. `job_origin_ns`: when the first rank's first step begins, cluster time.
// One rank after the other.
void AddRank(GraphInMaking& shared, std::uint32_t r, std::int64_t job_origin_ns);

}  // namespace lockstep::replay
