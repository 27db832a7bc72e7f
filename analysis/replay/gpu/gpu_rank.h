#pragma once
// One rank's part of a GPU run, extracted from its tables: what its host threads requested of the GPU, in order, and
// which part of the recorded times the rules of replay explain. Cluster time.

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/interval.h"
#include "core/rules/common.h"
#include "core/schema.h"
#include "merge/timeline/timeline.h"

namespace lockstep::replay {

// Something that a host thread requests of a stream, or for which it waits. `begin_ns` and `end_ns` follow by the rules
// from the recorded host times and `delay_ns`: they are the recorded ones wherever these obey the rules.
struct GpuItem {
  enum Kind : std::uint8_t {
    kCarry,     // The work that a stream still had when the first step began on the host.
    kKernel,    // `ref`: the index in GpuRank::groups, of kernels with the same properties.
    kCopy,      // `ref` as of kKernel.
    kMember,    // Carries a collective: `ref`, the index in RecordedRun::collectives.
    kMessages,  // Sends and receives: `ref` is the first of GpuRank::messages.
    kFixed,     // Communicates with a rank that is not in the replay.
    kWait,      // The stream continues when the item `ref` has ended; kNone: it has ended long before.
    kSync,      // A thread waits for GpuRank::syncs[ref].
    kGive,      // A point of a thread after which another one continues: kTake, whose `ref` it is.
    kTake,      // The thread did nothing from begin_ns to call_ns.
    kMpi,       // A blocking collective of the thread: `ref` as of kMember.
  };
  static constexpr std::uint16_t kNoLane = 0xffff;

  Kind kind = kKernel;
  bool watched = false;  // Other items wait for its end.
  std::uint16_t lane = kNoLane, thread = 0;
  std::uint32_t ref = 0xffffffffu;
  std::uint32_t after = 0xffffffffu;  // An item of another stream for which it also waited, estimated from times.
  std::int64_t call_ns = 0;           // The thread requests it...
  std::int64_t lag_ns = 0;            // ... and a free GPU could begin this much later.
  std::int64_t begin_ns = 0, end_ns = 0;
  // On the GPU: the unexplained delay before its begin. kSync: the duration of the call after the GPU has finished.
  std::int64_t delay_ns = 0;
};

struct GpuMessage {
  std::uint64_t comm = 0, seq = 0, bytes = 0;
  std::int32_t source = -1, destination = -1, tag = -1;  // Ranks within comm.
  std::uint32_t item = 0;                                // The messages of one kernel have the same item.
  bool send = false;
};

struct GpuSync {
  std::vector<std::uint16_t> lanes;  // Everything requested of these so far ...
  std::uint32_t item = 0xffffffffu;  // ... and this.
};

// The parts of the GPU operations' begins that the rules do not explain.
struct GpuResiduals {
  std::uint64_t operations = 0;
  std::int64_t after_launch_ns = 0, after_stream_ns = 0, after_wait_ns = 0;  // By what they had waited for last.
  std::uint64_t negative = 0;       // They began earlier than possible by more than the clocks' error.
  std::uint64_t dropped_waits = 0;  // Recorded waits that were not real: their targets ended later.
  std::uint64_t guessed_waits = 0;  // Estimated from times, because the trace does not contain them.
  std::uint64_t unlaunched = 0;     // No host call is known for them: they follow the previous item of their stream.
};

struct GpuRank {
  struct Lane {
    std::uint16_t device = 0;
    std::uint32_t context = 0, stream = 0;
    bool communicates = false;  // It has more collectives and messages than kernels of its own.
  };
  static constexpr std::uint16_t kNobody = 0;  // The thread of items without a host call.

  std::int64_t origin_ns = 0;  // The begin of the first step on the host.
  std::vector<Lane> lanes;
  std::uint16_t threads = 1;
  std::vector<GpuItem> items;  // In the order in which they were requested.
  std::vector<GpuSync> syncs;
  std::vector<GpuMessage> messages;  // Sorted by item.
  // Per step: the item with which the step begins, kNone for a first one that begins on the host, at the origin; then
  // the one that ends the last step, which is the last item and of which only the begin is used. kNone: nothing
  // follows, and the step ends at `end_ns` (cluster time).
  std::vector<std::uint32_t> gates;
  std::size_t FirstGate() const { return gates.size() > 1 && gates.front() == 0xffffffffu ? 1 : 0; }
  bool EndsLastStep(std::size_t item) const { return !gates.empty() && gates.back() == item; }
  std::int64_t end_ns = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> same_kernel;  // Pairs of collectives that share a kernel.
  // A hash of the name and shape of kernels, or the kind of copies, the same on every rank.
  std::vector<std::uint32_t> groups;
  GpuResiduals residuals;
};

struct GpuRankRequest {
  // On the rank's clock, of the GPU: the begin of each step, and the end of the last; empty: everything recorded is one
  // step, of the time `whole`.
  std::vector<std::int64_t> bounds_ns;
  Interval whole{0, 0};
  std::int64_t launched_before_ns = INT64_MAX;  // If no kernel ends the last step: what is launched later is no part.
  // Row of the rank's collectives and index in RecordedRun::collectives; sorted by row.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> collectives;
  std::int64_t clock_slack_ns = rules::kGpuClockSlackNs;  // By how much host and GPU times may contradict each other.
};

GpuRank DistillGpuRank(const schema::RankTables& tables, const merge::ClockMap& clock, const GpuRankRequest& request);

}  // namespace lockstep::replay
