// Names who held others back once or a few times, for so long that it is a part of the recording: no median shows that,
// and no share of late arrivals. What comes back at intervals is a burst (bursts.cc), who is late as a rule a straggler
// (stragglers.cc). What all ranks do for long, a checkpoint say, holds nobody back; the first of its kind is warm-up.

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/core/statistics.h"
#include "analysis/core/step_names.h"
#include "analysis/passes.h"
#include "analysis/rules/stragglers.h"
#include "analysis/stacks/blocked_places.h"
#include "core/counter_curve.h"
#include "core/printed.h"
#include "core/rules/common.h"
#include "merge/timeline/rank_pass.h"
#include "trace/file/strings.h"

namespace lockstep::analysis {
namespace {

// The others waited for `late` in this time (cluster).
struct HeldBack {
  std::size_t collective = 0;
  Interval held;
  std::vector<std::int32_t> late, waiting;
  bool stopped = false;
  std::int64_t ns = held.end - held.begin;  // Of all collectives of the step.
};

// When it stood still by a signal or a debugger, rank clock.
std::vector<Interval> StopsOf(const schema::RankTables& t) {
  std::vector<Interval> stops;
  if (t.processes.rows() == 0) return stops;
  const std::string key = "stopped." + std::to_string(t.processes.pid[0]);
  // "FROM TO;" of each; the last one may not have ended.
  std::string text(trace::MetaValue(t, "was_" + key));
  if (const std::string_view since = trace::MetaValue(t, key); !since.empty())
    text.append(since).append(" ").append(std::to_string(INT64_MAX)).append(";");
  std::vector<std::int64_t> edges;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    std::int64_t ns = 0;
    const auto read = std::from_chars(at, end, ns);
    if (read.ec != std::errc{}) break;
    edges.push_back(ns);
    at = read.ptr + 1;
  }
  for (std::size_t i = 0; i + 1 < edges.size(); i += 2) stops.push_back({edges[i], edges[i + 1]});
  return stops;
}

bool Stopped(const std::vector<Interval>& stops, const Interval& held) {
  std::int64_t stood_ns = 0;
  for (const Interval& stop : stops)
    stood_ns += std::max<std::int64_t>(0, std::min(held.end, stop.end) - std::max(held.begin, stop.begin));
  return MuchOf(stood_ns, held.end - held.begin);
}

class StallSearch {
 public:
  StallSearch(const Context& context, std::int64_t least_ns)
      : context_(context), t_(context.tables().collectives), least_ns_(least_ns) {
    const schema::TlSteps& steps = context.tables().steps;
    std::vector<std::int64_t> all;
    for (const std::size_t row : context.usable_steps()) all.push_back(steps.step_ns[row]);
    const std::int64_t ordinary_ns = LowerMedian(std::move(all));
    for (const std::size_t row : context.usable_steps())
      longer_ns_[steps.index[row]] = steps.step_ns[row] - ordinary_ns;
  }

