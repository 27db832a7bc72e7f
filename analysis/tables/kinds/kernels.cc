// Kernels by name: how often, how long, how well they fill the GPU.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/core/statistics.h"
#include "analysis/gpu/gpu_window.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {

constexpr std::int64_t kShortNs = 10'000;  // docs/definitions.md, gaps.

enum Column : std::size_t {
  kRank,
  kKernel,
  kClass,
  kCount,
  kTotal,
  kShareOfBusy,
  kShareOfKernels,
  kMean,
  kMinimum,
  kMaximum,
  kStd,
  kP50,
  kShort,
  kShortShare,
  kOccupancy,
  kSmallGrids,
  kShape,
  kDevices,
  kStreams,
  kWorstRank,
  kWorstTotal,
  kOccupancyKnown,
};

Table Head() {
  return {"kernels",
          "GPU kernels",
          {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
           {"kernel", ColumnKind::kText, "name as the trace has it", Pool::kKey},
           {"class", ColumnKind::kText,
            "compute, communication, sync (waits that the trace shows as kernels); with --classes hta also memory and "
            "other",
            Pool::kKey, true},
           {"count", ColumnKind::kCount, "launches that began in the window", Pool::kSum},
           {"total_ns", ColumnKind::kNs, "sum of their durations", Pool::kSum},
           {"share_of_busy", ColumnKind::kFraction,
            "total over the time in which the GPU did anything; kernels side by side make the sum exceed 1"},
           {"share_of_kernels", ColumnKind::kFraction, "total over the sum of all kernels' durations, sync excepted",
            Pool::kNone, true},
           {"mean_ns", ColumnKind::kNs, "mean duration"},
           {"min_ns", ColumnKind::kNs, "shortest", Pool::kMin, true},
           {"max_ns", ColumnKind::kNs, "longest", Pool::kMax},
           {"std_ns", ColumnKind::kNs, "standard deviation (n - 1)", Pool::kNone, true},
           {"p50_ns", ColumnKind::kNs, "median, the lower of two; not over ranks", Pool::kNone, true},
           {"short_count", ColumnKind::kCount, "launches below 10 us", Pool::kSum, true},
           {"short_share", ColumnKind::kFraction, "of the launches, below 10 us", Pool::kNone, true},
           {"occupancy", ColumnKind::kFraction,
            "estimated achieved occupancy, weighted with time, where the trace has it", Pool::kNone, true},
           {"small_grid_count", ColumnKind::kCount, "launches with fewer blocks than the device has multiprocessors",
            Pool::kSum, true},
           {"shape", ColumnKind::kText, "blocks x threads of the geometry that took most time", Pool::kNone, true},
           {"devices", ColumnKind::kText, "devices it ran on", Pool::kNone, true},
           {"streams", ColumnKind::kText, "streams it ran on", Pool::kNone, true},
           {"worst_rank", ColumnKind::kId, "of the ranks together: the one with the largest total"},
           {"worst_rank_total_ns", ColumnKind::kNs, "that rank's total", Pool::kNone, true},
           {"occupancy_known_ns", ColumnKind::kNs, "part of total whose occupancy is known", Pool::kSum, true}},
          {},
          {}};
}

std::string_view ClassName(merge::KernelClass cls, bool hta) {
  switch (cls) {
    case merge::KernelClass::kCompute:
      return "compute";
    case merge::KernelClass::kComm:
      return "communication";
    case merge::KernelClass::kMemory:
      return "memory";
    case merge::KernelClass::kNone:
      return hta ? "other" : "sync";
  }
  return "other";
}

struct Sum {
  std::vector<std::int64_t> durations;
  std::int64_t total_ns = 0, shortest = 0, occupancy_ns = 0, small_grids = 0;
  double occupancy_time = 0;  // Percent times ns.
  std::map<std::uint32_t, std::int64_t> shape_ns;
  std::set<std::uint32_t> devices, streams;
};

