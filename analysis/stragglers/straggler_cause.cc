#include "analysis/stragglers/straggler_cause.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "analysis/choose_findings.h"
#include "analysis/core/unrecorded.h"
#include "analysis/stacks/blocked_places.h"
#include "analysis/stragglers/hidden_waiting.h"
#include "analysis/stragglers/stack_evidence.h"
#include "core/interval.h"
#include "core/rules/common.h"
#include "merge/timeline/totals_row.h"

namespace lockstep::analysis {
namespace {

constexpr std::uint8_t kForward = schema::Phase::kForward, kBackward = schema::Phase::kBackward;

using Steps = std::vector<std::size_t>;

// Of a row of step_ranks or rank_totals.
constexpr auto kComputeNs = [](const auto& t, std::size_t row) { return t.compute_ns[row]; };
constexpr auto kBlockedNs = [](const auto& t, std::size_t row) { return t.blocked_ns[row]; };
constexpr auto kOwnNs = [](const auto& t, std::size_t row) { return t.compute_ns[row] + t.blocked_ns[row]; };
// Samples do not tell computing from what is blocked in no recorded call.
constexpr auto kOutsideCallsNs = [](const auto& t, std::size_t row) {
  return t.compute_ns[row] + t.blocked_unplaced_ns[row];
};
constexpr auto kInputNs = [](const auto& t, std::size_t row) { return t.input_ns[row]; };
constexpr auto kIdleNs = [](const auto& t, std::size_t row) { return t.idle_ns[row]; };
constexpr auto kCpuNs = [](const auto& t, std::size_t row) { return t.cpu_ns[row]; };
constexpr auto kOffCpuNs = [](const auto& t, std::size_t row) { return t.offcpu_ns[row]; };
// Of it what certainly is outside calls, in which a thread that spins lacks a core, too, and loses nothing.
constexpr auto kOffCpuOutsideNs = [](const auto& t, std::size_t row) {
  return std::max<std::int64_t>(0, t.offcpu_ns[row] - t.exposed_wait_ns[row] - t.exposed_transfer_ns[row] -
                                       t.exposed_unsplit_ns[row] - t.mpi_other_ns[row]);
};

// Median over these steps of a quantity of a rank; in a run without steps what it has of it in all. Nothing if there
// are none.
template <typename Quantity>
std::optional<std::int64_t> MedianOf(const Context& context, const Steps& steps, std::size_t position,
                                     Quantity&& quantity) {
  std::vector<std::int64_t> values;
  if (const auto& totals = context.tables().rank_totals; !context.units_are_steps()) {
    const std::size_t row = merge::TotalsRow(totals, context.ranks()[position]);
    if (row < totals.rows()) values.push_back(quantity(totals, row));
  }
  for (const std::size_t step : steps)
    if (const std::size_t cell = context.Cell(step, position); cell != kNowhere)
      values.push_back(quantity(context.tables().step_ranks, cell));
  if (values.empty()) return std::nullopt;
  return LowerMedian(std::move(values));
}

// How much more the rank has of a quantity than the median of the others; `theirs`: of another one of theirs.
template <typename Quantity, typename Theirs>
std::optional<std::int64_t> Excess(const Context& context, const Steps& steps, std::size_t position,
                                   Quantity&& quantity, Theirs&& theirs) {
  const auto own = MedianOf(context, steps, position, quantity);
  std::vector<std::int64_t> others;
  for (std::size_t p = 0; p < context.ranks().size(); ++p)
    if (p != position)
      if (const auto value = MedianOf(context, steps, p, theirs)) others.push_back(*value);
  if (!own || others.empty()) return std::nullopt;
  return *own - LowerMedian(std::move(others));
}
template <typename Quantity>
std::optional<std::int64_t> Excess(const Context& context, const Steps& steps, std::size_t position,
                                   Quantity&& quantity) {
  return Excess(context, steps, position, quantity, quantity);
}

// Measures whether the rank's forward and backward passes vary together from step to step. It uses differences between
// neighbouring steps, so that a rank that is slow for a while does not count as one whose work varies.
struct Variation {
  double deviation = 0, correlation = 0;
};
Variation VariationOf(const Context& context, std::size_t position) {
  const auto& phases = context.tables().step_phases;
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> by_step;
  for (std::size_t i = 0; i < phases.rows(); ++i) {
    if (phases.rank[i] != context.ranks()[position] || phases.index[i] < 0) continue;
    if (phases.phase[i] == kForward) by_step[phases.index[i]].first = phases.phase_ns[i];
    if (phases.phase[i] == kBackward) by_step[phases.index[i]].second = phases.phase_ns[i];
  }
  std::vector<double> forward, backward;
  const std::pair<std::int64_t, std::int64_t>* before = nullptr;
  for (const std::size_t row : context.usable_steps()) {
    const auto at = by_step.find(context.tables().steps.index[row]);
    if (at == by_step.end() || at->second.first <= 0 || at->second.second <= 0) continue;
    if (before != nullptr) {
      forward.push_back(std::log(static_cast<double>(at->second.first) / static_cast<double>(before->first)));
      backward.push_back(std::log(static_cast<double>(at->second.second) / static_cast<double>(before->second)));
    }
    before = &at->second;
  }
  if (forward.size() < rules::kFewest) return {};
  double ff = 0, bb = 0, fb = 0;
  for (std::size_t i = 0; i < forward.size(); ++i) {
    ff += forward[i] * forward[i];
    bb += backward[i] * backward[i];
    fb += forward[i] * backward[i];
  }
  // The deviation of one value is that of the difference of two divided by the square root of two.
  return {std::sqrt(ff / static_cast<double>(forward.size()) / 2), ff > 0 && bb > 0 ? fb / std::sqrt(ff * bb) : 0};
}

// Whether they vary more than other ranks' do: a disturbance of all ranks is no evidence about this rank's work.
bool WorkVaries(const Context& context, std::size_t position, const std::vector<std::size_t>& others) {
  const Variation own = VariationOf(context, position);
  if (own.deviation < rules::kNameShare || own.correlation < rules::kNearlyAll) return false;
  std::vector<double> deviations;
  for (const std::size_t other : others) deviations.push_back(VariationOf(context, other).deviation);
  return !deviations.empty() && StandsOut(own.deviation, LowerMedian(std::move(deviations)));
}

Steps OneBefore(const Context& context, const Steps& steps) {
  const Steps& usable = context.usable_steps();
  Steps result;
  for (std::size_t i = 1; i < usable.size(); ++i)
    if (std::find(steps.begin(), steps.end(), usable[i]) != steps.end()) result.push_back(usable[i - 1]);
  return result;
}

// The number of steps between occasions if these are regular, otherwise 0.
std::int64_t PeriodOf(const Context& context, const Steps& steps) {
  if (steps.size() < rules::kRecurs) return 0;
  std::vector<std::int64_t> gaps;
  for (std::size_t i = 1; i < steps.size(); ++i)
    gaps.push_back(context.tables().steps.index[steps[i]] - context.tables().steps.index[steps[i - 1]]);
  const std::int64_t period = LowerMedian(gaps);
  const bool regular = std::all_of(gaps.begin(), gaps.end(), [&](std::int64_t gap) {
    return static_cast<double>(std::llabs(gap - period)) <= rules::kLittle * static_cast<double>(period);
  });
  return period > 1 && regular ? period : 0;
}

// The units in which a rank is late.
struct LateUnits {
  Steps steps;  // Those units that are steps.
  std::vector<std::size_t> units;
  IntervalSet windows;
  std::int64_t price_ns = 0;  // Lower median; in a run without steps in all.
};
LateUnits LateUnitsOf(const Context& context, const std::vector<std::int64_t>& price_by_unit,
                      const Assessment& assessment, double limit_ns) {
  const bool some = assessment.straggler.kind == StragglerKind::kTransient;
  double least = limit_ns;
  if (some) {
    std::vector<std::int64_t> worth;
    for (const std::int64_t ns : price_by_unit)
      if (static_cast<double>(ns) >= limit_ns) worth.push_back(ns);
    least = std::max(least, rules::kHalf * static_cast<double>(LowerQuantile(std::move(worth), rules::kNearlyAll)));
  }
  LateUnits late;
  std::vector<std::int64_t> prices;
  std::vector<Interval> windows;
  for (std::size_t u = assessment.from_unit; u < price_by_unit.size(); ++u) {
    if (some && static_cast<double>(price_by_unit[u]) < least) continue;
    if (context.units()[u].step != kNowhere) late.steps.push_back(context.units()[u].step);
    late.units.push_back(u);
    prices.push_back(price_by_unit[u]);
    windows.push_back(context.units()[u].window);
  }
  late.price_ns = context.units_are_steps() ? LowerMedian(std::move(prices)) : assessment.straggler.saves_ns;
  late.windows = Normalize(std::move(windows));
  return late;
}

// Of each rank, whether its calls take none of its training thread's CPU time. Of backends that are not recorded it is
// not known.
std::vector<bool> SleepsInCalls(const Context& context, const RankActivities& read) {
  const bool recorded = FindUnrecorded(context.timeline()).backends.empty();
  std::vector<bool> sleeps;
  for (std::size_t p = 0; p < context.ranks().size(); ++p) {
    const ExposedActivity* activity = recorded ? read.Of(p) : nullptr;
    sleeps.push_back(activity != nullptr && activity->sleeps_in_calls);
  }
  return sleeps;
}

// The same from what the steps took of the CPU altogether, where samples do not tell computing from communication. In a
// call a thread may spin or sleep, so that what its computing took is known within the length of its calls: it is used
// if that decides what the rank's excess is (CauseOfCompute). Waiting for helpers is asleep, and so are all calls where
// other threads carry everything.
void CompareCpuTimeOfSteps(const Context& context, const RankActivities& read, std::size_t r, const LateUnits& late,
                           StragglerCause& cause) {
  if (context.ranks().size() < 2) return;
  const std::vector<bool> sleeps = SleepsInCalls(context, read);
  const auto least = [&](const auto& t, std::size_t row) {
    const std::size_t position = context.Position(t.rank[row]);
    if (position != kNowhere && sleeps[position]) return t.cpu_ns[row];
    const std::int64_t calls = t.exposed_wait_ns[row] + t.exposed_transfer_ns[row] + t.exposed_unsplit_ns[row] +
                               t.mpi_other_ns[row] - t.helper_wait_ns[row];
    return std::max<std::int64_t>(0, t.cpu_ns[row] - calls);
  };
  for (std::size_t p = 0; p < context.ranks().size(); ++p)
    if (MedianOf(context, late.steps, p, kCpuNs).value_or(-1) < 0) return;  // Not known.
  const std::int64_t high_ns = *Excess(context, late.steps, r, kCpuNs, least);
  const std::int64_t low_ns = *Excess(context, late.steps, r, least, kCpuNs);
  const std::int64_t compute = cause.more_compute_ns.value_or(0);
  if (!MuchOf(high_ns, compute))
    cause.more_cpu_ns = high_ns;
  else if (MuchOf(low_ns, compute))
    cause.more_cpu_ns = low_ns;
  else
    return;
  if (MedianOf(context, late.steps, r, kOffCpuNs).value_or(-1) >= 0)
    cause.more_delay_ns = Excess(context, late.steps, r, kOffCpuNs);
}

// Compares how much longer the rank's computing runs on a core, and is ready to run without one, with the median of the
// others.
void CompareCpuTime(const Context& context, const RankActivities& read, std::size_t r, const LateUnits& late,
                    StragglerCause& cause) {
  const ExposedActivity* own = read.Of(r);
  if (own == nullptr || own->cpu_share < 0) return;
  const auto part = [&](std::size_t p, double share) -> std::optional<std::int64_t> {
    const auto compute = MedianOf(context, late.steps, p, kOutsideCallsNs);
    if (!compute || share < 0) return std::nullopt;
    return static_cast<std::int64_t>(static_cast<double>(*compute) * share);
  };
  std::vector<std::int64_t> cpu, delay;
  for (std::size_t w = 0; w < read.activities.size(); ++w) {
    const std::size_t p = read.positions[w];
    if (p == r) continue;
    const auto [on, off] = read.activities[w].CpuShares(late.windows);
    if (const auto ns = part(p, on)) cpu.push_back(*ns);
    if (const auto ns = part(p, off)) delay.push_back(*ns);
  }
  const auto [on, off] = own->CpuShares(late.windows);
  if (const auto ns = part(r, on); ns && !cpu.empty()) cause.more_cpu_ns = *ns - LowerMedian(std::move(cpu));
  if (const auto ns = part(r, off); ns && !delay.empty()) cause.more_delay_ns = *ns - LowerMedian(std::move(delay));
}

// Other threads compute for the training thread while it waits for them (OpenMP).
void CompareOthers(const RankActivities& read, std::size_t r, const LateUnits& late, StragglerCause& cause) {
  const ExposedActivity* own = read.Of(r);
  const std::int64_t own_ns = own == nullptr ? -1 : own->MeanOfOthers(late.windows);
  std::vector<std::int64_t> theirs;
  for (std::size_t w = 0; w < read.activities.size(); ++w)
    if (const std::int64_t ns = read.activities[w].MeanOfOthers(late.windows); read.positions[w] != r && ns >= 0)
      theirs.push_back(ns);
  if (own_ns >= 0 && !theirs.empty()) cause.more_others_cpu_ns = own_ns - LowerMedian(std::move(theirs));
}

// What most of the additional compute time is, by CPU time if that is known.
CauseId CauseOfCompute(const StragglerCause& cause) {
  if (!cause.more_cpu_ns) return CauseId::kCompute;
  const std::int64_t compute = cause.more_compute_ns.value_or(0);
  const std::int64_t cpu = std::max(*cause.more_cpu_ns, cause.more_others_cpu_ns.value_or(0));
  const bool delayed = cause.more_delay_ns && HalfOf(*cause.more_delay_ns, compute);
  if (MuchOf(cpu, compute)) return CauseId::kCompute;
  return delayed ? CauseId::kStarved : CauseId::kWaiting;
}

}  // namespace

StragglerCause Explain(const Context& context, const Analysis& analysis, std::size_t r, const RankActivities& read,
                       const std::vector<std::int64_t>& price_by_unit, const Assessment& assessment, double limit_ns) {
  const LateUnits late = LateUnitsOf(context, price_by_unit, assessment, limit_ns);
  const bool some = assessment.straggler.kind == StragglerKind::kTransient;
  const bool gpu = context.tables().ranks.gpu[context.RankRow(r)] != 0;
  // A GPU's window ends with the next step's first kernel, so a delay of that kernel is in the window before.
  const Steps before = gpu && some ? OneBefore(context, late.steps) : Steps();
  const auto more = [&](auto quantity) {
    const auto here = Excess(context, late.steps, r, quantity), there = Excess(context, before, r, quantity);
    return here && there ? std::max(here, there) : here;
  };
  StragglerCause cause;
  cause.per_step = context.units_are_steps();
  cause.more_compute_ns = Excess(context, late.steps, r, kComputeNs);
  cause.more_blocked_ns = Excess(context, late.steps, r, kBlockedNs);
  cause.more_input_ns = more(kInputNs);
  cause.units = late.units;
  cause.price_ns = late.price_ns;
  const std::optional<std::int64_t> more_own_ns = Excess(context, late.steps, r, kOwnNs);
  CompareCpuTime(context, read, r, late, cause);
  if (!cause.more_cpu_ns && !gpu) CompareCpuTimeOfSteps(context, read, r, late, cause);
  // Calls read how long a thread lacked a core seldom or never; the agent knows it of all of the recording.
  if (!cause.more_delay_ns && !context.units_are_steps() && MedianOf(context, {}, r, kOffCpuNs).value_or(-1) >= 0)
    if (const auto ns = Excess(context, {}, r, kOffCpuOutsideNs, kOffCpuNs))
      cause.more_delay_ns = std::min(*ns, cause.more_compute_ns.value_or(0));
  CompareOthers(read, r, late, cause);

  // Where others wait for the rank's messages only, no collective says what that costs, and the least that is worth
  // naming stands for it.
  const auto explains = [&](std::optional<std::int64_t> ns, double price_ns) {
    return HalfOf(ns.value_or(0), price_ns);
  };
  const auto cause_of = [&](double price_ns) {
    if (explains(cause.more_input_ns, price_ns)) return CauseId::kInput;
    if (explains(more_own_ns, price_ns))
      return HalfOf(cause.more_blocked_ns.value_or(0), *more_own_ns) ? CauseId::kWaiting : CauseOfCompute(cause);
    return gpu && explains(more(kIdleNs), price_ns) ? CauseId::kHost : CauseId::kUnknown;
  };
  cause.id = cause_of(late.price_ns > 0 ? static_cast<double>(late.price_ns) : limit_ns);
  // Ranks that wait for each other by turns wait longer for one than the step would be shorter without what slows it:
  // what they wait for each other otherwise stays.
  if (cause.id == CauseId::kUnknown && assessment.straggler.kind == StragglerKind::kPersistent &&
      context.units_are_steps()) {
    if (const auto gain_ns = static_cast<double>(GainByReplay(context, r)); gain_ns >= limit_ns)
      cause.id = cause_of(gain_ns);
    // Its work, all of it like the others', would end their turns, too; with no more input than theirs it is late no
    // more.
    if (const auto more_ns = static_cast<double>(cause.more_input_ns.value_or(0));
        cause.id == CauseId::kUnknown && more_ns >= limit_ns)
      if (const auto gain_ns = static_cast<double>(GainWithoutMoreInput(context, r));
          gain_ns >= limit_ns && HalfOf(gain_ns, more_ns))
        cause.id = CauseId::kInput;
  }
  std::vector<std::size_t> others;
  for (const std::size_t p : read.positions)
    if (p != r) others.push_back(p);
  if (cause.id == CauseId::kCompute && gpu) {
    cause.gpu = SlowClockOf(analysis, context.ranks()[r]);
    if (cause.gpu) {
      cause.id = CauseId::kClock;
    } else if (auto kernels = SlowKernelsOf(context, r, others, late.steps)) {
      cause.id = kernels->all ? CauseId::kClock : CauseId::kKernel;
      cause.kernels = std::move(kernels);
    }
  }
  if (cause.id == CauseId::kCompute && assessment.straggler.kind == StragglerKind::kPersistent &&
      WorkVaries(context, r, others))
    cause.id = CauseId::kImbalance;
  if (some && (cause.id == CauseId::kCompute || cause.id == CauseId::kWaiting || cause.id == CauseId::kHost))
    if (cause.period = PeriodOf(context, late.steps); cause.period > 0) cause.id = CauseId::kPeriodic;
  return cause;
}

Clause ActionFor(const StragglerCause& cause, const std::vector<std::int32_t>& ranks,
                 const std::set<std::string>& hosts) {
  if (cause.blocked) return ActionFor(*cause.blocked);
  const bool several = ranks.size() > 1;
  const Fact of{"ranks", Ranks{ranks}};
  const Value host = hosts.size() > 1         ? Clauses{{Say(Word::kStragglersHosts)}}
                     : hosts.begin()->empty() ? Clauses{{Say(Word::kStragglerHostOf, {of})}}
                                              : Value(*hosts.begin());
  const auto say = [&](Word word) { return Say(word, {of, {"host", host}}); };
  switch (cause.id) {
    case CauseId::kInput:
      return say(Word::kStragglerInputAction);
    case CauseId::kStarved:
      return say(Word::kStragglerStarvedAction);
    case CauseId::kWaiting:
      return say(Word::kStragglerWaitingAction);
    case CauseId::kClock:
      return say(several ? Word::kStragglersClockAction : Word::kStragglerClockAction);
    case CauseId::kKernel:
      return say(Word::kStragglerKernelAction);
    case CauseId::kHost:
      return say(Word::kStragglerHostAction);
    case CauseId::kPeriodic:
      return Say(Word::kStragglerPeriodicAction, {of, {"period", Index{cause.period}}});
    case CauseId::kImbalance:
      return say(Word::kStragglerImbalanceAction);
    case CauseId::kCompute:
      return say(several ? Word::kStragglersComputeAction : Word::kStragglerComputeAction);
    case CauseId::kUnknown:
      break;
  }
  return Say(Word::kStragglerUnknownAction, {of, {"number", Index{0}}});
}

namespace {

Clause ByKernels(const KernelEvidence& kernels) {
  const Fact factor{"factor", Real{kernels.factor}}, kernel{"kernel", kernels.names.front()};
  if (kernels.all) return Say(Word::kStragglerAllKernels, {factor});
  if (kernels.names.size() == 1) return Say(Word::kStragglerKernel, {kernel, factor});
  const Value more = If(kernels.more > 0, Index{static_cast<std::int64_t>(kernels.more)});
  return Say(Word::kStragglerKernels, {kernel, {"next_kernel", kernels.names[1]}, {"more", more}, factor});
}

// Nothing where nothing more is known of it.
Clauses ByCause(const StragglerCause& cause) {
  const Ns cpu{cause.more_cpu_ns.value_or(0)}, others_cpu{cause.more_others_cpu_ns.value_or(0)};
  const Ns delay{cause.more_delay_ns.value_or(0)}, blocked{cause.more_blocked_ns.value_or(0)};
  if (cause.blocked)
    return {
        {Say(Word::kStragglerBlocked, {{"does", Clauses{{DoesFor(*cause.blocked, cause.blocked->ns_per_step, false)}}},
                                       {"per_step", cause.per_step},
                                       {"others_blocked", Ns{cause.blocked->others_ns_per_step.value_or(0)}},
                                       {"how_often", HowOften(*cause.blocked)}})}};
  if (cause.gpu) return {{ClauseOf(*cause.gpu)}};
  if (cause.kernels) return {{ByKernels(*cause.kernels)}};
  switch (cause.id) {
    case CauseId::kInput:
      return {{Say(Word::kStragglerInput, {{"input", Ns{*cause.more_input_ns}}})}};
    case CauseId::kHost:
      return {{Say(Word::kStragglerHost)}};
    case CauseId::kPeriodic:
      return {{Say(Word::kStragglerPeriod, {{"period", Index{cause.period}}})}};
    case CauseId::kImbalance:
      return {{Say(Word::kStragglerImbalance)}};
    case CauseId::kWaiting:
      return {
          {blocked.value > 0 ? Say(Word::kStragglerOffCpu, {{"blocked", blocked}}) : Say(Word::kStragglerNoMoreCpu)}};
    case CauseId::kCompute:
      if (!cause.more_cpu_ns) return {};
      if (others_cpu.value > cpu.value) return {{Say(Word::kStragglerOthersCpu, {{"cpu", others_cpu}})}};
      return {{Say(Word::kStragglerCpu,
                   {{"cpu", cpu},
                    {"delay", If(delay.value > 0 && MuchOf(delay.value, cause.more_compute_ns.value_or(0)), delay)}})}};
    case CauseId::kStarved:
      return {{Say(Word::kStragglerStarved, {{"delay", delay}})}};
    default:
      return {};
  }
}

void SayWhereAndWhen(const StragglerCause& cause, const Straggler& straggler, std::vector<Clause>& evidence) {
  if (cause.stack) evidence.push_back(ClauseOf(*cause.stack));
  if (straggler.onset_step)
    evidence.push_back(Say(Word::kStragglerSinceStep, {{"onset_step", Index{*straggler.onset_step}}}));
  if (straggler.onset_ns) evidence.push_back(Say(Word::kStragglerSince, {{"onset", Ns{*straggler.onset_ns}}}));
  if (Clauses stretch = StretchOf(straggler); !stretch.all.empty())
    evidence.push_back(Say(Word::kStragglerOnly, {{"when", std::move(stretch)}}));
  else if (straggler.kind == StragglerKind::kTransient)
    evidence.push_back(Say(straggler.saves_ns_per_step ? Word::kStragglerSomeSteps : Word::kStragglerAtTimes));
}

}  // namespace

Clauses StretchOf(const Straggler& straggler) {
  if (!straggler.first_step) return {};
  if (straggler.first_step == straggler.last_step)
    return {{Say(Word::kStragglerInStep, {{"step", Index{*straggler.first_step}}})}};
  return {{Say(Word::kStragglerInSteps,
               {{"first_step", Index{*straggler.first_step}}, {"last_step", Index{*straggler.last_step}}})}};
}

std::vector<Clause> EvidenceFor(const Analysis& analysis, std::size_t r, const StragglerCause& cause,
                                const Straggler& straggler) {
  std::vector<Clause> evidence;
  if (r < analysis.ranks.size() && r < analysis.arrivals.size()) {
    const ArrivalRow& arrival = analysis.arrivals[r];
    const std::int64_t late_ns = analysis.ranks[r].late_ns_median.value_or(0);
    std::int64_t all_ns = 0;
    for (const ArrivalRow& each : analysis.arrivals) all_ns += each.charge_ns;
    const Fact late{"late", If(late_ns > 0 && arrival.collectives > 0, Ns{late_ns})};
    const Fact collectives{"collectives", Num{arrival.collectives}};
    // A rank that messages make others late by need not be the last itself, nor late in half of the collectives.
    if (!HalfOf(arrival.last, arrival.collectives) && MostOf(arrival.charge_ns, all_ns))
      evidence.push_back(Say(Word::kStragglerLastByTime, {{"last", Num{arrival.last}},
                                                          collectives,
                                                          {"late_in_all", Ns{arrival.charge_ns}},
                                                          {"late_of_all_ranks", Ns{all_ns}},
                                                          late}));
    else if (arrival.collectives > 0 && arrival.last > 0)
      evidence.push_back(Say(Word::kStragglerLastOften, {{"last", Share{static_cast<double>(arrival.last) /
                                                                        static_cast<double>(arrival.collectives)}},
                                                         collectives,
                                                         late}));
    else if (late_ns > 0 && arrival.collectives > 0)
      evidence.push_back(Say(Word::kStragglerLate, {late}));
  }
  AddTo(evidence, ByCause(cause).all);
  SayWhereAndWhen(cause, straggler, evidence);
  evidence.push_back(Say(Word::kStragglerChance, {{"p_value", Probability{straggler.p_value}}}));
  return evidence;
}

Clause BriefFor(const StragglerCause& cause) {
  if (cause.id == CauseId::kInput) return Say(Word::kStragglerLoadsInputBrief, {{"input", Ns{*cause.more_input_ns}}});
  if (cause.blocked) return DoesFor(*cause.blocked, cause.blocked->ns_per_step, true);
  if (cause.id == CauseId::kWaiting && cause.more_blocked_ns.value_or(0) > 0)
    return Say(Word::kStragglerOffCpuBrief, {{"blocked", Ns{*cause.more_blocked_ns}}});
  // If the cause is another one, slightly longer computing beside it does not describe it.
  const bool computes = cause.id != CauseId::kHost && cause.id != CauseId::kUnknown;
  if (computes && cause.more_compute_ns.value_or(0) > 0)
    return Say(Word::kStragglerComputesBrief, {{"compute", Ns{*cause.more_compute_ns}}});
  return Say(Word::kStragglerArrivesLastBrief);
}

std::vector<Clause> BriefEvidenceFor(const Analysis& analysis, std::size_t r, const StragglerCause& cause,
                                     const Straggler& straggler, const std::string& host) {
  // What each of them costs alone is its price, which is in its row (prices.cc).
  const OptInt late_ns = r < analysis.ranks.size() ? analysis.ranks[r].late_ns_median : std::nullopt;
  std::vector<Clause> evidence{Say(late_ns ? Word::kStragglersRankLate : Word::kStragglersRankLast,
                                   {{"rank", Index{straggler.rank}},
                                    {"host", host},
                                    {"late", If(late_ns.has_value(), Ns{late_ns.value_or(0)})},
                                    {"why", ByCause(cause)}})};
  SayWhereAndWhen(cause, straggler, evidence);
  return evidence;
}

}  // namespace lockstep::analysis