  // In order of time. What several operations, or those of one step, waited for is one.
  std::vector<HeldBack> Find() {
    std::map<std::tuple<std::uint64_t, std::uint8_t, std::uint64_t>, std::vector<std::size_t>> alike;
    for (std::size_t c = 0; c < t_.rows(); ++c)
      if (context_.Comparable(c) && t_.seen[c] >= t_.expected[c])
        alike[{t_.comm_id[c], t_.kind[c], t_.bytes[c]}].push_back(c);
    std::vector<HeldBack> found;
    for (const auto& [key, instances] : alike) {
      if (instances.size() <= rules::kFewest) continue;
      std::vector<std::int64_t> spread, transfer;
      for (const std::size_t c : instances) spread.push_back(t_.last_arrival_ns[c] - t_.first_arrival_ns[c]);
      for (const std::size_t c : instances) transfer.push_back(t_.end_ns[c] - t_.last_arrival_ns[c]);
      const auto times_median = [](const std::vector<std::int64_t>& of) {
        return static_cast<std::int64_t>(rules::kStallTimes * static_cast<double>(LowerMedian(of)));
      };
      const std::int64_t late_ns = std::max(least_ns_ / rules::kStallParts, times_median(spread));
      const std::int64_t long_ns = std::max(least_ns_, times_median(transfer));
      for (std::size_t i = rules::kFewest; i < instances.size(); ++i) {
        std::optional<HeldBack> one;
        if (spread[i] >= late_ns) one = WhoCameLate(instances[i], late_ns);
        if (!one && transfer[i] >= long_ns) one = WhoWasStopped(instances[i]);
        if (one) found.push_back(std::move(*one));
      }
    }
    std::sort(found.begin(), found.end(),
              [](const HeldBack& a, const HeldBack& b) { return a.held.begin < b.held.begin; });
    std::vector<HeldBack> merged;
    for (HeldBack& one : found) {
      HeldBack* before = merged.empty() ? nullptr : &merged.back();
      if (before != nullptr && one.held.begin < before->held.end) {
        if (one.ns > before->ns) *before = std::move(one);
      } else if (before != nullptr && one.late == before->late && StepOf(one) >= 0 && StepOf(one) == StepOf(*before)) {
        const std::int64_t ns = one.ns + before->ns;
        if (Length(one.held) > Length(before->held)) *before = std::move(one);
        before->ns = ns;
      } else {
        merged.push_back(std::move(one));
      }
    }
    std::erase_if(merged, [&](const HeldBack& one) { return one.ns < least_ns_ || !MadeItsStepLonger(one); });
    return merged;
  }

 private:
  // Those behind the largest gap between two arrivals, if they are at most half.
  std::optional<HeldBack> WhoCameLate(std::size_t c, std::int64_t least_ns) const {
    const auto& members = context_.tables().collective_ranks;
    std::vector<std::pair<std::int64_t, std::int32_t>> arrivals;
    for (std::size_t m = context_.timeline().FirstMember(c); m < context_.timeline().FirstMember(c + 1); ++m)
      if (members.exempt[m] != 2) arrivals.emplace_back(members.arrival_ns[m], members.rank[m]);
    if (arrivals.size() < 2) return std::nullopt;
    std::sort(arrivals.begin(), arrivals.end());
    std::size_t first_late = arrivals.size() - 1;
    const auto gap = [&](std::size_t i) { return arrivals[i].first - arrivals[i - 1].first; };
    for (std::size_t i = first_late; i > 0 && !MostOf(arrivals.size() - i, arrivals.size()); --i)
      if (gap(i) > gap(first_late)) first_late = i;
    if (gap(first_late) < least_ns) return std::nullopt;
    HeldBack one{c, {arrivals[first_late - 1].first, arrivals[first_late].first}, {}, {}};
    for (std::size_t i = 0; i < arrivals.size(); ++i)
      (i < first_late ? one.waiting : one.late).push_back(arrivals[i].second);
    std::sort(one.late.begin(), one.late.end());
    std::sort(one.waiting.begin(), one.waiting.end());
    return one;
  }

  // All were in the call, and some of them stood still.
  std::optional<HeldBack> WhoWasStopped(std::size_t c) {
    const auto& members = context_.tables().collective_ranks;
    HeldBack one{c, {t_.last_arrival_ns[c], t_.end_ns[c]}, {}, {}, true};
    const std::size_t begin = context_.timeline().FirstMember(c), end = context_.timeline().FirstMember(c + 1);
    for (std::size_t m = begin; m < std::min(end, begin + rules::kStallRanksAsked); ++m) {
      const auto [stops, fresh] = stops_.try_emplace(members.rank[m]);
      if (fresh) {
        const Result<schema::RankTables> read = context_.ReadActivity(members.rank[m]);
        if (read.ok()) stops->second = StopsOf(read.value());
      }
      const merge::ClockMap clock(context_.tables().clock, members.rank[m]);
      const bool stopped = Stopped(stops->second, {clock.ToLocal(one.held.begin), clock.ToLocal(one.held.end)});
      (stopped ? one.late : one.waiting).push_back(members.rank[m]);
    }
    if (one.late.empty() || one.waiting.empty()) return std::nullopt;
    return one;
  }

