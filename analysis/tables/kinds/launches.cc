// How long launches take and how far the GPU is behind them.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "analysis/core/format.h"
#include "analysis/gpu/launch_index.h"
#include "analysis/rules/causes.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/describe.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {
namespace launches {

using schema::kNone;

const struct Columns : TableColumns {
  Column by = Add("by", kText, "all; hta: the calls that HTA looks at; call; kernel", kKey);
  Column name = Add("name", kText, "of the call or kernel", kKey);
  Column metric = Add("metric", kText,
                      "launch_delay: from the call's end to the start on the GPU, 0 if it started earlier; "
                      "cpu_duration: of the call; gpu_duration: of what it launched",
                      kKey);
  Column count = Add("count", kCount, "launches of the window with that metric", kSum);
  Column total = Add("total_ns", kNs, "sum", kSum);
  Column mean = Add("mean_ns", kNs, "mean");
  Column std = Add("std_ns", kNs, "standard deviation (n - 1)");
  Column min = AddDetail("min_ns", kNs, "least", kMin);
  Column p25 = AddDetail("p25_ns", kNs, "lower quartile, interpolated; quantiles are not over ranks");
  Column p50 = Add("p50_ns", kNs, "median, interpolated");
  Column p75 = AddDetail("p75_ns", kNs, "upper quartile, interpolated");
  Column max = Add("max_ns", kNs, "most", kMax);
  Column short_count = Add("below_10us", kCount, "of them, below 10 us: short kernels", kSum);
  Column slow = Add("above_50us", kCount, "above 50 us: slow calls", kSum);
  Column late = Add("above_100us", kCount, "above 100 us: late starts", kSum);
  Column unsound = AddDetail("before_call", kCount,
                             "launches that started on the GPU before their call began: the clocks disagree, their "
                             "delay is unknown and left out (counted as 0 by hta)",
                             kSum);
} col;

constexpr std::array<std::string_view, 4> kGroups = {"all", "hta", "call", "kernel"};
constexpr std::array<std::string_view, 3> kMetrics = {"launch_delay", "cpu_duration", "gpu_duration"};
// HTA's cuda_kernel_launch_stats joins these and no others.
constexpr std::array<std::string_view, 4> kHtaCalls = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync",
                                                       "cudaMemsetAsync"};

struct Group {
  std::array<std::vector<std::int64_t>, 3> values;
  std::int64_t unsound = 0;
};

// One launch, or one node of a graph: a graph's launch is as late as its first node.
struct Sample {
  std::int64_t delay_ns = -1, cpu_ns = -1, gpu_ns = 0;
  bool unsound = false;
};

class Collector {
 public:
  explicit Collector(const gpu::RankView& rank)
      : rank_(rank),
        api_(rank.tables.api),
        launches_(gpu::FindLaunches(rank.tables)),
        timeline_(gpu::MakeGpuTimeline(rank, launches_)),
        calls_(gpu::ClassifyHostCalls(rank.tables)) {}

  bool Empty() const { return timeline_.ops.empty(); }

  void Run(const TableOptions& options, Table& table) {
    hta_name_.assign(rank_.tables.strings.rows(), false);
    for (std::uint32_t id = 0; id < hta_name_.size(); ++id)
      hta_name_[id] = std::find(kHtaCalls.begin(), kHtaCalls.end(), rank_.Text(id)) != kHtaCalls.end();
    std::int64_t unlinked = 0, before_call = 0;
    for (const gpu::GpuOp& op : timeline_.ops) {
      if (!op.busy) continue;
      if (op.api == kNone) {
        unlinked += rank_.InWindow(op.begin_ns);
        continue;
      }
      if (!rank_.InHostWindow(api_.begin_ns[op.api])) continue;
      before_call += Take(op);
    }
    for (std::uint32_t call = 0; call < graphs_.size(); ++call)
      if (graphs_[call].gpu_ns >= 0) AddCall(call, graphs_[call]);
    Emit(options, table);
    if (unlinked > 0)
      table.Note(
          fmt::format("{} without launching call in the trace left out", analysis::Plural(unlinked, "GPU operation")));
    if (before_call > 0)
      table.Note(fmt::format("{} on the GPU before the launching call began: the trace's clocks disagree there",
                             Started(before_call)));
  }

 private:
  static std::string Started(std::int64_t n) {
    return analysis::Plural(n, "operation") + (n == 1 ? " starts" : " start");
  }

  bool Take(const gpu::GpuOp& op) {
    const std::int64_t call_begin = api_.begin_ns[op.api];
    Sample sample;
    sample.gpu_ns = op.end_ns - op.begin_ns;
    sample.unsound = op.begin_ns < call_begin;
    sample.delay_ns = std::max<std::int64_t>(0, op.begin_ns - call_begin - api_.duration_ns[op.api]);
    sample.cpu_ns = api_.duration_ns[op.api];
    if (calls_[op.api] != gpu::HostCall::kGraphLaunch) {
      AddCall(op.api, sample);
      if (!op.copy) Add(kernels_[rank_.tables.kernels.name[op.row]], sample);
      return sample.unsound;
    }
    if (graphs_.empty()) graphs_.assign(api_.rows(), Sample{-1, -1, -1, false});
    Sample& graph = graphs_[op.api];
    const bool first = graph.gpu_ns < 0;
    if (first)
      graph = sample;
    else
      graph.gpu_ns += sample.gpu_ns;
    // The host did nothing for a node of its own.
    if (!op.copy) Add(kernels_[rank_.tables.kernels.name[op.row]], Sample{-1, -1, sample.gpu_ns, false});
    return first && sample.unsound;
  }

