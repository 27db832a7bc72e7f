#include "core/awaited_operation.h"

#include <algorithm>

namespace lockstep {

CarriedOperations::CarriedOperations(std::vector<Operation> operations) {
  entries_.reserve(operations.size());
  for (std::size_t i = 0; i < operations.size(); ++i) entries_.push_back({operations[i], operations[i].at.end, i});
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.operation.thread, a.operation.at.begin) < std::pair(b.operation.thread, b.operation.at.begin);
  });
  for (std::size_t i = 1; i < entries_.size(); ++i)
    if (entries_[i].operation.thread == entries_[i - 1].operation.thread)
      entries_[i].latest_end = std::max(entries_[i].latest_end, entries_[i - 1].latest_end);
}

std::size_t CarriedOperations::AwaitedBy(Interval wait, std::uint64_t waker, std::int64_t woken_ns) const {
  auto at = std::upper_bound(entries_.begin(), entries_.end(), std::pair(waker, woken_ns),
                             [](const std::pair<std::uint64_t, std::int64_t>& asked, const Entry& entry) {
                               return asked < std::pair(entry.operation.thread, entry.operation.at.begin);
                             });
  while (at != entries_.begin() && (--at)->operation.thread == waker && at->latest_end > wait.begin)
    if (at->operation.at.end > wait.begin) return at->number;
  return kNone;
}

}  // namespace lockstep
