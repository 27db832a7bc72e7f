// Questions of other buckets: what the run that is asked makes of them, and those beside it.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/core/statistics.h"
#include "analysis/replay/questions/what_if.h"

namespace lockstep::replay {
namespace {

// Steps of two runs of one job with the same buckets are within this.
constexpr double kSameJob = 0.15;

double Typical(const std::vector<std::int64_t>& lengths) {
  return static_cast<double>(LowerMedian(Comparable(lengths)));
}

}  // namespace

Status WhatIf::FinishBase(Base& base) const {
  FitSteps(base.buckets, costs_, base.times);
  base.step_ns = static_cast<double>(LowerMedian(Comparable(base.run->measured_step_ns)));
  LS_TRY(const std::vector<std::int64_t> again, BucketLengths(base, base.buckets.bytes));
  if (const double again_ns = Typical(again); again_ns > 0) base.correction = base.step_ns / again_ns;
  base.as_asked_ns = Typical(again);
  if (base.buckets.bytes != buckets_->bytes) {
    LS_TRY(const std::vector<std::int64_t> as_asked, BucketLengths(base, buckets_->bytes));
    base.as_asked_ns = Typical(as_asked);
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

// What a prediction of a run's own buckets is off by, for other numbers of buckets in between.
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

Result<std::pair<double, double>> WhatIf::Agreement(const std::vector<std::uint64_t>& bytes,
                                                    const std::vector<std::int64_t>& lengths) const {
  std::size_t finest = 0;
  for (const Base& base : bases_) finest = std::max(finest, base.buckets.bytes.size());
  std::vector<double> ratios;
  double own = 1;    // What this run alone makes of it.
  double again = 0;  // How far runs of the same buckets are apart.
  for (const Base& base : bases_) {
    std::vector<std::int64_t> theirs = lengths;
    if (&base != &bases_.front()) {
      LS_TRY(theirs, BucketLengths(base, bytes));
    }
    const double changed = Typical(theirs) * CorrectionFor(bytes.size());
    const double now = base.as_asked_ns * CorrectionFor(buckets_->bytes.size());
    const double ratio = changed / std::max(1.0, now), alike = now / std::max(1.0, bases_.front().step_ns);
    if (&base == &bases_.front()) own = ratio;
    // Only runs of the job as it is in this one; merging buckets is exact, splitting them is not.
    const bool finer = base.buckets.bytes.size() >= std::min(bytes.size(), finest);
    if (finer && std::abs(alike - 1) <= kSameJob) ratios.push_back(ratio);
    if (base.buckets.bytes == buckets_->bytes)
      again = std::max(again, std::abs(base.step_ns / bases_.front().step_ns - 1));
  }
  if (ratios.empty()) ratios.push_back(own);
  double mean = 0, apart = 0;
  for (const double ratio : ratios) mean += ratio / static_cast<double>(ratios.size());
  for (const double ratio : ratios) apart = std::max(apart, std::abs(ratio / mean - 1));
  return std::pair(mean / own, std::max(apart, again));
}

Result<std::unique_ptr<RecordedRun>> WhatIf::OtherBuckets(const Question& question, double cost_factor,
                                                          Answer* answer) const {
  if (!buckets_)
    return Error{ErrorCode::kUnsupported, "the steps do not reduce gradients in the same buckets each", "",
                 "buckets can be predicted for jobs that all-reduce the same sizes every step"};
  const BucketSizes sizes = SizesFor(*buckets_, question.first_bytes, question.cap_bytes);
  if (answer != nullptr) answer->bucket_bytes = sizes.bytes;
  if (sizes.interpolated && answer != nullptr)
    answer->caveats.push_back("sizes of single gradients are not known: buckets end where the cap says");
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

Result<WhatIf::Range> WhatIf::RangeOfCosts(const Question& question, const Assume& assume, const Answer& answer,
                                           std::int64_t step_ns, ChangedJob& changed,
                                           const Simulator& simulator) const {
  // They may be off by what interpolation is worth, all one way.
  double factor = 1;
  for (const std::uint64_t bytes : answer.bucket_bytes)
    if (const auto cost = costs_.At(bytes)) factor = std::max(factor, cost->factor);
  if (factor == 1) return Range{};
  const auto step_with = [&](double times) -> Result<std::int64_t> {
    Assume other = assume;
    other.cost_factor = times;
    if (question.kind != Question::kBucketCap) {
      LS_TRY(std::vector<std::int64_t> lengths, Lengths(question, other));
      return LowerMedian(Comparable(std::move(lengths)));
    }
    // The same job, its transfers dearer or cheaper.
    std::vector<Operation>& operations = changed.job.graph.operations();
    std::vector<std::int64_t> before;
    for (const std::uint32_t i : changed.predicted) {
      before.push_back(operations[i].duration_ns);
      operations[i].duration_ns = std::llround(static_cast<double>(operations[i].duration_ns) * times);
    }
    Result<std::vector<std::int64_t>> lengths = Play(changed.job, simulator, other, nullptr);
    for (std::size_t k = 0; k < before.size(); ++k) operations[changed.predicted[k]].duration_ns = before[k];
    if (!lengths.ok()) return lengths.error();
    return LowerMedian(Comparable(std::move(lengths).value()));
  };
  LS_TRY(const std::int64_t dear_ns, step_with(factor));
  LS_TRY(const std::int64_t cheap_ns, step_with(1 / factor));
  return Range{std::max<std::int64_t>(0, step_ns - cheap_ns), std::max<std::int64_t>(0, dear_ns - step_ns)};
}

}  // namespace lockstep::replay
