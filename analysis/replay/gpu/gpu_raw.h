#pragma once
// The GPU work in a rank's tables, in the order in which its threads requested it, before any rule is applied. Cluster
// time.

#include <cstdint>
#include <vector>

#include "analysis/gpu/blocking_calls.h"
#include "analysis/replay/gpu/gpu_rank.h"
#include "core/interval.h"

namespace lockstep::replay {

struct RawItem {
  enum Sync : std::uint8_t { kUnknown, kCopyDone, kRecord, kStream, kDevice };

  GpuItem item;
  std::uint64_t correlation = 0;
  std::int64_t key_ns = 0;  // The sort key: the time of the call, or of the execution if there is none.
  std::int64_t call_end_ns = 0;
  std::uint32_t row = 0;                 // In its table; for hand-overs their index.
  std::uint32_t copy_row = 0xffffffffu;  // For kCopy, and for kSync of a copy.
  // Whether a host call is known; whether it returns only when the GPU has finished.
  bool launched = true, blocks = false;
  Sync sync = kUnknown;           // For kSync.
  std::uint16_t device = 0xffff;  // For kSync of a device; 0xffff: all devices.
  // For kWait and kSync: where and when the record for which it waits was made.
  std::uint16_t record_lane = GpuItem::kNoLane;
  std::uint64_t record_correlation = 0;
  bool record_unknown = false;
};

struct GpuRaw {
  std::vector<RawItem> items;
  std::vector<std::uint32_t> gates;  // Indices of items; kNone as of GpuRank::gates.
  // Per lane: the end of what was launched before the first step; INT64_MIN: none.
  std::vector<std::int64_t> carry_ns;
  bool told = false;  // Whether the trace contains what streams waited for.
};

// Fills out's lanes, threads, groups, messages (each with its kernel's row as `item`), same_kernel and origin.
GpuRaw CollectGpuRaw(const schema::RankTables& tables, const merge::ClockMap& clock, const GpuRankRequest& request,
                     GpuRank& out);

// When one thread continued after another one had stopped: autograd runs on a thread of its own. `activity`: per
// thread, when it was active.
struct HandOver {
  std::uint32_t from, to;         // Indices of `activity`.
  std::int64_t give_ns, take_ns;  // The last activity of `from`, and the first of `to` after it.
  std::int64_t stopped_ns;        // When `to` had stopped before that.
};
std::vector<HandOver> FindHandOvers(const std::vector<IntervalSet>& activity);

}  // namespace lockstep::replay
