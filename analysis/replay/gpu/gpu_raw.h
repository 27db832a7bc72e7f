#pragma once
// What a rank's tables say of its GPU work, in the order in which its threads asked for it,
// before any rule is applied. Cluster time.

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
  std::int64_t key_ns = 0;  // What orders them: the call, else where it ran.
  std::int64_t call_end_ns = 0;
  std::uint32_t row = 0;                         // Of its table; hand-overs: which.
  std::uint32_t copy_row = 0xffffffffu;          // kCopy; kSync of one.
  bool launched = true, blocks = false;          // A host call is known; it returns when the GPU is done.
  Sync sync = kUnknown;                          // kSync
  std::uint16_t device = 0xffff;                 // kSync of a device; 0xffff: all.
  std::uint16_t record_lane = GpuItem::kNoLane;  // kWait, kSync: where what it waits for was recorded, and when.
  std::uint64_t record_correlation = 0;
  bool record_unknown = false;
};

struct GpuRaw {
  std::vector<RawItem> items;
  std::vector<std::uint32_t> gates;    // Of items; kNone: nothing is launched any more.
  std::vector<std::int64_t> carry_ns;  // Per lane: end of what was launched before the first step; INT64_MIN: none.
  bool told = false;                   // The trace says what streams waited for.
};

// Fills out's lanes, threads, groups, messages (each with its kernel's row as `item`), same_kernel and origin.
GpuRaw CollectGpuRaw(const schema::RankTables& tables, const merge::RankClockMap& clock, const GpuRankRequest& request,
                     GpuRank& out);

// Where one thread went on when another one had stopped: autograd runs on a thread of its own. `activity`: per
// thread, when it did something.
struct HandOver {
  std::uint32_t from, to;         // Of `activity`.
  std::int64_t give_ns, take_ns;  // The last that `from` did, the first that `to` did then.
  std::int64_t stopped_ns;        // When `to` had stopped before.
};
std::vector<HandOver> FindHandOvers(const std::vector<IntervalSet>& activity);

}  // namespace lockstep::replay
