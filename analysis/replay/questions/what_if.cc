#include "analysis/replay/questions/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "analysis/core/statistics.h"
#include "analysis/replay/graph/awaited.h"
#include "analysis/replay/graph/gradients.h"
#include "analysis/replay/questions/equal_work.h"
#include "analysis/replay/questions/more_ranks.h"
#include "analysis/replay/questions/perfect_schedule.h"
#include "analysis/replay/questions/prefetch.h"

namespace lockstep::replay {
namespace {

constexpr std::uint64_t kSeed = 20'260;
// By how much more interference may let a replay miss what was recorded.
constexpr double kMostErrorOfInterference = 0.015;

std::string Mebibytes(std::uint64_t bytes) { return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20)); }

// What the last operation of the step waited for, and that for, by what it was.
std::string LimitOf(const RecordedRun& run, const Job& job, const Schedule& schedule) {
  std::map<std::string, std::int64_t> shares;
  std::int64_t whole = 0;
  const std::uint32_t last = job.LastEnd(schedule);
  if (last == kNone) return {};
  const std::vector<std::uint32_t> chain = CriticalChain(job.graph, schedule, last);
  const bool gpu = std::any_of(job.operations.begin(), job.operations.end(),
                               [](const JobOperation& about) { return about.role == Role::kKernel; });
  for (std::size_t k = 1; k < chain.size(); ++k) {
    const JobOperation& about = job.operations[chain[k]];
    const std::int64_t ns = schedule.end_ns[chain[k]] - schedule.end_ns[chain[k - 1]];
    if (ns <= 0 || about.rank == kNone) continue;
    whole += ns;
    if (about.role == Role::kWork && about.rank >= run.ranks.size()) {
      shares["work of the slowest rank"] += ns;
      continue;
    }
    if (about.role == Role::kMember || about.role == Role::kExit || about.role == Role::kMessage)
      shares["communication"] += ns;
    else if (about.role == Role::kWork || about.role == Role::kLaunch)
      shares[fmt::format("{} of rank {}", gpu ? "host work" : "work", run.ranks[about.rank])] += ns;
    else if (about.role == Role::kKernel || about.role == Role::kCopy)
      shares[fmt::format("{} of rank {}", about.role == Role::kKernel ? "kernels" : "copies", run.ranks[about.rank])] +=
          ns;
    else if (gpu && about.role == Role::kCall)
      shares["communication with ranks that are not here"] += ns;
    else
      shares[gpu ? "launches and synchronisation" : "MPI calls"] += ns;
  }
  if (whole == 0) return {};
  const auto most =
      std::max_element(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} is {:.0f} % of what the step waits for", most->first,
                     100 * static_cast<double>(most->second) / static_cast<double>(whole));
}

void Note(Answer* answer, std::string text) {
  if (answer != nullptr) answer->caveats.push_back(std::move(text));
}

// `bandwidth` 0: transfers take no time.
void ScaleNetwork(const RecordedRun& run, const std::optional<CostModel::Line>& line, double bandwidth, double latency,
                  Job& job) {
  auto& operations = job.graph.operations();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const JobOperation& about = job.operations[i];
    // Messages have no cost table; without transfers they take no time either.
    if (about.role == Role::kMessage && bandwidth == 0) operations[i].duration_ns = 0;
    if (about.role != Role::kMember && about.role != Role::kExit) continue;
    if (bandwidth == 0) {
      operations[i].duration_ns = 0;
      continue;
    }
    const auto bytes = static_cast<double>(run.collectives[about.collective].bytes);
    const double alpha = line ? line->alpha_ns : 0, beta = line ? line->beta_ns_per_byte * bytes : 1;
    const double factor = alpha + beta > 0 ? (alpha * latency + beta / bandwidth) / (alpha + beta) : 1;
    const auto now = static_cast<double>(operations[i].duration_ns);
    // What is faster than the ranks' memory or links already stays as it is.
    const double floor = about.role == Role::kMember ? std::min(now, bytes / run.floor_bytes_per_ns()) : 0;
    operations[i].duration_ns = std::llround(std::max(floor, now * factor));
  }
}

