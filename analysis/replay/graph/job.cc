#include "analysis/replay/graph/job.h"

#include <algorithm>

#include "merge/timeline/step_length.h"

namespace lockstep::replay {

std::vector<std::int64_t> Job::StepLengths(const Schedule& schedule) const {
  std::vector<std::int64_t> lengths, before, of_ranks;
  for (const std::uint32_t start : starts) before.push_back(schedule.end_ns[start]);
  for (const std::vector<std::uint32_t>& ends : step_ends) {
    of_ranks.clear();
    for (std::size_t r = 0; r < ends.size(); ++r) {
      if (ends[r] == kNone) continue;
      const std::int64_t end = std::max(before[r], schedule.end_ns[ends[r]]);
      of_ranks.push_back(end - before[r]);
      before[r] = end;
    }
    lengths.push_back(std::max<std::int64_t>(0, merge::MeanLength(of_ranks)));
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