  void AddCall(std::uint32_t call, const Sample& sample) {
    const std::uint32_t name = api_.name[call];
    Add(all_, sample);
    Add(by_call_[name], sample);
    if (name >= hta_name_.size() || !hta_name_[name]) return;
    Sample theirs = sample;
    theirs.unsound = false;
    Add(hta_, theirs);
    hta_.unsound += sample.unsound;
  }

  static void Add(Group& group, const Sample& sample) {
    group.unsound += sample.unsound;
    if (sample.delay_ns >= 0 && !sample.unsound) group.values[0].push_back(sample.delay_ns);
    if (sample.cpu_ns >= 0) group.values[1].push_back(sample.cpu_ns);
    group.values[2].push_back(sample.gpu_ns);
  }

  void Emit(const TableOptions& options, Table& table) {
    if (options.filter.empty()) {
      Rows(0, "", all_, table);
      if (!hta_.values[2].empty()) Rows(1, "", hta_, table);
    }
    for (auto* groups : {&by_call_, &kernels_}) {
      std::vector<std::pair<std::uint32_t, Group*>> sorted;
      for (auto& [name, group] : *groups) sorted.emplace_back(name, &group);
      std::sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) {
        const std::size_t n = a.second->values[2].size(), m = b.second->values[2].size();
        return n != m ? n > m : rank_.Text(a.first) < rank_.Text(b.first);
      });
      for (auto& [name, group] : sorted)
        if (Passes(rank_.Text(name), options)) Rows(groups == &by_call_ ? 2 : 3, rank_.Text(name), *group, table);
    }
  }

  void Rows(std::size_t by, std::string_view name, Group& group, Table& table) const {
    for (std::size_t metric = 0; metric < kMetrics.size(); ++metric) {
      std::vector<std::int64_t>& values = group.values[metric];
      if (values.empty() && (metric != 0 || group.unsound == 0)) continue;
      TableRow& row = table.AddRow(rank_.rank);
      row[col.by] = Text(kGroups[by]);
      row[col.name] = Text(name);
      row[col.metric] = Text(kMetrics[metric]);
      row[col.count] = Int(static_cast<std::int64_t>(values.size()));
      if (metric == 0) row[col.unsound] = Int(group.unsound);
      if (values.empty()) continue;
      const auto above = [&](std::int64_t limit) {
        return Int(std::count_if(values.begin(), values.end(), [&](std::int64_t v) { return v > limit; }));
      };
      row[col.short_count] =
          Int(std::count_if(values.begin(), values.end(), [](std::int64_t v) { return v < rules::kShortKernelNs; }));
      row[col.slow] = above(rules::kHtaSlowCallNs);
      row[col.late] = above(rules::kHtaLateStartNs);
      const Description d = Describe(values);
      row[col.total] = Int(d.total);
      row[col.mean] = d.mean;
      if (d.count > 1) row[col.std] = d.std;
      row[col.min] = Int(d.min);
      row[col.p25] = d.p25;
      row[col.p50] = d.p50;
      row[col.p75] = d.p75;
      row[col.max] = Int(d.max);
    }
  }

  const gpu::RankView& rank_;
  const schema::Api& api_;
  gpu::LaunchIndex launches_;
  gpu::GpuTimeline timeline_;
  std::vector<gpu::HostCall> calls_;
  std::vector<bool> hta_name_;
  Group all_, hta_;
  std::map<std::uint32_t, Group> by_call_, kernels_;
  std::vector<Sample> graphs_;  // Per row of api that launched one; gpu_ns -1: none. Empty without graphs.
};

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  Collector collector(rank);
  if (collector.Empty())
    table.Note(gpu::NoGpuEvents());
  else
    collector.Run(options, table);
}

void PoolRow(const TableRow& of_rank, bool first, TableRow& pooled) {
  PoolDeviation(of_rank, first, {col.count, col.total, col.std}, pooled);
}

void Derive(TableRow& row, const TableTotals&) {
  if (IntOf(row[col.count]) > 0)
    row[col.mean] = static_cast<double>(IntOf(row[col.total])) / static_cast<double>(IntOf(row[col.count]));
}

// Groups as on one rank; launches of one name stay together.
void OrderPooled(std::span<TableRow> pooled) {
  std::map<std::pair<std::string, std::string>, std::int64_t> most;
  const auto group = [](const TableRow& row) {
    return std::pair(std::string(TextOfCell(row[col.by])), std::string(TextOfCell(row[col.name])));
  };
  for (const TableRow& row : pooled) {
    std::int64_t& n = most[group(row)];
    n = std::max(n, IntOf(row[col.count]));
  }
  const auto index = [](const auto& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  const auto key = [&](const TableRow& row) {
    const auto of = group(row);
    return std::tuple(index(kGroups, of.first), -most[of], of.second, index(kMetrics, TextOfCell(row[col.metric])));
  };
  std::stable_sort(pooled.begin(), pooled.end(), [&](const TableRow& a, const TableRow& b) { return key(a) < key(b); });
}

}  // namespace launches
}  // namespace

const TableKind kLaunchesTable = {.name = "launches",
                                  .title = "Launches: their delay, the host's time in them, the GPU's",
                                  .answers = "launch delay, the host's time in launches, short kernels",
                                  .columns = &launches::col,
                                  .rank_rows = launches::RankRows,
                                  .derive = launches::Derive,
                                  .pool_row = launches::PoolRow,
                                  .order_pooled = launches::OrderPooled};

}  // namespace lockstep::tables