// Graphs that are made otherwise than by MakeJob with options know nothing of it.
bool UsesInterference(const Question& question) {
  const auto plain = [](const Question& each) {
    return each.kind == Question::kPrefetch || each.kind == Question::kMoreRanks ||
           each.kind == Question::kPerfectSchedule;
  };
  return !plain(question) && std::none_of(question.together.begin(), question.together.end(), plain);
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
    return Ok();
  };
  if (Status played = play(); !played.ok()) return played.error();
  const double plain_error = what_if.self_error();
  what_if.interference_ = what_if.run_->EstimateWith(others);
  if (what_if.interference_.value.any()) {
    if (Status played = play(); !played.ok()) return played.error();
    // Whatever the estimate, a replay with nothing changed comes first.
    if (what_if.self_error() > plain_error + kMostErrorOfInterference) {
      what_if.interference_ = {};
      if (Status again = play(); !again.ok()) return again.error();
    }
  }
  if (what_if.buckets_) {
    const auto total = what_if.buckets_->total_bytes();
    for (const std::vector<Gradient>& gradients : what_if.run_->gradients)
      if (MakeUp(gradients, what_if.buckets_->bytes)) what_if.buckets_->gradients = gradients;
    std::vector<Base> bases{{.run = what_if.run_.get(), .buckets = *what_if.buckets_}};
    for (const RecordedRun* other : others)
      if (auto buckets = other->FindBuckets(); buckets) bases.push_back({.run = other, .buckets = std::move(*buckets)});
    for (Base& base : bases) {
      const Job job = base.run->MakeJob({.interference = what_if.interference_.value});
      base.times = TimesOf(base.run->collectives.size(), base.buckets, job);
      for (std::size_t k = 0; k < base.times.transfer_ns.size(); ++k)
        what_if.costs_.Add(base.buckets.bytes[k % base.buckets.bytes.size()], base.times.transfer_ns[k]);
    }
    what_if.times_ = bases.front().times;
    what_if.costs_.Fit();
    FitSteps(*what_if.buckets_, what_if.costs_, what_if.times_);
    for (Base& base : bases) {
      if (base.buckets.total_bytes() != total || base.run->ranks != what_if.run_->ranks) continue;
      // A base that cannot be replayed with its own buckets is not used.
      if (what_if.FinishBase(base).ok()) what_if.bases_.push_back(std::move(base));
    }
    if (!what_if.bases_.empty() && what_if.bases_.front().run != what_if.run_.get()) what_if.bases_.clear();
  }
  return what_if;
}

std::int64_t WhatIf::measured_step_ns() const { return LowerMedian(Comparable(run_->measured_step_ns)); }
std::int64_t WhatIf::replayed_step_ns() const { return LowerMedian(Comparable(replayed_ns_)); }

double WhatIf::self_error() const {
  std::vector<double> errors;
  for (std::size_t i = replayed_ns_.size() > 1; i < replayed_ns_.size(); ++i)
    errors.push_back(std::abs(static_cast<double>(replayed_ns_[i] - run_->measured_step_ns[i])) /
                     static_cast<double>(std::max<std::int64_t>(1, run_->measured_step_ns[i])));
  return LowerMedian(std::move(errors));
}

