#include "analysis/gpu/critical_shares.h"

#include <algorithm>
#include <span>

namespace lockstep::gpu {
namespace {

using schema::kNone;

// Is a time in a set, and until when does that hold? Times must not decrease.
class SetCursor {
 public:
  SetCursor(const IntervalSet& set, std::int64_t from) : set_(set) {
    at_ = static_cast<std::size_t>(
        std::upper_bound(set.begin(), set.end(), from, [](std::int64_t t, const Interval& i) { return t < i.end; }) -
        set.begin());
  }
  bool Inside(std::int64_t time_ns, std::int64_t& until) {
    while (at_ < set_.size() && set_[at_].end <= time_ns) ++at_;
    if (at_ == set_.size()) return false;
    const bool inside = set_[at_].begin <= time_ns;
    until = std::min(until, inside ? set_[at_].end : set_[at_].begin);
    return inside;
  }

 private:
  const IntervalSet& set_;
  std::size_t at_;
};

// The innermost range of a thread as time goes on.
class RangeCursor {
 public:
  RangeCursor(const schema::Ranges& ranges, const RangeNest& nest, std::uint32_t thread, std::int64_t from)
      : ranges_(ranges), nest_(nest), rows_(nest.Of(thread)), range_(nest.At(thread, from)) {
    next_ = static_cast<std::size_t>(
        std::upper_bound(rows_.begin(), rows_.end(), from,
                         [&](std::int64_t t, std::uint32_t row) { return t < ranges.begin_ns[row]; }) -
        rows_.begin());
  }
  std::uint32_t At(std::int64_t time_ns, std::int64_t& until) {
    for (; next_ < rows_.size() && ranges_.begin_ns[rows_[next_]] <= time_ns; ++next_) range_ = rows_[next_];
    while (range_ != kNone && End(range_) <= time_ns) range_ = nest_.Parent(range_);
    if (next_ < rows_.size()) until = std::min(until, ranges_.begin_ns[rows_[next_]]);
    if (range_ != kNone) until = std::min(until, End(range_));
    return range_;
  }

 private:
  std::int64_t End(std::uint32_t row) const { return ranges_.begin_ns[row] + ranges_.duration_ns[row]; }
  const schema::Ranges& ranges_;
  const RangeNest& nest_;
  std::span<const std::uint32_t> rows_;
  std::uint32_t range_;
  std::size_t next_;
};

PathCategory CategoryOf(const GpuOp& op) {
  switch (op.cls) {
    case merge::KernelClass::kCompute:
      return PathCategory::kCompute;
    case merge::KernelClass::kComm:
      return PathCategory::kCommunication;
    default:
      return PathCategory::kCopy;
  }
}

}  // namespace

std::vector<CriticalPathFinder::Share> SharesOf(const CriticalPath& path, const DeviceActivity& activity,
                                                const CriticalHosts& hosts, const RangeNest& nest) {
  const RankView& rank = activity.rank;
  const schema::RankTables& t = rank.tables;
  const std::vector<GpuOp>& ops = activity.timeline.ops;
  std::vector<CriticalPathFinder::Share> shares;
  const auto op_name = [&](const GpuOp& op) {
    return op.copy ? CopyKindName(t.copies.kind[op.row]) : rank.Text(t.kernels.name[op.row]);
  };
  for (const PathPiece& piece : path.pieces) {
    const std::int64_t ns = piece.end_ns - piece.begin_ns;
    if (piece.thread != kNone) {
      const HostThread& thread = hosts.threads()[piece.thread];
      SetCursor blocked(thread.blocked, piece.begin_ns), communicates(thread.communicates, piece.begin_ns),
          input(thread.input, piece.begin_ns);
      RangeCursor ranges(t.ranges, nest, thread.thread, piece.begin_ns);
      for (std::int64_t now = piece.begin_ns; now < piece.end_ns;) {
        std::int64_t until = piece.end_ns;
        const bool is_blocked = blocked.Inside(now, until), is_communicating = communicates.Inside(now, until),
                   is_input = input.Inside(now, until);
        const std::uint32_t range = ranges.At(now, until);
        const PathCategory category = is_blocked         ? PathCategory::kSync
                                      : is_communicating ? PathCategory::kCommunication
                                      : is_input         ? PathCategory::kDataLoading
                                                         : PathCategory::kCpu;
        shares.push_back(
            {category, range == kNone ? "outside ranges" : rank.Text(t.ranges.name[range]), until - now, false});
        now = until;
      }
      continue;
    }
    switch (piece.edge) {
      case PathEdge::kOp:
      case PathEdge::kCut:
        shares.push_back({CategoryOf(ops[piece.op]), op_name(ops[piece.op]), ns, true});
        break;
      case PathEdge::kLaunch:
        if (piece.counts)
          shares.push_back({PathCategory::kLaunch, rank.Text(t.api.name[ops[piece.op].api]), ns, true});
        else
          shares.push_back({PathCategory::kLaunch, "launched, waits for its turn", ns, false});
        break;
      case PathEdge::kStream:
      case PathEdge::kCross:
        if (piece.counts) {
          shares.push_back({PathCategory::kKernelGap, "from one kernel to the next", ns, false});
        } else if (const std::uint32_t api = ops[piece.op].api; api == kNone) {
          shares.push_back(
              {PathCategory::kOther, "GPU idle, next operation without launching call in the trace", ns, false});
        } else if (t.api.begin_ns[api] < piece.begin_ns) {
          // As launch-bound and idle have it: it was queued, and started late.
          shares.push_back({PathCategory::kLaunch, "queued, started late", ns, false});
        } else {
          shares.push_back({PathCategory::kOther, "GPU idle, next operation not launched", ns, false});
        }
        break;
      case PathEdge::kTail:
        shares.push_back({PathCategory::kOther, "after the last GPU operation", ns, false});
        break;
      default:
        shares.push_back({PathCategory::kOther, "before the first event that is known", ns, false});
        break;
    }
  }
  return shares;
}

}  // namespace lockstep::gpu
