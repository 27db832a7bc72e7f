#include "analysis/replay/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/replay/awaited.h"
#include "analysis/replay/equal_work.h"
#include "analysis/replay/more_ranks.h"
#include "analysis/replay/perfect_schedule.h"
#include "analysis/replay/prefetch.h"
#include "analysis/statistics.h"

namespace lockstep::replay {
namespace {

constexpr std::uint64_t kSeed = 20'260;
std::vector<std::int64_t> Comparable(std::vector<std::int64_t> lengths) {
  if (lengths.size() > 1) lengths.erase(lengths.begin());
  return lengths;
}

std::string Mebibytes(std::uint64_t bytes) { return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20)); }

// What the last operation of the step waited for, and that for, by what it was.
std::string LimitOf(const RecordedRun& run, const Job& job, const Schedule& schedule) {
  std::map<std::string, std::int64_t> shares;
  std::int64_t whole = 0;
  std::uint32_t last = kNone;
  for (const std::uint32_t end : job.step_ends.back())
    if (end != kNone && (last == kNone || schedule.end_ns[end] > schedule.end_ns[last])) last = end;
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

}  // namespace

Result<WhatIf> WhatIf::Make(std::unique_ptr<RecordedRun> run,
                            const std::vector<std::unique_ptr<RecordedRun>>& calibration) {
  WhatIf what_if;
  what_if.run_ = std::move(run);
  what_if.buckets_ = what_if.run_->FindBuckets();
  const Job job = what_if.run_->MakeJob();
  const auto add = [&](const BucketSequence& buckets, const ReductionTimes& times) {
    for (std::size_t i = 0; i < times.transfer_ns.size(); ++i)
      what_if.costs_.Add(buckets.bytes[i % buckets.bytes.size()], times.transfer_ns[i]);
  };
  if (what_if.buckets_) {
    what_if.times_ = TimesOf(what_if.run_->collectives.size(), *what_if.buckets_, job);
    add(*what_if.buckets_, what_if.times_);
  }
  for (const auto& other : calibration)
    if (const auto buckets = other->FindBuckets())
      add(*buckets, TimesOf(other->collectives.size(), *buckets, other->MakeJob()));
  what_if.costs_.Fit();
  if (what_if.buckets_) FitSteps(*what_if.buckets_, what_if.costs_, what_if.times_);
  const Result<Schedule> schedule = Simulator(job.graph).Run();
  if (!schedule.ok()) return schedule.error();
  what_if.replayed_ns_ = job.StepLengths(schedule.value());
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

Result<std::unique_ptr<RecordedRun>> WhatIf::OtherBuckets(const Question& question, double cost_factor,
                                                          Answer* answer) const {
  if (!buckets_)
    return Error{ErrorCode::kUnsupported, "the steps do not reduce gradients in the same buckets each", "",
                 "buckets can be predicted for jobs that all-reduce the same sizes every step"};
  const BucketSizes sizes = SizesFor(*buckets_, question.first_bytes, question.cap_bytes);
  if (answer != nullptr) answer->bucket_bytes = sizes.bytes;
  if (sizes.interpolated) Note(answer, "sizes of single gradients are not known: buckets end where the cap says");
  for (const std::uint64_t bytes : sizes.bytes) {
    const auto cost = costs_.At(bytes);
    if (!cost || !cost->extrapolated) continue;
    if (answer != nullptr) answer->extrapolated = true;
    Note(answer, fmt::format("no transfer of {} was measured: extrapolated; --calibrate with a run of such buckets",
                             Mebibytes(bytes)));
    break;
  }
  Result<std::unique_ptr<RecordedRun>> changed = run_->Rebucket(*buckets_, sizes.bytes, costs_, times_);
  if (!changed.ok()) return changed;
  for (RunCollective& c : changed.value()->collectives)
    if (c.transfer_ns >= 0) c.transfer_ns = std::llround(static_cast<double>(c.transfer_ns) * cost_factor);
  return changed;
}

Result<Job> WhatIf::Changed(const Question& question, double cost_factor, Answer* answer) const {
  if (question.kind == Question::kMoreRanks) {
    Note(answer, "an extrapolation: the work of a rank and the bus bandwidth stay, the latency grows with the ranks");
    if (answer != nullptr) answer->extrapolated = true;
    return WithMoreRanks(*run_, costs_, question.rank_count,
                         cost_factor < 1 ? LatencyGrowth::kTree : LatencyGrowth::kRing,
                         kSeed + static_cast<std::uint64_t>(cost_factor > 1));
  }
  const std::vector<Question> all =
      question.kind == Question::kTogether ? question.together : std::vector<Question>{question};
  // First what changes the run, then what changes the graph made from it.
  std::unique_ptr<RecordedRun> other;
  JobOptions options;
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
      Note(answer, "taken for granted: nothing between the reductions of a step needs their results");
    }
  }
  return job;
}