Result<WhatIf::ChangedJob> WhatIf::Changed(const Question& question, const Assume& assume, Answer* answer) const {
  const double cost_factor = assume.cost_factor;
  if (question.kind == Question::kMoreRanks) {
    Note(answer, "an extrapolation: the work of a rank and the bus bandwidth stay, the latency grows with the ranks");
    if (answer != nullptr) answer->extrapolated = true;
    LS_TRY(Job more, WithMoreRanks(*run_, costs_, question.rank_count,
                                   cost_factor < 1 ? LatencyGrowth::kTree : LatencyGrowth::kRing,
                                   kSeed + static_cast<std::uint64_t>(cost_factor > 1)));
    return ChangedJob{std::move(more), {}};
  }
  const std::vector<Question> all =
      question.kind == Question::kTogether ? question.together : std::vector<Question>{question};
  // First what changes the run, then what changes the graph made from it.
  std::unique_ptr<RecordedRun> other;
  JobOptions options{.interference = assume.interference};
  for (const Question& each : all) {
    if (each.kind == Question::kNoOverlap) options.wait_for_overlap = false;
    if (each.kind != Question::kBucketCap) continue;
    LS_TRY(other, OtherBuckets(each, cost_factor, answer));
  }
  const RecordedRun& run = other ? *other : *run_;
  Job job = run.MakeJob(options);
  if (!options.wait_for_overlap) MoveOnlyWhenAwaited(job);
  for (const Question& each : all) {
    if (each.kind != Question::kPrefetch) continue;
    std::optional<Job> earlier = WithPrefetch(run, each.depth);
    if (!earlier)
      return Error{ErrorCode::kUnsupported, "the steps do not gather parameters in the same order on all ranks", "",
                   "prefetching can be predicted for jobs that all-gather the same units every step"};
    job = std::move(*earlier);
    if (run.moves_in_calls())
      Note(answer, each.depth > 0 && job.moved_in_wait == 0
                       ? "assumes that data moves while ranks compute; an MPI library that is not called moves less, "
                         "down to no gain"
                       : "assumes that posted gathers moved only in their waits; otherwise the cost is higher");
  }
  for (const Question& each : all) {
    if (each.kind == Question::kWithoutRanks) EqualiseWork(run, each.ranks, job);
    if (each.kind == Question::kFreeCommunication) ScaleNetwork(run, std::nullopt, 0, 0, job);
    if (each.kind == Question::kNetwork) {
      const auto line = costs_.AlphaBeta();
      if (!line) Note(answer, "no cost table: all of a transfer scales with bandwidth");
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

Result<std::vector<std::int64_t>> WhatIf::Play(const Job& job, const Simulator& simulator, const Assume& assume,
                                               Answer* answer) const {
  Result<Schedule> schedule = simulator.Run(assume.interference);
  if (!schedule.ok()) {
    // The run itself replays (Make): it is the change that cannot be played.
    return Error{ErrorCode::kUnsupported, "it is unknown what the ranks would wait for then", schedule.error().where,
                 "the trace does not show all of what threads wait for: wait in MPI calls (MPI_Wait), or without a "
                 "thread that completes collectives for others"};
  }
  if (answer != nullptr) answer->limit = LimitOf(*run_, job, schedule.value());
  return job.StepLengths(schedule.value());
}

Result<std::vector<std::int64_t>> WhatIf::Lengths(const Question& question, const Assume& assume) const {
  LS_TRY(const ChangedJob changed, Changed(question, assume, nullptr));
  return Play(changed.job, Simulator(changed.job.graph), assume, nullptr);
}

std::string WhatIf::Name(const Question& question) const {
  Answer answer;
  return Describe(question, answer).ok() ? answer.question : std::string("this");
}

// The best of the better schedules; the recorded one where there is none.
Result<std::vector<std::int64_t>> WhatIf::BestLengths(Answer* answer) const {
  std::vector<std::int64_t> best = replayed_ns_;
  for (const Job& job : BetterSchedules(*run_, buckets_, costs_, times_)) {
    const Result<Schedule> schedule = Simulator(job.graph).Run();
    if (!schedule.ok()) continue;
    std::vector<std::int64_t> lengths = job.StepLengths(schedule.value());
    if (LowerMedian(Comparable(lengths)) >= LowerMedian(Comparable(best))) continue;
    best = std::move(lengths);
    if (answer != nullptr) answer->limit = LimitOf(*run_, job, schedule.value());
  }
  return best;
}

Status WhatIf::Describe(const Question& question, Answer& answer) const {
  switch (question.kind) {
    case Question::kFreeCommunication:
      answer.question = "communication free";
      break;
    case Question::kNetwork:
      answer.question = fmt::format("bandwidth x {:g}, latency x {:g}", question.bandwidth, question.latency);
      break;
    case Question::kNoOverlap:
      answer.question = "no overlap";
      break;
    case Question::kPerfectSchedule:
      answer.question = "perfect schedule";
      break;
    case Question::kOverlap:
      answer.question = "overlap on";
      answer.try_it = "post the reductions (MPI_Iallreduce, async_op=True) where they are called, wait after the last";
      break;
    case Question::kPrefetch:
      answer.question = fmt::format("parameters gathered {} ahead",
                                    question.depth == 1 ? "one unit" : fmt::format("{} units", question.depth));
      answer.try_it = fmt::format(
          "FSDP(..., forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE); FSDP2: "
          "set_modules_to_forward_prefetch and set_modules_to_backward_prefetch with {} each",
          question.depth == 1 ? "one unit" : fmt::format("{} units", question.depth));
      break;
    case Question::kMoreRanks:
      answer.question = fmt::format("{} ranks, weak scaling", question.rank_count);
      answer.try_it = fmt::format("mpirun -np {}, with the same work for each rank", question.rank_count);
      break;
    case Question::kWithoutRanks: {
      answer.question = question.ranks.size() == 1 ? "without what slows rank" : "without what slows ranks";
      for (const std::int32_t rank : question.ranks) {
        if (std::find(run_->ranks.begin(), run_->ranks.end(), rank) == run_->ranks.end())
          return Error{ErrorCode::kUsage, fmt::format("the run has no rank {}", rank), "--without-rank",
                       fmt::format("ranks {} to {}", run_->ranks.front(), run_->ranks.back())};
        answer.question += fmt::format(" {}", rank);
      }
      if (question.ranks.size() >= run_->ranks.size())
        return Error{ErrorCode::kUsage, "no rank is left to compare with", "--without-rank", "leave one out"};
      answer.try_it = "give these ranks the work, the cores and the input that the others have";
      break;
    }
    case Question::kBucketCap: {
      const std::uint64_t total = buckets_ ? buckets_->total_bytes() : 0;
      const bool one = question.first_bytes >= total;
      answer.question =
          one ? "all gradients in one bucket" : fmt::format("bucket cap {}", Mebibytes(question.cap_bytes));
      // DDP's first bucket has a limit of its own, which this does not move.
      answer.try_it = one ? fmt::format("reduce all {} at once, after the backward pass", Mebibytes(total))
                          : fmt::format("DistributedDataParallel(..., bucket_cap_mb={:.4g})",
                                        static_cast<double>(question.cap_bytes) / (1 << 20));
      break;
    }
    case Question::kTogether: {
      std::size_t bucketings = 0;
      for (const Question& each : question.together) {
        bucketings += each.kind == Question::kBucketCap;
        if (each.kind == Question::kPerfectSchedule || each.kind == Question::kMoreRanks || bucketings > 1)
          return Error{ErrorCode::kUsage, "these changes cannot be made together", "--together",
                       "at most one bucket cap, no --perfect-schedule, no --ranks"};
        Answer part;
        if (Status told = Describe(each, part); !told.ok()) return told;
        answer.question += (answer.question.empty() ? "" : " + ") + part.question;
        if (!part.try_it.empty()) answer.try_it += (answer.try_it.empty() ? "" : "; ") + part.try_it;
      }
      break;
    }
  }
  return Ok();
}

Result<Answer> WhatIf::Ask(const Question& question) const {
  Answer answer;
  if (Status told = Describe(question, answer); !told.ok()) return told.error();
  const Assume assume = UsesInterference(question) ? Assume{1, interference_.value} : Assume{};
  ChangedJob job;
  std::optional<Simulator> simulator;
  std::vector<std::int64_t> changed;
  if (question.kind == Question::kPerfectSchedule) {
    LS_TRY(changed, BestLengths(&answer));
  } else {
    LS_TRY(job, Changed(question, assume, &answer));
    simulator.emplace(job.job.graph);
    LS_TRY(changed, Play(job.job, *simulator, assume, &answer));
  }
  const std::int64_t predicted_ns = LowerMedian(Comparable(changed));
  double apart = 0;  // How much repeated runs of the same configuration differ, if there are any.
  for (const Base& base : bases_)
    if (base.buckets.bytes == bases_.front().buckets.bytes)
      apart = std::max(apart, std::abs(base.step_ns / bases_.front().step_ns - 1));
  if (question.kind == Question::kBucketCap && !bases_.empty() && answer.bucket_bytes == buckets_->bytes) {
    changed = replayed_ns_;  // What was recorded is known.
  } else if (question.kind == Question::kBucketCap && !bases_.empty()) {
    LS_TRY(const auto agreement, Agreement(answer.bucket_bytes, changed));
    const double correction = CorrectionFor(answer.bucket_bytes.size());
    for (std::int64_t& ns : changed) ns = std::llround(static_cast<double>(ns) * correction * agreement.first);
    apart = agreement.second + std::abs(correction - 1) / 2;
  }
  const std::vector<std::int64_t> after = Comparable(changed), before = Comparable(replayed_ns_);
  std::vector<std::int64_t> gains;
  for (std::size_t i = 0; i < after.size(); ++i) gains.push_back(before[i] - after[i]);
  answer.step_ns = LowerMedian(after);
  answer.gain_ns = LowerMedian(gains);
  if (!gains.empty())
    answer.mean_gain_ns =
        std::accumulate(gains.begin(), gains.end(), std::int64_t{0}) / static_cast<std::int64_t>(gains.size());
  const std::vector<double> values(after.begin(), after.end());
  const auto interval =
      analysis::BootstrapInterval(values, analysis::BlockLength({values}), analysis::Statistic::kMedian, kSeed);
  double low = interval.first, high = interval.second;
  const std::vector<double> won(gains.begin(), gains.end());
  const auto gain_interval =
      analysis::BootstrapInterval(won, analysis::BlockLength({won}), analysis::Statistic::kMedian, kSeed);
  double dearer = 0, cheaper = 0;
  if (question.kind == Question::kMoreRanks) {
    // Another draw of the jitter, and a latency that grows with the logarithm of the ranks.
    LS_TRY(const std::vector<std::int64_t> other, Lengths(question, {2, {}}));
    LS_TRY(const std::vector<std::int64_t> tree, Lengths(question, {0.5, {}}));
    const std::int64_t step = answer.step_ns, again = LowerMedian(Comparable(other));
    cheaper = static_cast<double>(std::max<std::int64_t>({0, step - again, step - LowerMedian(Comparable(tree))}));
    dearer = static_cast<double>(std::max<std::int64_t>(0, again - step));
  }
  if (!answer.bucket_bytes.empty()) {
    LS_TRY(const Range range, RangeOfCosts(question, assume, answer, predicted_ns, job, *simulator));
    cheaper = static_cast<double>(range.less_ns);
    dearer = static_cast<double>(range.more_ns);
  }
  if (assume.interference.any()) {
    // How much computing and communicating slow each other is known to its interval only.
    for (const double slowdown : {interference_.compute_interval.first, interference_.compute_interval.second}) {
      Assume other = assume;
      other.interference.compute_slowdown = slowdown;
      LS_TRY(const std::vector<std::int64_t> lengths, Lengths(question, other));
      const auto more = static_cast<double>(LowerMedian(Comparable(lengths)) - predicted_ns);
      dearer = std::max(dearer, more);
      cheaper = std::max(cheaper, -more);
    }
  }
  // Where gathers are blocking now, nothing shows that data moves while no rank calls MPI.
  if (question.kind == Question::kPrefetch && question.depth > 0 && run_->moves_in_calls())
    dearer = std::max(dearer, static_cast<double>(answer.gain_ns));
  cheaper += apart * static_cast<double>(answer.step_ns);
  dearer += apart * static_cast<double>(answer.step_ns);
  low -= cheaper;
  high += dearer;
  const double self = std::abs(static_cast<double>(replayed_step_ns() - measured_step_ns()));
  answer.step_interval_ns = {std::llround(std::max(0.0, low - self)), std::llround(high + self)};
  answer.gain_interval_ns = {std::llround(gain_interval.first - dearer - self),
                             std::llround(gain_interval.second + cheaper + self)};
  return answer;
}

}  // namespace lockstep::replay
