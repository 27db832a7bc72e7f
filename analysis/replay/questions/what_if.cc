#include "analysis/replay/questions/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "analysis/core/statistics.h"
#include "analysis/replay/graph/awaited.h"
#include "analysis/replay/questions/equal_work.h"
#include "analysis/replay/questions/more_ranks.h"
#include "analysis/replay/questions/perfect_schedule.h"
#include "analysis/replay/questions/prefetch.h"
#include "analysis/rules/replay.h"
#include "core/rules/common.h"

namespace lockstep::replay {
namespace {

// Names the longest part of the step's critical chain.
std::string LimitOf(const RecordedRun& run, const Job& job, const Schedule& schedule) {
  const std::uint32_t last = job.LastEnd(schedule);
  if (last == kNone) return {};
  const bool gpu = std::any_of(job.operations.begin(), job.operations.end(),
                               [](const JobOperation& about) { return about.role == Role::kKernel; });
  // Ranks that a question adds have no number of their own: the slowest of them delays the others.
  const auto of_rank = [&](std::string_view what, std::uint32_t rank) {
    return rank < run.ranks.size() ? fmt::format("{} of rank {}", what, run.ranks[rank])
                                   : fmt::format("{} of the slowest rank", what);
  };
  const auto name_of = [&](const JobOperation& about) -> std::string {
    switch (about.role) {
      case Role::kMember:
      case Role::kExit:
      case Role::kMessage:
        return "communication";
      case Role::kWork:
      case Role::kLaunch:
        return of_rank(gpu ? "host work" : "work", about.rank);
      case Role::kKernel:
        return of_rank("kernels", about.rank);
      case Role::kCopy:
        return of_rank("copies", about.rank);
      case Role::kCall:
        if (gpu) return "communication with ranks that are not here";
        [[fallthrough]];
      default:
        return gpu ? "launches and synchronisation" : "MPI calls";
    }
  };
  std::map<std::string, std::int64_t> shares;
  std::int64_t whole = 0;
  const std::vector<std::uint32_t> chain = CriticalChain(job.graph, schedule, last);
  for (std::size_t k = 1; k < chain.size(); ++k) {
    const JobOperation& about = job.operations[chain[k]];
    const std::int64_t ns = schedule.end_ns[chain[k]] - schedule.end_ns[chain[k - 1]];
    if (ns <= 0 || about.rank == kNone) continue;
    whole += ns;
    shares[name_of(about)] += ns;
  }
  if (whole == 0) return {};
  const auto most =
      std::max_element(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} ({:.0f} % of what the {} waits for)", most->first,
                     100 * static_cast<double>(most->second) / static_cast<double>(whole),
                     run.whole_window ? "run" : "step");
}

void Note(Answer* answer, std::string text) {
  if (answer != nullptr) answer->caveats.push_back(std::move(text));
}

void FreeCommunication(Job& job) {
  for (std::size_t i = 0; i < job.operations.size(); ++i) {
    const Role role = job.operations[i].role;
    if (role == Role::kMember || role == Role::kExit || role == Role::kMessage || job.operations[i].message != kNone)
      job.graph.operations()[i].duration_ns = 0;
  }
}

// Messages have no cost table and are unchanged.
void ScaleNetwork(const RecordedRun& run, const std::optional<CostModel::Line>& line, double bandwidth, double latency,
                  Job& job) {
  auto& operations = job.graph.operations();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const JobOperation& about = job.operations[i];
    if (about.role != Role::kMember && about.role != Role::kExit) continue;
    const auto bytes = static_cast<double>(run.collectives[about.collective].bytes);
    const double alpha = line ? line->alpha_ns : 0, beta = line ? line->beta_ns_per_byte * bytes : 1;
    const double factor = alpha + beta > 0 ? (alpha * latency + beta / bandwidth) / (alpha + beta) : 1;
    const auto now = static_cast<double>(operations[i].duration_ns);
    // A transfer that is already faster than the ranks' memory or links is unchanged.
    const double floor = about.role == Role::kMember ? std::min(now, bytes / run.floor_bytes_per_ns()) : 0;
    operations[i].duration_ns = std::llround(std::max(floor, now * factor));
  }
}