  static std::int64_t Length(const Interval& held) { return held.end - held.begin; }
  std::int64_t StepOf(const HeldBack& one) const { return t_.step[one.collective]; }

  // Whoever posted an operation and goes on does not wait. In runs without steps only a blocking call tells.
  bool MadeItsStepLonger(const HeldBack& one) const {
    if (!context_.units_are_steps())
      return t_.mode[one.collective] == static_cast<std::uint8_t>(CollectiveMode::kBlocking);
    if (!longer_ns_.contains(StepOf(one))) return false;
    // What is late in one step of its rank makes the next one of the others longer, and a length is the ranks' mean.
    std::int64_t longer_ns = 0;
    for (std::int64_t step = StepOf(one) - 1; step <= StepOf(one) + 1; ++step)
      if (const auto at = longer_ns_.find(step); at != longer_ns_.end()) longer_ns += at->second;
    return HalfOf(longer_ns, one.ns);
  }

  const Context& context_;
  const schema::TlCollectives& t_;
  std::int64_t least_ns_;
  std::map<std::int32_t, std::vector<Interval>> stops_;  // Of ranks that were asked for.
  std::map<std::int64_t, std::int64_t> longer_ns_;       // By index of a usable step: than steps are as a rule.
};

// What the rank did meanwhile, as far as its calls, samples and ranges tell: "asleep (CPU 0 %), in \"checkpoint\"".
struct DidMeanwhile {
  bool stopped = false;
  std::optional<BlockedAt> blocked;  // Where it was blocked for most of the time.
  Clauses said;
};

DidMeanwhile WhatItDid(const Context& context, const HeldBack& one) {
  const DidMeanwhile stopped{true, {}, {{Say(Word::kStallStopped)}}};
  if (one.stopped) return stopped;
  const std::int32_t rank = one.late.front();
  const Result<schema::RankTables> read = context.ReadRank(rank);
  if (!read.ok()) return {};
  const schema::RankTables& t = read.value();
  const merge::ClockMap clock(context.tables().clock, rank);
  const Interval held{clock.ToLocal(one.held.begin), clock.ToLocal(one.held.end)};
  if (Stopped(StopsOf(t), held)) return stopped;
  std::optional<BlockedAt> blocked;
  for (const auto& [place, sum] : BlockedWithin(t, {held}))
    if (HalfOf(sum.Total(), held.end - held.begin)) blocked = Described(place, sum);
  if (blocked)
    return {false,
            blocked,
            {{Say(Word::kStallItDid, {{"does", Clauses{{DoesFor(*blocked, blocked->ns_per_step, false)}}}})}}};
  const std::uint32_t training = merge::TrainingThread(t);
  CounterCurve cpu({held}), delay({held});
  for (std::size_t i = 0; i < t.cpu_samples.rows(); ++i) {
    if (t.cpu_samples.thread[i] != training) continue;
    cpu.Add(t.cpu_samples.time_ns[i], t.cpu_samples.cpu_ns[i]);
    if (t.cpu_samples.run_delay_ns[i] >= 0) delay.Add(t.cpu_samples.time_ns[i], t.cpu_samples.run_delay_ns[i]);
  }
  const auto share = [&](const CounterCurve& curve) {
    return static_cast<double>(curve.Within(0)) / static_cast<double>(held.end - held.begin);
  };
  std::int64_t shortest_ns = INT64_MAX;
  std::string name;
  for (std::size_t i = 0; i < t.ranges.rows(); ++i) {
    const std::int64_t begin = t.ranges.begin_ns[i], length = t.ranges.duration_ns[i];
    const std::int64_t within = std::min(held.end, begin + length) - std::max(held.begin, begin);
    if (t.ranges.thread[i] != training || !HalfOf(within, held.end - held.begin) || length >= shortest_ns) continue;
    const std::string_view here = trace::TextOf(t, t.ranges.name[i]);
    if (here.empty() || IsProfilerStep(here)) continue;
    shortest_ns = length;
    name = here;
  }
  const Fact range{"range", Printed(name)};
  if (cpu.Within(0) < 0) return {false, {}, name.empty() ? Clauses() : Clauses{{Say(Word::kStallIn, {range})}}};
  const bool ready = share(delay) >= rules::kHalf;
  return {false,
          {},
          {{Say(ready                          ? Word::kStallReady
                : share(cpu) >= rules::kHalf   ? Word::kStallComputing
                : share(cpu) >= rules::kLittle ? Word::kStallMostlyAsleep
                                               : Word::kStallAsleep,
                {{"share", Share{share(ready ? delay : cpu)}}, range})}}};
}

}  // namespace

