#include "analysis/communication/exposure.h"

#include <algorithm>

#include "analysis/rules/network.h"
#include "core/collective.h"
#include "core/rules/common.h"
#include "merge/timeline/activity_stream.h"
#include "merge/timeline/blocked_time.h"
#include "merge/timeline/rank_pass.h"

namespace lockstep::analysis {
namespace {

constexpr std::uint8_t kInput = schema::Category::kInput;

// Adds the CPU time and run-queue delay of the stretches outside `busy`, in local time.
void CpuShares(const schema::RankTables& t, std::uint32_t thread, const IntervalSet& busy, const merge::ClockMap& clock,
               ExposedActivity& activity) {
  const auto& samples = t.cpu_samples;
  std::int64_t wall = 0, cpu = 0, delay = 0, delay_wall = 0;
  std::size_t before = 0;
  bool have_before = false;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < samples.rows(); ++i)
    if (samples.thread[i] == thread && samples.cpu_ns[i] >= 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return samples.time_ns[a] < samples.time_ns[b]; });
  for (const std::size_t i : order) {
    if (have_before) {
      const Interval stretch{samples.time_ns[before], samples.time_ns[i]};
      const std::int64_t length = stretch.end - stretch.begin;
      if (length > 0 && TotalWithin(busy, stretch) * rules::kCpuStretchParts <= length) {
        ExposedActivity::CpuStretch& row = activity.cpu.emplace_back();
        row.window = {clock.ToCluster(stretch.begin), clock.ToCluster(stretch.end)};
        row.cpu_ns = samples.cpu_ns[i] - samples.cpu_ns[before];
        wall += length;
        cpu += samples.cpu_ns[i] - samples.cpu_ns[before];
        if (samples.run_delay_ns[i] >= 0 && samples.run_delay_ns[before] >= 0) {
          row.delay_ns = samples.run_delay_ns[i] - samples.run_delay_ns[before];
          delay += row.delay_ns;
          delay_wall += length;
        }
      }
    }
    before = i;
    have_before = true;
  }
  if (wall > 0) activity.cpu_share = static_cast<double>(cpu) / static_cast<double>(wall);
  if (delay_wall > 0) activity.offcpu_share = static_cast<double>(delay) / static_cast<double>(delay_wall);
}

}  // namespace

std::pair<double, double> ExposedActivity::CpuShares(const IntervalSet& windows) const {
  std::int64_t wall = 0, cpu_ns = 0, delay = 0, delay_wall = 0;
  std::size_t at = 0;
  for (const CpuStretch& stretch : cpu) {
    while (at < windows.size() && windows[at].end <= stretch.window.begin) ++at;
    if (at == windows.size()) break;
    if (stretch.window.end <= windows[at].begin) continue;
    const std::int64_t length = stretch.window.end - stretch.window.begin;
    // A stretch across a boundary counts for the window in which most of it lies.
    const std::int64_t inside =
        std::min(stretch.window.end, windows[at].end) - std::max(stretch.window.begin, windows[at].begin);
    if (inside * 2 < length) continue;
    wall += length;
    cpu_ns += stretch.cpu_ns;
    if (stretch.delay_ns < 0) continue;
    delay += stretch.delay_ns;
    delay_wall += length;
  }
  return {wall > 0 ? static_cast<double>(cpu_ns) / static_cast<double>(wall) : -1,
          delay_wall > 0 ? static_cast<double>(delay) / static_cast<double>(delay_wall) : -1};
}

std::int64_t ExposedActivity::MeanOfOthers(const IntervalSet& windows) const {
  std::int64_t sum_ns = 0, steps = 0;
  for (const StepOfOthers& step : others) {
    if (2 * TotalWithin(windows, step.window) <= step.window.end - step.window.begin) continue;
    sum_ns += step.cpu_ns;
    ++steps;
  }
  return steps == 0 ? -1 : sum_ns / steps;
}

