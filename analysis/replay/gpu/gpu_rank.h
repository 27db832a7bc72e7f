#pragma once
// One rank's part of a GPU run, distilled from its tables: what its host threads asked of the
// GPU, in the order in which they did, and what of the recorded times the rules of replay
// explain. Cluster time.

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/schema.h"
#include "merge/timeline/timeline.h"

namespace lockstep::replay {

// Something that a host thread asks of a stream, or waits for. `begin_ns` and `end_ns` are those that the
// rules give from the recorded host times and `delay_ns`: the recorded ones wherever these obey the rules.
struct GpuItem {
  enum Kind : std::uint8_t {
    kCarry,     // What a stream still had to do when the first step began on the host.
    kKernel,    // `ref`: of GpuRank::groups, what it has in common with others.
    kCopy,      // `ref` likewise.
    kMember,    // Carries a collective: `ref`, of RecordedRun::collectives.
    kMessages,  // Sends, receives: `ref` is the first of GpuRank::messages.
    kFixed,     // Communicates with somebody who is not in the replay.
    kWait,      // The stream goes on when the item `ref` has ended; kNone: it has long.
    kSync,      // A thread waits for GpuRank::syncs[ref].
    kGive,      // A point of a thread that another one goes on from: kTake, whose `ref` it is.
    kTake,      // From begin_ns to call_ns the thread did nothing.
    kMpi,       // A blocking collective of the thread: `ref` as of kMember.
  };
  static constexpr std::uint16_t kNoLane = 0xffff;

  Kind kind = kKernel;
  bool watched = false;  // Others wait for its end.
  std::uint16_t lane = kNoLane, thread = 0;
  std::uint32_t ref = 0xffffffffu;
  std::uint32_t after = 0xffffffffu;  // An item of another stream that it waited for as well: guessed from times.
  std::int64_t call_ns = 0;           // The thread asks...
  std::int64_t lag_ns = 0;            // ... and the GPU could begin so much later, were it free.
  std::int64_t begin_ns = 0, end_ns = 0;
  // GPU: what is left unexplained before its begin. kSync: what the call takes once the GPU is done.
  std::int64_t delay_ns = 0;
};

struct GpuMessage {
  std::uint64_t comm = 0, seq = 0, bytes = 0;
  std::int32_t source = -1, destination = -1, tag = -1;  // Ranks of comm.
  std::uint32_t item = 0;                                // Those of one kernel share it.
  bool send = false;
};

struct GpuSync {
  std::vector<std::uint16_t> lanes;  // Everything asked of these so far ...
  std::uint32_t item = 0xffffffffu;  // ... and this.
};

// What the rules do not explain of the GPU operations' begins.
struct GpuResiduals {
  std::uint64_t operations = 0;
  std::int64_t after_launch_ns = 0, after_stream_ns = 0, after_wait_ns = 0;  // By what they had waited for last.
  std::uint64_t negative = 0;       // Began before they could have, by more than clocks differ.
  std::uint64_t dropped_waits = 0;  // Recorded waits that cannot have been: what they wait for ended later.
  std::uint64_t guessed_waits = 0;  // From times, where the trace does not tell.
  std::uint64_t unlaunched = 0;     // No host call is known for them: they follow what was before them.
};

struct GpuRank {
  struct Lane {
    std::uint16_t device = 0;
    std::uint32_t context = 0, stream = 0;
    bool communicates = false;  // More collectives and messages than kernels of its own.
  };
  static constexpr std::uint16_t kNobody = 0;  // The thread of what has no host call.

  std::int64_t origin_ns = 0;  // On the host, of the first step.
  std::vector<Lane> lanes;
  std::uint16_t threads = 1;
  std::vector<GpuItem> items;  // In the order in which they were asked for.
  std::vector<GpuSync> syncs;
  std::vector<GpuMessage> messages;  // By item.
  // Per step: the item whose begin is the step's; then the one that ends the last step, which is the last item and of
  // which nothing but the begin belongs here; kNone: nothing follows, the step ends at `end_ns` (cluster time).
  std::vector<std::uint32_t> gates;
  bool EndsLastStep(std::size_t item) const { return !gates.empty() && gates.back() == item; }
  std::int64_t end_ns = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> same_kernel;  // Collectives that share a kernel.
  std::vector<std::uint32_t> groups;  // Name and shape of kernels, kind of copies: a hash, the same on every rank.
  GpuResiduals residuals;
};

struct GpuRankRequest {
  // Rank clock, of the GPU: begin of each step, and the end of the last; empty: all that was recorded is one step.
  std::vector<std::int64_t> bounds_ns;
  // Row of the rank's collectives, RecordedRun::collectives; by row.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> collectives;
};

GpuRank DistillGpuRank(const schema::RankTables& tables, const merge::RankClockMap& clock,
                       const GpuRankRequest& request);

}  // namespace lockstep::replay