void FindStalls(const Context& context, Analysis& analysis) {
  const std::int64_t recorded_ns = context.recorded_ns();
  const std::int64_t least_ns = std::max(
      rules::kStallLeastNs, static_cast<std::int64_t>(rules::kStallLeastShare * static_cast<double>(recorded_ns)));
  std::vector<HeldBack> all = StallSearch(context, least_ns).Find();
  const auto longest =
      std::max_element(all.begin(), all.end(), [&](const HeldBack& a, const HeldBack& b) { return a.ns < b.ns; });
  if (longest == all.end() || all.size() > rules::kFewest) return;
  const HeldBack most = *longest;
  std::erase_if(all, [&](const HeldBack& one) { return one.late != most.late; });
  std::int64_t sum_ns = 0;
  Finding finding;
  finding.id = FindingId::kStallOnce;
  finding.explain.columns = {"step", "from_ns", "held_ns"};
  const auto& t = context.tables().collectives;
  const std::int64_t begin_ns = context.units().front().window.begin;
  for (const HeldBack& one : all) {
    sum_ns += one.ns;
    finding.explain.rows.push_back({t.step[one.collective], one.held.begin - begin_ns, one.ns});
  }
  const std::int64_t step = t.step[most.collective];
  const bool whole = most.late.size() + most.waiting.size() >= static_cast<std::size_t>(analysis.run.ranks_expected);
  const DidMeanwhile did = WhatItDid(context, most);
  const Ns from{std::max<std::int64_t>(0, most.held.begin - begin_ns)};
  const Fact late{"late", Ranks{most.late}}, held{"held", Ns{sum_ns}};
  const Fact all_wait{"all", whole}, waiting{"waiting", If(!whole, Ranks{most.waiting})};
  finding.said.brief = {Say(Word::kStallBrief, {late, all_wait, waiting, held})};
  finding.said.headline = {
      Say(all.size() == 1 ? Word::kStallOnce : Word::kStalls,
          {late,
           all_wait,
           waiting,
           held,
           {"stalls", Index{static_cast<std::int64_t>(all.size())}},
           {"longest", Ns{most.ns}},
           {"step", If(step >= 0, Index{step})},
           {"from", If(step < 0, from)},
           {"of_recording", Share{static_cast<double>(sum_ns) / static_cast<double>(std::max(sum_ns, recorded_ns))}},
           {"did", did.said}})};
  finding.said.evidence = {Say(
      Word::kStallEvidence, {{"from", from},
                             {"recorded", Ns{recorded_ns}},
                             {"waiting", Ranks{most.waiting}},
                             {"operation", std::string(Name(static_cast<CollectiveKind>(t.kind[most.collective])))}})};
  finding.blocked = did.blocked;
  finding.said.action = {finding.blocked ? ActionFor(*finding.blocked)
                         : did.stopped   ? Say(Word::kStallStoppedAction, {late})
                                         : Say(Word::kStallAction, {late})};
  finding.rank = most.late.size() == 1 ? most.late.front() : -1;
  finding.took_ns = sum_ns;
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