// Whether a question's graph is made by MakeJob with options; other graphs do not support interference.
bool UsesInterference(const Question& question) {
  const auto plain = [](const Question& each) {
    return each.kind == Question::kPrefetch || each.kind == Question::kMoreRanks ||
           each.kind == Question::kPerfectSchedule;
  };
  return !plain(question) && std::none_of(question.together.begin(), question.together.end(), plain);
}

// Whether transfers begin at other times of the work than they did.
bool MovesBesideWork(const Question& question) {
  const auto buckets = [](const Question& each) { return each.kind == Question::kBucketCap; };
  return UsesInterference(question) &&
         (buckets(question) || std::any_of(question.together.begin(), question.together.end(), buckets));
}

}  // namespace

Result<WhatIf> WhatIf::Make(std::unique_ptr<RecordedRun> run, std::vector<std::unique_ptr<RecordedRun>> calibration) {
  WhatIf what_if;
  what_if.run_ = std::move(run);
  what_if.calibration_ = std::move(calibration);
  what_if.buckets_ = what_if.run_->FindBuckets();
  std::vector<const RecordedRun*> others;
  for (const auto& other : what_if.calibration_) others.push_back(other.get());
  const auto play = [&]() -> Status {
    const Interference& interference = what_if.interference_.value;
    const Job job = what_if.run_->MakeJob({.interference = interference});
    LS_TRY(const Schedule schedule, Simulator(job.graph).Run(interference));
    what_if.replayed_ns_ = job.StepLengths(schedule);
    what_if.communicates_ = std::any_of(job.operations.begin(), job.operations.end(), [](const JobOperation& about) {
      return about.role == Role::kMember || about.role == Role::kMessage;
    });
    return Ok();
  };
  LS_CHECK(play());
  const double plain_error = what_if.self_error();
  what_if.interference_ = what_if.run_->EstimateInterference(others);
  if (what_if.interference_.value.any()) {
    LS_CHECK(play());
    // Whatever the estimate, the error of the replay without changes has priority.
    if (what_if.self_error() > plain_error + rules::kWhatIfInterferenceMostError) {
      what_if.interference_ = {.possible = what_if.interference_.possible};
      LS_CHECK(play());
    }
  }
  if (what_if.buckets_) what_if.AddBases(others);
  return what_if;
}

std::int64_t WhatIf::measured_step_ns() const { return MeanStep(*run_, Comparable(run_->measured_step_ns)); }
std::int64_t WhatIf::replayed_step_ns() const { return MeanStep(*run_, Comparable(replayed_ns_)); }

double WhatIf::self_error() const {
  std::vector<double> errors;
  for (std::size_t i = replayed_ns_.size() > 1; i < replayed_ns_.size(); ++i)
    errors.push_back(std::abs(static_cast<double>(replayed_ns_[i] - run_->measured_step_ns[i])) /
                     static_cast<double>(std::max<std::int64_t>(1, run_->measured_step_ns[i])));
  return LowerMedian(std::move(errors));
}