std::string List(const std::set<std::uint32_t>& ids) {
  std::string text;
  for (const std::uint32_t id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  return text;
}

double StandardDeviation(const std::vector<std::int64_t>& values, std::int64_t total) {
  const double mean = static_cast<double>(total) / static_cast<double>(values.size());
  double squares = 0;
  for (const std::int64_t value : values)
    squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

std::int64_t Blocks(const schema::KernelShapes& shapes, std::uint32_t row) {
  return std::int64_t{shapes.grid_x[row]} * shapes.grid_y[row] * shapes.grid_z[row];
}

std::string ShapeText(const schema::KernelShapes& s, std::uint32_t row) {
  return fmt::format("{}x{}x{} blocks of {}x{}x{}", s.grid_x[row], s.grid_y[row], s.grid_z[row], s.block_x[row],
                     s.block_y[row], s.block_z[row]);
}

// Time in which the GPU did anything, within the windows.
std::int64_t BusyNs(const gpu::RankView& rank, const gpu::GpuWindow& window) {
  const auto& kernels = rank.tables.kernels;
  const auto& copies = rank.tables.copies;
  std::vector<Interval> busy;
  busy.reserve(kernels.rows() + copies.rows());
  for (std::uint32_t i = 0; i < kernels.rows(); ++i)
    if (window.KeepsKernel(i) && (rank.hta || rank.classes[i] != merge::KernelClass::kNone))
      busy.push_back({kernels.begin_ns[i], kernels.begin_ns[i] + kernels.duration_ns[i]});
  for (std::uint32_t i = 0; i < copies.rows(); ++i)
    if (window.KeepsCopy(i)) busy.push_back({copies.begin_ns[i], copies.begin_ns[i] + copies.duration_ns[i]});
  return Total(Intersect(Normalize(std::move(busy)), rank.windows));
}

std::vector<Cell> RowOf(const gpu::RankView& rank, std::uint32_t name, merge::KernelClass cls, Sum& sum) {
  const auto& shapes = rank.tables.kernel_shapes;
  const auto count = static_cast<std::int64_t>(sum.durations.size());
  std::vector<Cell> row(kOccupancyKnown + 1);
  row[kRank] = Int(rank.rank);
  row[kKernel] = Text(rank.Text(name));
  row[kClass] = Text(ClassName(cls, rank.hta));
  row[kCount] = Int(count);
  row[kTotal] = Int(sum.total_ns);
  row[kMean] = Int(Mean(sum.total_ns, count));
  row[kMinimum] = Int(*std::min_element(sum.durations.begin(), sum.durations.end()));
  row[kMaximum] = Int(*std::max_element(sum.durations.begin(), sum.durations.end()));
  if (count > 1) row[kStd] = StandardDeviation(sum.durations, sum.total_ns);
  row[kShort] = Int(sum.shortest);
  row[kShortShare] = Share(sum.shortest, count);
  if (sum.occupancy_ns > 0) row[kOccupancy] = sum.occupancy_time / 100 / static_cast<double>(sum.occupancy_ns);
  if (sum.small_grids >= 0) row[kSmallGrids] = Int(sum.small_grids);
  std::uint32_t widest = schema::kNone;
  for (const auto& [shape, ns] : sum.shape_ns)
    if (widest == schema::kNone || ns > sum.shape_ns[widest]) widest = shape;
  if (widest != schema::kNone) row[kShape] = ShapeText(shapes, widest);
  row[kDevices] = List(sum.devices);
  row[kStreams] = List(sum.streams);
  row[kOccupancyKnown] = Int(sum.occupancy_ns);
  row[kP50] = Int(LowerMedian(std::move(sum.durations)));
  return row;
}

bool Longer(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  if (IntOf(a[kTotal]) != IntOf(b[kTotal])) return IntOf(a[kTotal]) > IntOf(b[kTotal]);
  if (IntOf(a[kCount]) != IntOf(b[kCount])) return IntOf(a[kCount]) > IntOf(b[kCount]);
  return std::pair(TextOfCell(a[kKernel]), TextOfCell(a[kClass])) <
         std::pair(TextOfCell(b[kKernel]), TextOfCell(b[kClass]));
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const auto& kernels = rank.tables.kernels;
  const auto& shapes = rank.tables.kernel_shapes;
  if (kernels.rows() == 0) {
    table.notes.push_back("no GPU events");
    return;
  }
  std::map<std::uint32_t, std::uint32_t> sm_of_device;
  for (std::size_t i = 0; i < rank.tables.devices.rows(); ++i)
    if (rank.tables.devices.sm_count[i] > 0)
      sm_of_device[rank.tables.devices.device[i]] = rank.tables.devices.sm_count[i];

  std::map<std::pair<std::uint32_t, merge::KernelClass>, Sum> sums;
  std::int64_t all_ns = 0;
  const gpu::GpuWindow window(rank);
  for (std::uint32_t i = 0; i < kernels.rows(); ++i) {
    if (!window.CountsKernel(i)) continue;
    const std::int64_t duration = kernels.duration_ns[i];
    if (rank.hta || rank.classes[i] != merge::KernelClass::kNone) all_ns += duration;
    Sum& sum = sums[{kernels.name[i], rank.classes[i]}];
    sum.durations.push_back(duration);
    sum.total_ns += duration;
    sum.shortest += duration < kShortNs;
    sum.devices.insert(kernels.device[i]);
    sum.streams.insert(kernels.stream[i]);
    const std::uint32_t shape = kernels.shape[i];
    const auto sms = sm_of_device.find(kernels.device[i]);
    if (shape >= shapes.rows()) {
      sum.small_grids = -1;
      continue;
    }
    sum.shape_ns[shape] += duration;
    if (sms == sm_of_device.end())
      sum.small_grids = -1;
    else if (sum.small_grids >= 0)
      sum.small_grids += Blocks(shapes, shape) < std::int64_t{sms->second};
    if (const std::int32_t percent = shapes.occupancy_percent[shape]; percent >= 0) {
      sum.occupancy_ns += duration;
      sum.occupancy_time += static_cast<double>(percent) * static_cast<double>(duration);
    }
  }
  const std::int64_t busy_ns = BusyNs(rank, window);
  table.totals["busy_ns"] += busy_ns;
  table.totals["kernel_ns"] += all_ns;
  for (auto& [key, sum] : sums) {
    if (!Passes(rank.Text(key.first), options)) continue;
    std::vector<Cell> row = RowOf(rank, key.first, key.second, sum);
    if (rank.hta || key.second != merge::KernelClass::kNone) {
      row[kShareOfBusy] = Share(sum.total_ns, busy_ns);
      row[kShareOfKernels] = Share(sum.total_ns, all_ns);
    }
    table.rows.push_back(std::move(row));
  }
  std::stable_sort(table.rows.begin(), table.rows.end(), Longer);
}

// Mean and deviation of two groups from theirs.
void PoolRow(const std::vector<Cell>& of_rank, bool first, std::vector<Cell>& pooled) {
  const std::int64_t ns = IntOf(of_rank[kTotal]), had_ns = first ? 0 : IntOf(pooled[kTotal]);
  const auto n = static_cast<double>(IntOf(of_rank[kCount])),
             had = static_cast<double>(first ? 0 : IntOf(pooled[kCount]));
  const double s = RealOf(of_rank[kStd]), had_s = first ? 0 : RealOf(pooled[kStd]);
  const double between = had > 0 ? static_cast<double>(ns) / n - static_cast<double>(had_ns) / had : 0;
  const double squares =
      s * s * (n - 1) + had_s * had_s * std::max(had - 1, 0.0) + between * between * n * had / (n + had);
  if (n + had > 1) pooled[kStd] = std::sqrt(squares / (n + had - 1));
  const std::int64_t known = IntOf(of_rank[kOccupancyKnown]), had_known = first ? 0 : IntOf(pooled[kOccupancyKnown]);
  if (known > 0)
    pooled[kOccupancy] = (RealOf(of_rank[kOccupancy]) * static_cast<double>(known) +
                          RealOf(pooled[kOccupancy]) * static_cast<double>(had_known)) /
                         static_cast<double>(known + had_known);
  if (first || ns > IntOf(pooled[kWorstTotal])) {
    pooled[kWorstRank] = of_rank[kRank];
    pooled[kWorstTotal] = of_rank[kTotal];
  }
}

void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end) {
    std::vector<Cell>& row = *end;
    row[kMean] = Int(Mean(IntOf(row[kTotal]), IntOf(row[kCount])));
    row[kShortShare] = Share(IntOf(row[kShort]), IntOf(row[kCount]));
    if (TextOfCell(row[kClass]) == "sync") continue;
    row[kShareOfBusy] = Share(IntOf(row[kTotal]), table.totals["busy_ns"]);
    row[kShareOfKernels] = Share(IntOf(row[kTotal]), table.totals["kernel_ns"]);
  }
  std::stable_sort(table.rows.begin(), end, Longer);
}

}  // namespace

const TableKind kKernelsTable = {"kernels", "which GPU kernels take the time, by name", Head, RankRows, Finish,
                                 PoolRow};

}  // namespace lockstep::tables