ExposedActivity ActivityOf(const schema::RankTables& t, const merge::ClockMap& clock) {
  ExposedActivity activity;
  activity.gpu = t.kernels.rows() > 0;
  IntervalSet local;
  if (activity.gpu) {
    std::vector<Interval> compute;
    std::int64_t first = INT64_MAX, last = INT64_MIN;
    for (std::size_t i = 0; i < t.kernels.rows(); ++i) {
      const Interval kernel{t.kernels.begin_ns[i], t.kernels.begin_ns[i] + t.kernels.duration_ns[i]};
      first = std::min(first, kernel.begin);
      last = std::max(last, kernel.end);
      if (t.kernels.work[i] == schema::Work::kCompute) compute.push_back(kernel);
    }
    local = Subtract({{first, last}}, Normalize(std::move(compute)));
  } else {
    const std::uint32_t thread = merge::TrainingThread(t);
    std::vector<Interval> input;
    for (std::size_t i = 0; i < t.ranges.rows(); ++i)
      if (t.ranges.thread[i] == thread && t.ranges.category[i] == kInput)
        input.push_back({t.ranges.begin_ns[i], t.ranges.begin_ns[i] + t.ranges.duration_ns[i]});
    const merge::BlockedTime blocked = merge::FindBlockedTime(t, thread);
    local = Unite(merge::InCommunication(t, thread, blocked), Normalize(std::move(input)));
    std::vector<Interval> own;
    for (const merge::BlockedTime::Own& wait : blocked.own) own.push_back(wait.at);
    CpuShares(t, thread, Unite(local, Normalize(std::move(own))), clock, activity);
    for (std::size_t i = 0; i < t.steps.rows(); ++i)
      if (t.steps.complete[i] != 0 && t.steps.others_cpu_ns[i] >= 0)
        activity.others.push_back(
            {{clock.ToCluster(t.steps.begin_ns[i]), clock.ToCluster(t.steps.end_ns[i])}, t.steps.others_cpu_ns[i]});
    const auto& groups = t.comms.kind;
    activity.sleeps_in_calls =
        std::find(groups.begin(), groups.end(), schema::CommKind::kTorchGroup) != groups.end() &&
        std::find(t.mpi_calls.thread.begin(), t.mpi_calls.thread.end(), thread) == t.mpi_calls.thread.end();
  }
  activity.exposed.reserve(local.size());
  for (const Interval& stretch : local)
    activity.exposed.push_back({clock.ToCluster(stretch.begin), clock.ToCluster(stretch.end)});
  return activity;
}

ProgressCounts CountProgress(const schema::RankTables& t) {
  ProgressCounts counts;
  const auto& c = t.collectives;
  // Posting other operations enters MPI too, so the length of the time in MPI decides.
  const IntervalSet inside = merge::InMpiCalls(t, std::nullopt);
  for (std::size_t i = 0; i < c.rows(); ++i) {
    const auto mode = static_cast<CollectiveMode>(c.mode[i]);
    if (mode != CollectiveMode::kNonBlocking && mode != CollectiveMode::kPersistent) continue;
    if (c.wait_begin_ns[i] == schema::kNoTime || c.end_ns[i] == schema::kNoTime) continue;
    ++counts.posted;
    const std::int64_t apart = c.wait_begin_ns[i] - c.post_end_ns[i], life = c.end_ns[i] - c.begin_ns[i];
    if (apart <= 0 || LittleOf(apart, life)) continue;
    ++counts.early;
    if (c.last_incomplete_ns[i] != schema::kNoTime) continue;
    // Where threads were in MPI meanwhile, it may have moved before its wait.
    if (!LittleOf(TotalWithin(inside, {c.post_end_ns[i], c.wait_begin_ns[i]}), apart)) continue;
    ++counts.wait_only;
    counts.apart_ns += apart;
  }
  return counts;
}

}  // namespace lockstep::analysis
