#include "runtime/agent/live/live_helpers.h"

#include <utility>

#include "core/awaited_operation.h"

namespace lockstep::agent {

void LiveHelpers::Blocked(const BlockedRecord& record) {
  const auto kind = static_cast<std::uint8_t>(record.head.flags & ~kBlockedTimedOut);
  if (EndsBySignal(kind, (record.head.flags & kBlockedTimedOut) != 0) && record.woken_ticks != 0 &&
      record.waker_tid != 0)
    done_.push_back({{record.begin_ticks, record.end_ticks}, record.woken_ticks, record.waker_tid});
}

IntervalSet LiveHelpers::Exposed(const std::vector<Collective>& collectives, const NsOfTicks& ns_of_ticks) const {
  const auto span = [&](LiveTicks ticks) {
    return Interval{ns_of_ticks(ticks.begin), ticks.end == 0 ? INT64_MAX : ns_of_ticks(ticks.end)};
  };
  std::vector<CarriedOperations::Operation> operations;
  std::vector<Interval> carried, exposed;
  for (const Collective& one : collectives) {
    operations.push_back({one.tid, span(one.ticks)});
    carried.push_back(operations.back().at);
  }
  const CarriedOperations of_threads(std::move(operations));
  for (const Done& one : done_) {
    const Interval at = span(one.ticks);
    if (one.woken_ticks == 0 ||
        of_threads.AwaitedBy(at, one.waker_tid, ns_of_ticks(one.woken_ticks)) != CarriedOperations::kNone)
      exposed.push_back(at);
  }
  return Intersect(Normalize(std::move(exposed)), Normalize(std::move(carried)));
}

void LiveHelpers::Forget(std::uint64_t before_ticks) {
  while (!done_.empty() && done_.front().ticks.end < before_ticks) done_.pop_front();
}

}  // namespace lockstep::agent
