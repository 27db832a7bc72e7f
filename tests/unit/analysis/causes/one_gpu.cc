#include "one_gpu.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/analyze_with.h"
#include "analysis/causes/causes.h"
#include "analysis/report/json.h"
#include "core/interval.h"

namespace lockstep::test {

void OneGpu::Device(std::uint16_t major, std::uint32_t multiprocessors) {
  tables.devices.Append({.device = 0,
                         .name = Intern("GPU"),
                         .memory_bytes = 80'000'000'000,
                         .sm_count = multiprocessors,
                         .compute_major = major,
                         .vendor = 1});
}

void OneGpu::Steps(int steps) {
  for (int i = 0; i < steps; ++i) Step(i, i * kStep * us, (i + 1) * kStep * us);
}

void OneGpu::Kernel(std::string_view name, std::int64_t begin, std::int64_t length, std::uint32_t shape,
                    std::uint32_t stream) {
  Launched(name, begin, begin + length, std::max<std::int64_t>(0, begin - 500), stream);
  tables.kernels.shape.back() = shape;
}

namespace {

// What the causes find when a rank is read as a whole they find in blocks, of several steps and of one.
void ExpectBlocksDoNotMatter(const analysis::Context& context, const analysis::Analysis& found, std::uint64_t rows) {
  const auto causes = [&](std::uint64_t block_rows) {
    analysis::Analysis only = found;
    only.findings.clear();
    only.idle_causes.clear();
    analysis::FindCausesInBlocks(context, only, block_rows);
    return report::RenderJson(only);
  };
  const std::string whole = causes(UINT64_MAX);
  for (const std::uint64_t block_rows : {rows / 2 + 1, rows / 5 + 1, std::uint64_t{1}})
    EXPECT_EQ(causes(block_rows), whole) << block_rows << " of " << rows << " rows at once";
}

}  // namespace

analysis::Analysis AnalyzeGpus(const std::vector<const OneGpu*>& ranks) {
  std::vector<const HandMade*> hand_made(ranks.begin(), ranks.end());
  std::int64_t end = 0;
  for (const OneGpu* rank : ranks)
    for (const std::int64_t step_end : rank->tables.steps.end_ns) end = std::max(end, step_end);
  for (const OneGpu* rank : ranks)
    for (std::size_t i = 0; end == 0 && i < rank->tables.kernels.rows(); ++i)
      end = rank->tables.kernels.begin_ns[i] + rank->tables.kernels.duration_ns[i];
  merge::Timeline timeline = TimelineOf(hand_made, std::vector<Interval>(ranks.size(), {0, end}));
  auto& t = timeline.tables;
  const auto busy = [&](std::size_t rank, Interval window) {
    std::vector<Interval> all;
    const auto& kernels = ranks[rank]->tables.kernels;
    for (std::size_t i = 0; i < kernels.rows(); ++i)
      all.push_back({kernels.begin_ns[i], kernels.begin_ns[i] + kernels.duration_ns[i]});
    return TotalWithin(Normalize(std::move(all)), window);
  };
  std::fill(t.ranks.gpu.begin(), t.ranks.gpu.end(), std::uint8_t{1});
  for (std::size_t i = 0; i < t.step_ranks.rows(); ++i) {
    const Interval window{t.step_ranks.begin_ns[i], t.step_ranks.end_ns[i]};
    t.step_ranks.compute_ns[i] = busy(static_cast<std::size_t>(t.step_ranks.rank[i]), window);
    t.step_ranks.idle_ns[i] = window.end - window.begin - t.step_ranks.compute_ns[i];
  }
  for (std::size_t i = 0; i < t.rank_totals.rows(); ++i) {
    t.rank_totals.compute_ns[i] = busy(i, {0, end});
    t.rank_totals.idle_ns[i] = end - t.rank_totals.compute_ns[i];
  }
  const auto& steps = ranks[0]->tables.steps;
  for (std::size_t i = 0; i < steps.rows(); ++i)
    t.steps.Append({.index = steps.index[i],
                    .begin_ns = steps.begin_ns[i],
                    .end_ns = steps.end_ns[i],
                    .step_ns = steps.end_ns[i] - steps.begin_ns[i],
                    .ranks = static_cast<std::uint32_t>(ranks.size()),
                    .complete = 1});
  analysis::AnalyzeOptions options;
  options.replay = false;
  options.read_rank = [&](std::int32_t rank) -> Result<schema::RankTables> {
    return ranks.at(static_cast<std::size_t>(rank))->tables;
  };
  std::uint64_t rows = 0;
  for (const OneGpu* rank : ranks) rows = std::max(rows, schema::RowsOf(rank->tables, schema::kEvents));
  Result<analysis::Analysis> analysis =
      analysis::AnalyzeWith(timeline, options, [&](const analysis::Context& context, const analysis::Analysis& found) {
        ExpectBlocksDoNotMatter(context, found, rows);
      });
  EXPECT_TRUE(analysis.ok());
  return analysis.ok() ? std::move(analysis).value() : analysis::Analysis{};
}

const analysis::Finding* FindIn(const analysis::Analysis& analysis, std::string_view id) {
  for (const analysis::Finding& finding : analysis.findings)
    if (analysis::KindOf(finding.id).name == id) return &finding;
  return nullptr;
}

}  // namespace lockstep::test
