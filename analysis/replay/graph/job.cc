#include "analysis/replay/graph/job.h"

#include <algorithm>

namespace lockstep::replay {

std::vector<std::int64_t> Job::StepLengths(const Schedule& schedule) const {
  std::vector<std::int64_t> lengths;
  std::int64_t before = 0;
  for (const std::uint32_t start : starts) before = std::max(before, schedule.end_ns[start]);
  for (const std::vector<std::uint32_t>& ends : step_ends) {
    std::int64_t end = before;
    for (const std::uint32_t operation : ends)
      if (operation != kNone) end = std::max(end, schedule.end_ns[operation]);
    lengths.push_back(end - before);
    before = end;
  }
  return lengths;
}

std::vector<std::int64_t> Comparable(std::vector<std::int64_t> step_lengths) {
  if (step_lengths.size() > 1) step_lengths.erase(step_lengths.begin());
  return step_lengths;
}

std::uint32_t Job::LastEnd(const Schedule& schedule) const {
  std::uint32_t last = kNone;
  for (const std::uint32_t end : step_ends.back())
    if (end != kNone && (last == kNone || schedule.end_ns[end] > schedule.end_ns[last])) last = end;
  return last;
}

}  // namespace lockstep::replay
