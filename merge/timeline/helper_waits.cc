#include "merge/timeline/helper_waits.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "core/collective.h"
#include "merge/timeline/breakdown.h"
#include "merge/timeline/gpu_windows.h"
#include "trace/file/strings.h"

namespace lockstep::merge {
namespace {

constexpr schema::Columns<schema::Ranges> kRangeColumns(&schema::Ranges::begin_ns, &schema::Ranges::duration_ns,
                                                        &schema::Ranges::thread, &schema::Ranges::category,
                                                        &schema::Ranges::name);
constexpr schema::Columns<schema::MpiCalls> kCallColumns(&schema::MpiCalls::begin_ns, &schema::MpiCalls::duration_ns,
                                                         &schema::MpiCalls::thread);
constexpr schema::Columns<schema::CpuSamples> kSampleColumns(&schema::CpuSamples::time_ns, &schema::CpuSamples::thread,
                                                             &schema::CpuSamples::run_delay_ns);
// Between the end of what was waited for and the next thing recorded: waking up, and a share of the wait for what is
// done with the result.
constexpr std::int64_t kWakeUpNs = 100'000;
constexpr double kAfterShare = 0.1;

struct Step {
  Interval window;
  std::int64_t cpu_ns;
};

// What is known of the training thread.
struct Evidence {
  std::vector<Step> steps;          // Complete ones, by time.
  std::vector<std::int64_t> signs;  // When it did something.
  std::vector<std::int64_t> given;  // When it had given a bucket away.
  IntervalSet input;
};

template <auto kAsked, typename Each>
void ForEachRow(ingest::EventReader& events, Each&& each) {
  ingest::RowCursor<typename decltype(kAsked)::Of, kAsked> cursor(events);
  lockstep::merge::ForEachRow(cursor, each);
}

bool OfHelper(const schema::Collectives& c, std::size_t row, std::uint32_t training) {
  return c.mode[row] == schema::Code(CollectiveMode::kBlocking) && c.thread[row] != training &&
         c.end_ns[row] > c.begin_ns[row];
}

Evidence Collect(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training) {
  Evidence evidence;
  for (std::size_t s = 0; s < head.steps.rows(); ++s) {
    if (head.steps.thread[s] != training || head.steps.cpu_ns[s] < 0 || head.steps.complete[s] == 0) continue;
    evidence.steps.push_back({{head.steps.begin_ns[s], head.steps.end_ns[s]}, head.steps.cpu_ns[s]});
    evidence.signs.insert(evidence.signs.end(), {head.steps.begin_ns[s], head.steps.end_ns[s]});
  }
  if (evidence.steps.empty()) return evidence;
  std::sort(evidence.steps.begin(), evidence.steps.end(),
            [](const Step& a, const Step& b) { return a.window.begin < b.window.begin; });
  std::vector<bool> gives(head.strings.rows());
  for (std::uint32_t s = 0; s < gives.size(); ++s)
    gives[s] = trace::TextOf(head.strings, head.string_bytes, s).starts_with(kGivesBucketAway);
  std::vector<Interval> input;
  ForEachRow<kRangeColumns>(events, [&](const auto& rows, std::size_t i) {
    if (rows.thread[i] != training) return;
    const Interval range{rows.begin_ns[i], rows.begin_ns[i] + rows.duration_ns[i]};
    evidence.signs.insert(evidence.signs.end(), {range.begin, range.end});
    if (rows.category[i] == schema::Category::kInput) input.push_back(range);
    if (rows.name[i] < gives.size() && gives[rows.name[i]]) evidence.given.push_back(range.end);
  });
  // Collectives that a library's thread carries were given to it by the training thread.
  for (std::size_t i = 0; i < head.collectives.rows(); ++i)
    if (OfHelper(head.collectives, i, training) && head.collectives.enqueue_begin_ns[i] != schema::kNoTime)
      evidence.signs.push_back(head.collectives.enqueue_begin_ns[i]);
  ForEachRow<kCallColumns>(events, [&](const auto& rows, std::size_t i) {
    if (rows.thread[i] == training)
      evidence.signs.insert(evidence.signs.end(), {rows.begin_ns[i], rows.begin_ns[i] + rows.duration_ns[i]});
  });
  std::sort(evidence.signs.begin(), evidence.signs.end());
  std::sort(evidence.given.begin(), evidence.given.end());
  evidence.input = Normalize(std::move(input));
  return evidence;
}

// The last one in [window.begin, before); window.begin - 1: none.
std::int64_t LastWithin(const std::vector<std::int64_t>& times, Interval window, std::int64_t before) {
  const auto after = std::lower_bound(times.begin(), times.end(), before);
  return after == times.begin() || after[-1] < window.begin ? window.begin - 1 : after[-1];
}

// When the training thread had nothing to do but to wait for this collective. Empty: it had. The thread that carries a
// collective wakes who waits and only then notes its end (gloo in PyTorch 1.13: AsyncWork::finishWorkGloo), so the
// waiting may be over before the end that was recorded.
Interval Waited(const Evidence& evidence, const std::vector<Interval>& steps, Interval collective) {
  const std::int64_t end_ns = collective.end;
  const auto step_of = [&](std::int64_t ns) -> const Interval* {
    const auto after = std::upper_bound(steps.begin(), steps.end(), ns,
                                        [](std::int64_t at, const Interval& window) { return at < window.begin; });
    return after == steps.begin() ? nullptr : &after[-1];
  };
  if (const Interval* step = step_of(end_ns - 1); step != nullptr && end_ns <= step->end)
    if (const std::int64_t given = LastWithin(evidence.given, *step, step->end); given >= step->begin)
      return {std::min(given, end_ns), end_ns};
  // Of the times between two signs that ended about then, the longest.
  const std::vector<std::int64_t>& signs = evidence.signs;
  Interval longest{end_ns, end_ns};
  auto sign = std::lower_bound(signs.begin(), signs.end(), end_ns);
  if (sign == signs.end() && sign != signs.begin()) --sign;
  for (; sign != signs.begin() && sign != signs.end(); --sign) {
    const std::int64_t before = sign[-1], after = *sign;
    if (after < end_ns - EndToleranceNs(end_ns - collective.begin)) break;
    if (before >= end_ns || std::abs(after - end_ns) > EndToleranceNs(std::min(after, end_ns) - before)) continue;
    const Interval* step = step_of(before);
    const Interval waited{std::max(before, collective.begin), std::min(after, end_ns)};
    if (step != nullptr && after <= step->end && waited.end - waited.begin > longest.end - longest.begin)
      longest = waited;
  }
  return longest;
}

// Of `set`, what is nearest to its end and `ns` long together.
void AppendLast(const IntervalSet& set, std::int64_t ns, std::vector<Interval>& out) {
  for (auto at = set.rbegin(); at != set.rend() && ns > 0; ++at) {
    const std::int64_t length = std::min(ns, at->end - at->begin);
    out.push_back({at->end - length, at->end});
    ns -= length;
  }
}

}  // namespace

std::int64_t EndToleranceNs(std::int64_t waited_ns) {
  return kWakeUpNs + static_cast<std::int64_t>(kAfterShare * static_cast<double>(waited_ns));
}

IntervalSet HelperWaits(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training) {
  const schema::Collectives& c = head.collectives;
  std::vector<Interval> others;
  for (std::size_t i = 0; i < c.rows(); ++i)
    if (OfHelper(c, i, training)) others.push_back({c.begin_ns[i], c.end_ns[i]});
  if (others.empty()) return {};
  const Evidence evidence = Collect(head, events, training);
  if (evidence.steps.empty()) return {};
  std::vector<Interval> windows;
  for (const Step& step : evidence.steps) windows.push_back(step.window);
  CounterCurve delay(windows);
  ForEachRow<kSampleColumns>(events, [&](const auto& rows, std::size_t i) {
    if (rows.thread[i] == training && rows.run_delay_ns[i] >= 0) delay.Add(rows.time_ns[i], rows.run_delay_ns[i]);
  });

  std::vector<Interval> until_ends;
  for (const Interval& collective : others) until_ends.push_back(Waited(evidence, windows, collective));
  const IntervalSet candidates = Intersect(Normalize(std::move(until_ends)), Normalize(std::move(others)));
  std::vector<Interval> waits;
  for (std::size_t s = 0; s < windows.size(); ++s) {
    const std::int64_t blocked = windows[s].end - windows[s].begin - evidence.steps[s].cpu_ns -
                                 std::max<std::int64_t>(0, delay.Within(s)) - TotalWithin(evidence.input, windows[s]);
    AppendLast(Subtract(Clip(candidates, windows[s]), evidence.input), blocked, waits);
  }
  return Normalize(std::move(waits));
}

IntervalSet HelperWaits(const schema::RankTables& tables, std::uint32_t training) {
  return HelperWaits(tables, *ingest::ReadFromMemory(tables), training);
}

}  // namespace lockstep::merge