Result<WhatIf::ChangedJob> WhatIf::Changed(const Question& question, const Assumptions& assume, Answer* answer) const {
  if (question.kind == Question::kMoreRanks) {
    Note(answer, "an extrapolation: the work of a rank and the bus bandwidth stay, the latency grows with the ranks");
    if (answer != nullptr) answer->extrapolated = true;
    LS_TRY(Job more,
           WithMoreRanks(*run_, costs_, question.rank_count, assume.growth, rules::kWhatIfSeed + assume.draw));
    return ChangedJob{std::move(more), {}};
  }
  const std::vector<Question> all =
      question.kind == Question::kTogether ? question.together : std::vector<Question>{question};
  // A question changes the run first, then the graph made from it.
  std::unique_ptr<RecordedRun> other;
  JobOptions options{.interference = assume.interference};
  for (const Question& each : all) {
    if (each.kind == Question::kNoOverlap) options.wait_for_overlap = false;
    if (each.kind == Question::kProgress) options.progress = true;
    if (each.kind == Question::kSendsGo) options.sends_wait = false;
    if (each.kind != Question::kBucketCap) continue;
    LS_TRY(other, OtherBuckets(each, assume.cost_factor, answer));
  }
  const RecordedRun& run = other ? *other : *run_;
  Job job = run.MakeJob(options);
  if (!options.wait_for_overlap) MoveOnlyWhenAwaited(job);
  bool another = other != nullptr;  // The graph is not the run's own.
  for (const Question& each : all) {
    if (each.kind != Question::kPrefetch) continue;
    std::optional<Job> earlier = WithPrefetch(run, each.depth);
    if (!earlier)
      return Error{ErrorCode::kUnsupported, "the steps do not gather parameters in the same order on all ranks", "",
                   "prefetching can be predicted for jobs that all-gather the same units every step"};
    job = std::move(*earlier);
    another = true;
    if (run.moves_in_calls())
      Note(answer, each.depth > 0 && job.moved_in_wait == 0
                       ? "assumes that data moves while ranks compute; an MPI library that is not called moves less, "
                         "down to no gain"
                       : "assumes that posted gathers moved only in their waits; otherwise the cost is higher");
  }
  for (const Question& each : all) {
    if (each.kind != Question::kEdit) continue;
    if (another)
      return Error{ErrorCode::kUnsupported, "these changes are made to different graphs of the run", "",
                   "ask about one after the other"};
    each.edit(job);
  }
  for (const Question& each : all) {
    if (each.kind == Question::kWithoutRanks) EqualiseWork(run, each.ranks, job);
    if (each.kind == Question::kEqualRanks) {
      LS_TRY(job, WithEqualWork(run, assume, std::move(job)));
    }
    if (each.kind == Question::kFreeCommunication) FreeCommunication(job);
    if (each.kind == Question::kNetwork) {
      const auto line = costs_.AlphaBeta();
      if (!line && (costs_.usable_sizes() > 1 || each.bandwidth == 1))
        return Error{ErrorCode::kUnsupported,
                     costs_.usable_sizes() > 1 ? "transfers of more bytes took no longer in this run"
                                               : "transfers of several sizes are needed to tell latency from bandwidth",
                     "", "record or --calibrate with a run of other sizes; --free-communication gives the bound"};
      if (!line)
        Note(answer,
             "not known what of a transfer is latency: all of it scales with bandwidth, the interval reaches to none");
      ScaleNetwork(run, line, each.bandwidth, each.latency, job);
    }
    if (each.kind == Question::kOverlap) {
      if (other || !buckets_ || !HasBlockingReductions(run, *buckets_, job))
        return Error{ErrorCode::kUnsupported, "there are no blocking reductions of gradients to post instead", "",
                     "what is posted already overlaps as far as its wait allows"};
      PostReductions(run, *buckets_, job);
      Note(answer, "assumes that nothing between the reductions of a step needs their results");
    }
  }
  std::vector<std::uint32_t> predicted;
  if (other)
    for (std::uint32_t i = 0; i < job.operations.size(); ++i)
      if (const JobOperation& about = job.operations[i];
          about.role == Role::kMember && other->collectives[about.collective].transfer_ns >= 0)
        predicted.push_back(i);
  return ChangedJob{std::move(job), std::move(predicted)};
}

Result<std::vector<std::int64_t>> WhatIf::Play(const Job& job, const Simulator& simulator, const Assumptions& assume,
                                               Answer* answer) const {
  Result<Schedule> schedule = simulator.Run(assume.interference);
  if (!schedule.ok()) {
    // Make has replayed the run itself, so the change is the reason.
    return Error{ErrorCode::kUnsupported, "it is unknown what the ranks would wait for then", schedule.error().where,
                 "the trace does not show all of what threads wait for: wait in MPI calls (MPI_Wait), or without a "
                 "thread that completes collectives for others"};
  }
  if (answer != nullptr) answer->limit = LimitOf(*run_, job, schedule.value());
  return job.StepLengths(schedule.value());
}