Result<std::vector<std::int64_t>> WhatIf::Lengths(const Question& question, double cost_factor, Answer* answer) const {
  if (question.kind == Question::kPerfectSchedule) return BestLengths(answer);
  LS_TRY(const Job job, Changed(question, cost_factor, answer));
  const Result<Schedule> schedule = Simulator(job.graph).Run();
  if (!schedule.ok()) return schedule.error();
  if (answer != nullptr) answer->limit = LimitOf(*run_, job, schedule.value());
  return job.StepLengths(schedule.value());
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
  LS_TRY(const std::vector<std::int64_t> changed, Lengths(question, 1, &answer));
  const std::vector<std::int64_t> after = Comparable(changed), before = Comparable(replayed_ns_);
  std::vector<std::int64_t> gains;
  for (std::size_t i = 0; i < after.size(); ++i) gains.push_back(before[i] - after[i]);
  answer.step_ns = LowerMedian(after);
  answer.gain_ns = LowerMedian(gains);
  const std::vector<double> values(after.begin(), after.end());
  const auto interval = BootstrapInterval(values, BlockLength({values}), Statistic::kMedian, kSeed);
  double low = interval.first, high = interval.second;
  const std::vector<double> won(gains.begin(), gains.end());
  const auto gain_interval = BootstrapInterval(won, BlockLength({won}), Statistic::kMedian, kSeed);
  double dearer = 0, cheaper = 0;
  if (question.kind == Question::kMoreRanks) {
    // Another draw of the jitter, and a latency that grows with the logarithm of the ranks.
    LS_TRY(const std::vector<std::int64_t> other, Lengths(question, 2, nullptr));
    LS_TRY(const std::vector<std::int64_t> tree, Lengths(question, 0.5, nullptr));
    const std::int64_t step = answer.step_ns, again = LowerMedian(Comparable(other));
    cheaper = static_cast<double>(std::max<std::int64_t>({0, step - again, step - LowerMedian(Comparable(tree))}));
    dearer = static_cast<double>(std::max<std::int64_t>(0, again - step));
  }
  if (!answer.bucket_bytes.empty()) {
    // The costs may be off by what interpolation is worth, all one way.
    double factor = 1;
    for (const std::uint64_t bytes : answer.bucket_bytes)
      if (const auto cost = costs_.At(bytes)) factor = std::max(factor, cost->factor);
    LS_TRY(const std::vector<std::int64_t> dear, Lengths(question, factor, nullptr));
    LS_TRY(const std::vector<std::int64_t> cheap, Lengths(question, 1 / factor, nullptr));
    cheaper = static_cast<double>(std::max<std::int64_t>(0, answer.step_ns - LowerMedian(Comparable(cheap))));
    dearer = static_cast<double>(std::max<std::int64_t>(0, LowerMedian(Comparable(dear)) - answer.step_ns));
  }
  low -= cheaper;
  high += dearer;
  const double self = std::abs(static_cast<double>(replayed_step_ns() - measured_step_ns()));
  answer.step_interval_ns = {std::llround(std::max(0.0, low - self)), std::llround(high + self)};
  answer.gain_interval_ns = {std::llround(gain_interval.first - dearer - self),
                             std::llround(gain_interval.second + cheaper + self)};
  return answer;
}

}  // namespace lockstep::replay
