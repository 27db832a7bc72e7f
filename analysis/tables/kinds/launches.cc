// How long launches take and how far the GPU is behind them.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "analysis/core/format.h"
#include "analysis/gpu/launch_index.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/describe.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {

constexpr std::uint32_t kNone = schema::kNone;
constexpr std::int64_t kShortNs = 10'000, kSlowCallNs = 50'000, kLateNs = 100'000;

enum Column : std::size_t {
  kRank,
  kBy,
  kName,
  kMetric,
  kCount,
  kTotal,
  kMean,
  kStd,
  kMin,
  kP25,
  kP50,
  kP75,
  kMax,
  kShort,
  kSlow,
  kLate,
  kUnsound,
};

constexpr std::array<std::string_view, 4> kGroups = {"all", "hta", "call", "kernel"};
constexpr std::array<std::string_view, 3> kMetrics = {"launch_delay", "cpu_duration", "gpu_duration"};
// HTA's cuda_kernel_launch_stats joins these and no others.
constexpr std::array<std::string_view, 4> kHtaCalls = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync",
                                                       "cudaMemsetAsync"};

Table Head() {
  return {"launches",
          "Launches: their delay, the host's time in them, the GPU's",
          {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
           {"by", ColumnKind::kText, "all; hta: the calls that HTA looks at; call; kernel", Pool::kKey},
           {"name", ColumnKind::kText, "of the call or kernel", Pool::kKey},
           {"metric", ColumnKind::kText,
            "launch_delay: from the call's end to the start on the GPU, 0 if it started earlier; cpu_duration: of the "
            "call; gpu_duration: of what it launched",
            Pool::kKey},
           {"count", ColumnKind::kCount, "launches of the window with that metric", Pool::kSum},
           {"total_ns", ColumnKind::kNs, "sum", Pool::kSum},
           {"mean_ns", ColumnKind::kNs, "mean"},
           {"std_ns", ColumnKind::kNs, "standard deviation (n - 1)"},
           {"min_ns", ColumnKind::kNs, "least", Pool::kMin, true},
           {"p25_ns", ColumnKind::kNs, "lower quartile, interpolated; quantiles are not over ranks", Pool::kNone, true},
           {"p50_ns", ColumnKind::kNs, "median, interpolated"},
           {"p75_ns", ColumnKind::kNs, "upper quartile, interpolated", Pool::kNone, true},
           {"max_ns", ColumnKind::kNs, "most", Pool::kMax},
           {"below_10us", ColumnKind::kCount, "of them, below 10 us: short kernels", Pool::kSum},
           {"above_50us", ColumnKind::kCount, "above 50 us: slow calls", Pool::kSum},
           {"above_100us", ColumnKind::kCount, "above 100 us: late starts", Pool::kSum},
           {"before_call", ColumnKind::kCount,
            "launches that started on the GPU before their call began: the clocks disagree, their delay is unknown and "
            "left out (counted as 0 by hta)",
            Pool::kSum, true}},
          {},
          {}};
}

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
      table.notes.push_back(
          fmt::format("{} without launching call in the trace left out", analysis::Plural(unlinked, "GPU operation")));
    if (before_call > 0)
      table.notes.push_back(fmt::format(
          "{} on the GPU before the launching call began: the trace's clocks disagree there", Started(before_call)));
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
      if (values.empty() && metric != 0) continue;
      std::vector<Cell> row(kUnsound + 1);
      row[kRank] = Int(rank_.rank);
      row[kBy] = Text(kGroups[by]);
      row[kName] = Text(name);
      row[kMetric] = Text(kMetrics[metric]);
      row[kCount] = Int(static_cast<std::int64_t>(values.size()));
      if (metric == 0) row[kUnsound] = Int(group.unsound);
      if (!values.empty()) {
        const auto above = [&](std::int64_t limit) {
          return Int(std::count_if(values.begin(), values.end(), [&](std::int64_t v) { return v > limit; }));
        };
        row[kShort] = Int(std::count_if(values.begin(), values.end(), [](std::int64_t v) { return v < kShortNs; }));
        row[kSlow] = above(kSlowCallNs);
        row[kLate] = above(kLateNs);
        const Description d = Describe(values);
        row[kTotal] = Int(d.total);
        row[kMean] = d.mean;
        if (d.count > 1) row[kStd] = d.std;
        row[kMin] = Int(d.min);
        row[kP25] = d.p25;
        row[kP50] = d.p50;
        row[kP75] = d.p75;
        row[kMax] = Int(d.max);
      } else if (group.unsound == 0) {
        continue;
      }
      table.rows.push_back(std::move(row));
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
    table.notes.emplace_back(gpu::NoGpuEvents());
  else
    collector.Run(options, table);
}

// Deviation of two groups from theirs.
void PoolRow(const std::vector<Cell>& of_rank, bool first, std::vector<Cell>& pooled) {
  const auto n = static_cast<double>(IntOf(of_rank[kCount])),
             had = static_cast<double>(first ? 0 : IntOf(pooled[kCount]));
  if (n + had < 2) return;
  const double s = RealOf(of_rank[kStd]), had_s = first ? 0 : RealOf(pooled[kStd]);
  const double mean = n > 0 ? static_cast<double>(IntOf(of_rank[kTotal])) / n : 0;
  const double had_mean = had > 0 ? static_cast<double>(IntOf(pooled[kTotal])) / had : 0;
  const double apart = n > 0 && had > 0 ? mean - had_mean : 0;
  const double squares =
      s * s * std::max(n - 1, 0.0) + had_s * had_s * std::max(had - 1, 0.0) + apart * apart * n * had / (n + had);
  pooled[kStd] = std::sqrt(squares / (n + had - 1));
}

void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end)
    if (IntOf((*end)[kCount]) > 0)
      (*end)[kMean] = static_cast<double>(IntOf((*end)[kTotal])) / static_cast<double>(IntOf((*end)[kCount]));
  // Groups as on one rank; launches of one name stay together.
  std::map<std::pair<std::string_view, std::string_view>, std::int64_t> size;
  for (auto row = table.rows.begin(); row != end; ++row) {
    std::int64_t& n = size[{TextOfCell((*row)[kBy]), TextOfCell((*row)[kName])}];
    n = std::max(n, IntOf((*row)[kCount]));
  }
  const auto index = [](const auto& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  std::vector<std::pair<std::tuple<std::ptrdiff_t, std::int64_t, std::string, std::ptrdiff_t>, std::vector<Cell>>>
      keyed;
  for (auto row = table.rows.begin(); row != end; ++row) {
    const std::string_view by = TextOfCell((*row)[kBy]), name = TextOfCell((*row)[kName]);
    keyed.push_back(
        {{index(kGroups, by), -size[{by, name}], std::string(name), index(kMetrics, TextOfCell((*row)[kMetric]))},
         *row});
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < keyed.size(); ++i) table.rows[i] = std::move(keyed[i].second);
}

}  // namespace

const TableKind kLaunchesTable = {
    "launches", "launch delay, the host's time in launches, short kernels", Head, RankRows, Finish, PoolRow};

}  // namespace lockstep::tables