// Which ranks could do whose work is not recorded: of the two ways to spread it the shorter step counts.
Result<Job> WhatIf::WithEqualWork(const RecordedRun& run, const Assumptions& assume, Job job) const {
  Job alike = job;
  if (!EvenOutWork(run, Spread::kOverAll, job)) return job;
  EvenOutWork(run, Spread::kOverAlike, alike);
  LS_TRY(const std::vector<std::int64_t> all_ns, Play(job, Simulator(job.graph), assume, nullptr));
  LS_TRY(const std::vector<std::int64_t> alike_ns, Play(alike, Simulator(alike.graph), assume, nullptr));
  return MeanStep(run, Comparable(alike_ns)) < MeanStep(run, Comparable(all_ns)) ? std::move(alike) : std::move(job);
}

Result<std::int64_t> WhatIf::StepUnder(const Question& question, const Assumptions& assume) const {
  LS_TRY(const ChangedJob changed, Changed(question, assume, nullptr));
  LS_TRY(std::vector<std::int64_t> lengths, Play(changed.job, Simulator(changed.job.graph), assume, nullptr));
  return MeanStep(*run_, Comparable(std::move(lengths)));
}

// The best of the better schedules; the recorded one if there is none.
Result<std::vector<std::int64_t>> WhatIf::BestLengths(Answer* answer) const {
  std::vector<std::int64_t> best = replayed_ns_;
  for (const Job& job : BetterSchedules(*run_, buckets_, costs_, times_)) {
    const Result<Schedule> schedule = Simulator(job.graph).Run();
    if (!schedule.ok()) continue;
    std::vector<std::int64_t> lengths = job.StepLengths(schedule.value());
    if (MeanStep(*run_, Comparable(lengths)) >= MeanStep(*run_, Comparable(best))) continue;
    best = std::move(lengths);
    if (answer != nullptr) answer->limit = LimitOf(*run_, job, schedule.value());
  }
  return best;
}

Result<WhatIf::Range> WhatIf::RangeOf(const Question& question, const Assumptions& assume, const Answer& answer,
                                      std::int64_t predicted_ns, ChangedJob& changed,
                                      const Simulator* simulator) const {
  Range range;
  const auto add_less = [&](std::int64_t step_ns) { range.less_ns = std::max(range.less_ns, predicted_ns - step_ns); };
  const auto add_more = [&](std::int64_t step_ns) { range.more_ns = std::max(range.more_ns, step_ns - predicted_ns); };
  Assumptions other = assume;
  if (question.kind == Question::kMoreRanks) {
    other.draw = 1;
    LS_TRY(const std::int64_t redrawn_ns, StepUnder(question, other));
    add_less(redrawn_ns);
    add_more(redrawn_ns);
    other = assume;
    other.growth = LatencyGrowth::kTree;
    LS_TRY(const std::int64_t tree_ns, StepUnder(question, other));
    add_less(tree_ns);
  }
  // Costs may have the error of the interpolation, all in one direction.
  double factor = 1;
  for (const std::uint64_t bytes : answer.bucket_bytes)
    if (const auto cost = costs_.At(bytes)) factor = std::max(factor, cost->factor);
  if (factor != 1) {
    LS_TRY(const std::int64_t dear_ns, StepAtCosts(question, assume, factor, changed, *simulator));
    add_more(dear_ns);
    LS_TRY(const std::int64_t cheap_ns, StepAtCosts(question, assume, 1 / factor, changed, *simulator));
    add_less(cheap_ns);
  }
  if (assume.interference.any()) {
    // The mutual slowdown of computing and communicating is only known within its interval.
    for (const double slowdown : {interference_.compute_interval.first, interference_.compute_interval.second}) {
      other = assume;
      other.interference.compute_slowdown = slowdown;
      LS_TRY(const std::int64_t step_ns, StepUnder(question, other));
      add_less(step_ns);
      add_more(step_ns);
    }
  }
  // Other buckets move beside work of which the run does not show what it takes from them, nor they from it.
  if (interference_.possible.any() && MovesBesideWork(question)) {
    other = assume;
    const auto at_least = [](double& slowdown, double possible) { slowdown = std::max(slowdown, possible); };
    at_least(other.interference.compute_slowdown, interference_.possible.compute_slowdown);
    at_least(other.interference.transfer_slowdown, interference_.possible.transfer_slowdown);
    LS_TRY(const std::int64_t step_ns, StepUnder(question, other));
    add_more(step_ns);
  }
  // If there is one size only, all of a transfer counts as bandwidth, but may be latency.
  const auto of_network = [](const Question& each) { return each.kind == Question::kNetwork; };
  if ((of_network(question) || std::any_of(question.together.begin(), question.together.end(), of_network)) &&
      !costs_.AlphaBeta())
    range.more_ns = std::max(range.more_ns, answer.gain_ns);
  // If gathers are blocking now, it is unknown whether data moves while no rank is in MPI.
  if (question.kind == Question::kPrefetch && question.depth > 0 && run_->moves_in_calls())
    range.more_ns = std::max(range.more_ns, answer.gain_ns);
  return range;
}

