// Joins the gradient buckets that the framework reported with the collectives that reduced them: within a step DDP
// launches them strictly in order, so the first all-reduce with the first bucket's size belongs to the first bucket,
// and so on.

#include <algorithm>
#include <map>

#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "core/collective.h"
#include "core/data_type_name.h"

namespace lockstep::analysis {
namespace {

struct BucketSamples {
  std::vector<std::int64_t> transfer_ns, wait_ns;
};

}  // namespace

void JoinBuckets(const Context& context, Analysis& analysis) {
  const auto& table = context.tables().gradient_buckets;
  const auto& c = context.tables().collectives;
  Buckets& buckets = analysis.buckets;
  std::map<std::uint32_t, std::vector<std::size_t>> models;  // The rows, in launch order.
  for (std::size_t i = 0; i < table.rows(); ++i) {
    BucketRow row;
    row.model = table.model[i];
    row.bucket = table.bucket[i];
    row.bytes = table.bytes[i];
    row.dtype = TextOfDataType(table.dtype[i]).name;
    row.parameters = context.timeline().Text(table.parameters[i]);
    row.rebuilt = table.rebuilt[i] != 0;
    buckets.rows.push_back(std::move(row));
  }
  std::sort(buckets.rows.begin(), buckets.rows.end(), [](const BucketRow& a, const BucketRow& b) {
    return a.model != b.model ? a.model < b.model : a.bucket < b.bucket;
  });
  for (std::size_t i = 0; i < buckets.rows.size(); ++i) models[buckets.rows[i].model].push_back(i);
  for (const BucketRow& row : buckets.rows) buckets.sizes.push_back(row.bytes);
  buckets.recognised_by = "hooks";
  if (table.cap_bytes[0] != 0) buckets.current_cap_mb = static_cast<double>(table.cap_bytes[0]) / (1 << 20);

  std::map<std::int64_t, std::vector<std::size_t>> of_step;  // The all-reduces of all ranks, in order of arrival.
  for (const std::size_t step : context.usable_steps()) of_step[context.tables().steps.index[step]];
  for (std::size_t i = 0; i < c.rows(); ++i) {
    const auto at = of_step.find(c.step[i]);
    if (at != of_step.end() && static_cast<CollectiveKind>(c.kind[i]) == CollectiveKind::kAllReduce)
      at->second.push_back(i);
  }
  std::vector<BucketSamples> samples(buckets.rows.size());
  for (auto& [step, rows] : of_step) {
    std::stable_sort(rows.begin(), rows.end(),
                     [&](std::size_t a, std::size_t b) { return c.first_arrival_ns[a] < c.first_arrival_ns[b]; });
    ++buckets.steps;
    std::vector<bool> used(rows.size(), false);
    std::size_t found = 0;
    for (const auto& [model, bucket_rows] : models) {
      std::size_t next = 0;
      for (std::size_t i = 0; i < rows.size() && next < bucket_rows.size(); ++i) {
        const std::size_t bucket = bucket_rows[next];
        if (used[i] || c.bytes[rows[i]] != buckets.rows[bucket].bytes) continue;
        used[i] = true;
        ++next;
        ++found;
        ++buckets.rows[bucket].collectives;
        if (c.transfer_ns[rows[i]] >= 0 && !c.censored[rows[i]])
          samples[bucket].transfer_ns.push_back(c.transfer_ns[rows[i]]);
        if (c.wait_ns[rows[i]] >= 0) samples[bucket].wait_ns.push_back(c.wait_ns[rows[i]]);
      }
    }
    buckets.steps_matched += found == buckets.rows.size();
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!samples[i].transfer_ns.empty())
      buckets.rows[i].transfer_ns_median = LowerMedian(std::move(samples[i].transfer_ns));
    if (!samples[i].wait_ns.empty()) buckets.rows[i].wait_ns_median = LowerMedian(std::move(samples[i].wait_ns));
  }
}

}  // namespace lockstep::analysis
