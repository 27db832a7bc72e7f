// Answers questions about other buckets from the run in question and the calibration runs.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/core/statistics.h"
#include "analysis/replay/graph/gradients.h"
#include "analysis/replay/graph/units.h"
#include "analysis/replay/questions/what_if.h"
#include "analysis/rules/replay.h"

namespace lockstep::replay {
namespace {

double MeanLength(const RecordedRun& run, const std::vector<std::int64_t>& lengths) {
  return static_cast<double>(MeanStep(run, Comparable(lengths)));
}

}  // namespace

void WhatIf::AddBases(const std::vector<const RecordedRun*>& others) {
  for (const std::vector<Gradient>& gradients : run_->gradients)
    if (MakeUp(gradients, buckets_->bytes)) buckets_->gradients = gradients;
  std::vector<Base> bases{{.run = run_.get(), .buckets = *buckets_}};
  for (const RecordedRun* other : others)
    if (auto buckets = other->FindBuckets()) bases.push_back({.run = other, .buckets = std::move(*buckets)});
  for (Base& base : bases) {
    const Job job = base.run->MakeJob({.interference = interference_.value});
    base.times = TimesOf(*base.run, base.buckets, job);
    for (std::size_t k = 0; k < base.times.transfer_ns.size(); ++k)
      costs_.Add(base.buckets.bytes[k % base.buckets.bytes.size()], base.times.transfer_ns[k]);
  }
  times_ = bases.front().times;
  AddBeside();
  costs_.Fit();
  FitSteps(*buckets_, costs_, times_);
  for (Base& base : bases) {
    if (base.buckets.total_bytes() != buckets_->total_bytes() || base.run->ranks != run_->ranks) continue;
    // A base that cannot be replayed with its own buckets is not used.
    if (FinishBase(base).ok()) bases_.push_back(std::move(base));
  }
  if (!bases_.empty() && bases_.front().run != run_.get()) bases_.clear();
}

void WhatIf::AddBeside() {
  for (const TransferBeside& each : run_->beside) {
    if (each.comm != buckets_->comm || each.bytes <= rules::kTinyTransferBytes) continue;
    if (each.kind == CollectiveKind::kAllReduce)
      costs_.AddBeside(each.bytes, each.transfer_ns);
    else if (each.kind == CollectiveKind::kBroadcast)  // One way of two: DDP's of the parameters.
      costs_.AddBeside(each.bytes, 2 * each.transfer_ns, false);
  }
  // A reduction goes there and back: twice what the others do.
  costs_.SetLatency(2 * run_->LatencyNs(buckets_->comm));
}

Status WhatIf::FinishBase(Base& base) const {
  FitSteps(base.buckets, costs_, base.times);
  base.step_ns = MeanLength(*base.run, base.run->measured_step_ns);
  LS_TRY(const std::vector<std::int64_t> again, BucketLengths(base, base.buckets.bytes));
  if (const double again_ns = MeanLength(*base.run, again); again_ns > 0) base.correction = base.step_ns / again_ns;
  base.as_asked_ns = MeanLength(*base.run, again);
  if (base.buckets.bytes != buckets_->bytes) {
    LS_TRY(const std::vector<std::int64_t> as_asked, BucketLengths(base, buckets_->bytes));
    base.as_asked_ns = MeanLength(*base.run, as_asked);
  }
  return Ok();
}

Result<std::vector<std::int64_t>> WhatIf::BucketLengths(const Base& base,
                                                        const std::vector<std::uint64_t>& bytes) const {
  LS_TRY(const std::unique_ptr<RecordedRun> changed, base.run->Rebucket(base.buckets, bytes, costs_, base.times));
  const Job job = changed->MakeJob({.interference = interference_.value});
  LS_TRY(const Schedule schedule, Simulator(job.graph).Run(interference_.value));
  return job.StepLengths(schedule);
}

// The error of a prediction of a run's own buckets, interpolated for other numbers of buckets.
double WhatIf::CorrectionFor(std::size_t buckets) const {
  std::map<double, std::vector<double>> known;
  for (const Base& base : bases_)
    known[std::log(static_cast<double>(base.buckets.bytes.size()))].push_back(base.correction);
  std::vector<std::pair<double, double>> points;
  for (const auto& [count, values] : known) {
    double sum = 0;
    for (const double value : values) sum += value;
    points.push_back({count, sum / static_cast<double>(values.size())});
  }
  if (points.empty()) return 1;
  const double at = std::clamp(std::log(static_cast<double>(std::max<std::size_t>(1, buckets))), points.front().first,
                               points.back().first);
  for (std::size_t i = 1; i < points.size(); ++i)
    if (at <= points[i].first)
      return points[i - 1].second + (at - points[i - 1].first) / (points[i].first - points[i - 1].first) *
                                        (points[i].second - points[i - 1].second);
  return points.front().second;
}

Result<double> WhatIf::CorrectByBases(const Question& question, const std::vector<std::uint64_t>& bytes,
                                      std::vector<std::int64_t>& lengths) const {
  if (bases_.empty()) return 0.0;
  const Base& asked = bases_.front();
  double same_apart = 0;  // The difference of runs that have the buckets of the one in question.
  std::size_t finest = 0;
  for (const Base& base : bases_) {
    finest = std::max(finest, base.buckets.bytes.size());
    if (base.buckets.bytes == asked.buckets.bytes)
      same_apart = std::max(same_apart, std::abs(base.step_ns / asked.step_ns - 1));
  }
  if (question.kind != Question::kBucketCap) return same_apart;
  if (bytes == buckets_->bytes) {
    lengths = replayed_ns_;  // The recorded times are known.
    return same_apart;
  }
  const double correction = CorrectionFor(bytes.size()), correction_now = CorrectionFor(buckets_->bytes.size());
  // Per base: the step with the new buckets over the step with those of the run in question.
  std::vector<double> ratios;
  double own = 1;  // The ratio of the run in question.
  for (const Base& base : bases_) {
    double predicted = MeanLength(*run_, lengths);
    if (&base != &asked) {
      LS_TRY(const std::vector<std::int64_t> theirs, BucketLengths(base, bytes));
      predicted = MeanLength(*base.run, theirs);
    }
    const double changed = predicted * correction, now = base.as_asked_ns * correction_now;
    const double ratio = changed / std::max(1.0, now), alike = now / std::max(1.0, asked.step_ns);
    if (&base == &asked) own = ratio;
    // Only runs of the job as it is in this one; merging buckets is exact, splitting them is not.
    const bool finer = base.buckets.bytes.size() >= std::min(bytes.size(), finest);
    if (finer && std::abs(alike - 1) <= rules::kWhatIfSameJobShare) ratios.push_back(ratio);
  }
  if (ratios.empty()) ratios.push_back(own);
  double mean = 0, apart = same_apart;
  for (const double ratio : ratios) mean += ratio / static_cast<double>(ratios.size());
  for (const double ratio : ratios) apart = std::max(apart, std::abs(ratio / mean - 1));
  const double agreement = mean / own;
  for (std::int64_t& ns : lengths) ns = std::llround(static_cast<double>(ns) * correction * agreement);
  return apart + rules::kWhatIfCorrectionDoubt * std::abs(correction - 1);
}

Result<std::unique_ptr<RecordedRun>> WhatIf::OtherBuckets(const Question& question, double cost_factor,
                                                          Answer* answer) const {
  if (!buckets_ && FindUnits(*run_).reduced_bytes > 0)
    return Error{ErrorCode::kUnsupported, "gradients are reduced by units of sharded parameters, not in buckets", "",
                 "what the job makes one unit (fully_shard, FSDP's wrap policy) is reduced at once"};
  if (!buckets_)
    return Error{ErrorCode::kUnsupported, "the steps do not reduce gradients in the same buckets each", "",
                 "buckets can be predicted for jobs that all-reduce the same sizes every step"};
  const BucketSizes sizes = SizesFor(*buckets_, question.first_bytes, question.cap_bytes);
  if (answer != nullptr) answer->bucket_bytes = sizes.bytes;
  if (sizes.interpolated && answer != nullptr)
    answer->caveats.push_back("sizes of single gradients are not known: buckets end where the cap says");
  if (question.same_for_all) {
    const std::int64_t each_ns = LowerMedian(times_.transfer_ns);
    if (each_ns <= 0)
      return Error{ErrorCode::kUnsupported, "the reductions of the steps take no time", "", "record longer steps"};
    return run_->Rebucket(*buckets_, sizes.bytes, CostModel::SameForAll(static_cast<double>(each_ns)), times_);
  }
  for (const std::uint64_t bytes : sizes.bytes) {
    const auto cost = costs_.At(bytes);
    if (!cost || !cost->extrapolated || answer == nullptr) continue;
    answer->extrapolated = true;
    answer->caveats.push_back(
        fmt::format("no transfer of {:.4g} MiB was measured: extrapolated; --calibrate with a run of such buckets",
                    static_cast<double>(bytes) / (1 << 20)));
    break;
  }
  Result<std::unique_ptr<RecordedRun>> changed = run_->Rebucket(*buckets_, sizes.bytes, costs_, times_);
  if (!changed.ok()) return changed;
  for (RunCollective& c : changed.value()->collectives)
    if (c.transfer_ns >= 0) c.transfer_ns = std::llround(static_cast<double>(c.transfer_ns) * cost_factor);
  return changed;
}

Result<std::int64_t> WhatIf::StepAtCosts(const Question& question, Assumptions assume, double factor,
                                         ChangedJob& changed, const Simulator& simulator) const {
  if (question.kind != Question::kBucketCap) {
    assume.cost_factor = factor;
    return StepUnder(question, assume);
  }
  // It is the same job with higher or lower transfer costs: changing it is faster than making it again.
  std::vector<Operation>& operations = changed.job.graph.operations();
  std::vector<std::int64_t> before;
  for (const std::uint32_t i : changed.predicted) {
    before.push_back(operations[i].duration_ns);
    operations[i].duration_ns = std::llround(static_cast<double>(operations[i].duration_ns) * factor);
  }
  Result<std::vector<std::int64_t>> lengths = Play(changed.job, simulator, assume, nullptr);
  for (std::size_t k = 0; k < before.size(); ++k) operations[changed.predicted[k]].duration_ns = before[k];
  if (!lengths.ok()) return lengths.error();
  return MeanStep(*run_, Comparable(std::move(lengths).value()));
}

}  // namespace lockstep::replay