Result<Answer> WhatIf::Ask(const Question& question, bool intervals) const {
  Answer answer;
  LS_CHECK(Describe(question, answer));
  LS_CHECK(Answerable(question));
  const Assumptions assume{.interference = UsesInterference(question) ? interference_.value : Interference{}};
  ChangedJob changed;
  std::optional<Simulator> simulator;
  std::vector<std::int64_t> lengths;
  if (question.kind == Question::kPerfectSchedule) {
    LS_TRY(lengths, BestLengths(&answer));
  } else {
    LS_TRY(changed, Changed(question, assume, &answer));
    simulator.emplace(changed.job.graph);
    LS_TRY(lengths, Play(changed.job, *simulator, assume, &answer));
  }
  const std::int64_t predicted_ns = MeanStep(*run_, Comparable(lengths));
  LS_TRY(const double apart, CorrectByBases(question, answer.bucket_bytes, lengths));

  const std::vector<std::int64_t> after = Comparable(lengths), before = Comparable(replayed_ns_);
  answer.step_lengths_ns = after;
  std::vector<std::int64_t> gains;
  for (std::size_t i = 0; i < after.size(); ++i) gains.push_back(before[i] - after[i]);
  answer.gain_ns = MeanStep(*run_, gains);
  answer.step_ns = replayed_step_ns() - answer.gain_ns;
  const auto mean = static_cast<double>(answer.gain_ns), median = static_cast<double>(LowerMedian(gains));
  if (std::abs(mean - median) >=
      std::max(rules::kWhatIfApartShare * std::abs(mean), rules::kWorthShare * static_cast<double>(replayed_step_ns())))
    answer.caveats.push_back(fmt::format("the steps differ: the median of the {} replayed ones gains {:.3g} ms",
                                         gains.size(), median / 1e6));
  // A change that shortens nothing is not recommended.
  if (answer.gain_ns <= 0) answer.try_it.clear();
  if (!intervals || after.size() < rules::kFewest) return answer;

  LS_TRY(const Range range,
         RangeOf(question, assume, answer, predicted_ns, changed, simulator ? &*simulator : nullptr));
  const double cheaper = static_cast<double>(range.less_ns) + apart * static_cast<double>(answer.step_ns);
  const double dearer = static_cast<double>(range.more_ns) + apart * static_cast<double>(answer.step_ns);
  const double self = std::abs(static_cast<double>(replayed_step_ns() - measured_step_ns()));
  const auto interval_of = [&](const std::vector<std::int64_t>& values) {
    const std::vector<double> series = analysis::Weighted(values, run_->step_weights);
    return analysis::BootstrapInterval(series, analysis::BlockLength({series}), analysis::Statistic::kMean,
                                       rules::kWhatIfSeed);
  };
  const auto [low, high] = interval_of(after);
  const auto [gain_low, gain_high] = interval_of(gains);
  answer.step_interval_ns = {std::llround(std::max(0.0, low - cheaper - self)), std::llround(high + dearer + self)};
  answer.gain_interval_ns = {std::llround(gain_low - dearer - self), std::llround(gain_high + cheaper + self)};
  return answer;
}

}  // namespace lockstep::replay
