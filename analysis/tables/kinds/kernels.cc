// Kernels by name: how often, how long, how well they fill the GPU.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/core/statistics.h"
#include "analysis/gpu/gpu_window.h"
#include "analysis/rules/causes.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/describe.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {
namespace kernels {

const struct Columns : TableColumns {
  Column kernel = Add("kernel", kText, "name as the trace has it", kKey);
  Column cls = AddDetail(
      "class", kText,
      "compute, communication, sync (waits that the trace shows as kernels); with --classes hta also memory and other",
      kKey);
  Column count = Add("count", kCount, "launches that began in the window", kSum);
  Column total = Add("total_ns", kNs, "sum of their durations", kSum);
  Column share_of_busy =
      Add("share_of_busy", kFraction,
          "running_ns of the time in which the GPU did anything; different kernels side by side each count it");
  Column share_of_kernels =
      AddDetail("share_of_kernels", kFraction, "total over the sum of all kernels' durations, sync excepted");
  Column running =
      AddDetail("running_ns", kNs,
                "time of the window in which at least one of them ran: on several streams less than total", kSum);
  Column mean = Add("mean_ns", kNs, "mean duration");
  Column minimum = AddDetail("min_ns", kNs, "shortest", kMin);
  Column maximum = Add("max_ns", kNs, "longest", kMax);
  Column std = AddDetail("std_ns", kNs, "standard deviation (n - 1)");
  Column p50 = AddDetail("p50_ns", kNs, "median, the lower of two; not over ranks");
  Column short_count = AddDetail("short_count", kCount, "launches below 10 us", kSum);
  Column short_share = AddDetail("short_share", kFraction, "of the launches, below 10 us");
  Column occupancy =
      AddDetail("occupancy", kFraction, "estimated achieved occupancy, weighted with time, where the trace has it");
  Column small_grids =
      AddDetail("small_grid_count", kCount, "launches with fewer blocks than the device has multiprocessors", kSum);
  Column shape = AddDetail("shape", kText, "blocks x threads of the geometry that took most time");
  Column devices = AddDetail("devices", kText, "devices it ran on");
  Column streams = AddDetail("streams", kText, "streams it ran on");
  Column worst_rank = Add("worst_rank", kId, "of the ranks together: the one with the largest total");
  Column worst_total = AddDetail("worst_rank_total_ns", kNs, "that rank's total");
  Column occupancy_known = AddDetail("occupancy_known_ns", kNs, "part of total whose occupancy is known", kSum);
} col;

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
  std::vector<Interval> intervals;
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

void AddRow(const gpu::RankView& rank, std::uint32_t name, merge::KernelClass cls, Sum& sum, Table& table) {
  const auto& shapes = rank.tables.kernel_shapes;
  const auto count = static_cast<std::int64_t>(sum.durations.size());
  TableRow& row = table.AddRow(rank.rank);
  row[col.kernel] = Text(rank.Text(name));
  row[col.cls] = Text(ClassName(cls, rank.hta));
  row[col.count] = Int(count);
  row[col.total] = Int(sum.total_ns);
  row[col.running] = Int(Total(Intersect(Normalize(std::move(sum.intervals)), rank.windows)));
  row[col.minimum] = Int(*std::min_element(sum.durations.begin(), sum.durations.end()));
  row[col.maximum] = Int(*std::max_element(sum.durations.begin(), sum.durations.end()));
  if (count > 1) row[col.std] = SampleDeviation(sum.durations);
  row[col.short_count] = Int(sum.shortest);
  if (sum.occupancy_ns > 0) row[col.occupancy] = sum.occupancy_time / 100 / static_cast<double>(sum.occupancy_ns);
  if (sum.small_grids >= 0) row[col.small_grids] = Int(sum.small_grids);
  std::uint32_t widest = schema::kNone;
  for (const auto& [shape, ns] : sum.shape_ns)
    if (widest == schema::kNone || ns > sum.shape_ns[widest]) widest = shape;
  if (widest != schema::kNone) row[col.shape] = ShapeText(shapes, widest);
  row[col.devices] = List(sum.devices);
  row[col.streams] = List(sum.streams);
  row[col.occupancy_known] = Int(sum.occupancy_ns);
  row[col.p50] = Int(LowerMedian(std::move(sum.durations)));
}

bool Longer(const TableRow& a, const TableRow& b) {
  return InOrder(a, b, {Down(col.total), Down(col.count), Up(col.kernel), Up(col.cls)});
}

void Derive(TableRow& row, const TableTotals& totals) {
  row[col.mean] = Int(Mean(IntOf(row[col.total]), IntOf(row[col.count])));
  row[col.short_share] = Share(IntOf(row[col.short_count]), IntOf(row[col.count]));
  if (TextOfCell(row[col.cls]) == "sync") return;
  row[col.share_of_busy] = Share(IntOf(row[col.running]), TotalOf(totals, "busy_ns"));
  row[col.share_of_kernels] = Share(IntOf(row[col.total]), TotalOf(totals, "kernel_ns"));
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const auto& kernels = rank.tables.kernels;
  const auto& shapes = rank.tables.kernel_shapes;
  if (kernels.rows() == 0) return table.Note("no GPU events");
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
    sum.intervals.push_back({kernels.begin_ns[i], kernels.begin_ns[i] + duration});
    sum.total_ns += duration;
    sum.shortest += duration < rules::kShortKernelNs;
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
  table.totals["busy_ns"] += BusyNs(rank, window);
  table.totals["kernel_ns"] += all_ns;
  for (auto& [key, sum] : sums) {
    if (!Passes(rank.Text(key.first), options)) continue;
    AddRow(rank, key.first, key.second, sum, table);
  }
}

void PoolRow(const TableRow& of_rank, bool first, TableRow& pooled) {
  PoolDeviation(of_rank, first, {col.count, col.total, col.std}, pooled);
  const std::int64_t known = IntOf(of_rank[col.occupancy_known]),
                     had_known = first ? 0 : IntOf(pooled[col.occupancy_known]);
  if (known > 0)
    pooled[col.occupancy] = (RealOf(of_rank[col.occupancy]) * static_cast<double>(known) +
                             RealOf(pooled[col.occupancy]) * static_cast<double>(had_known)) /
                            static_cast<double>(known + had_known);
  if (first || IntOf(of_rank[col.total]) > IntOf(pooled[col.worst_total])) {
    pooled[col.worst_rank] = of_rank[col.rank];
    pooled[col.worst_total] = of_rank[col.total];
  }
}

}  // namespace kernels
}  // namespace

const TableKind kKernelsTable = {.name = "kernels",
                                 .title = "GPU kernels",
                                 .answers = "which GPU kernels take the time, by name",
                                 .columns = &kernels::col,
                                 .rank_rows = kernels::RankRows,
                                 .before = kernels::Longer,
                                 .derive = kernels::Derive,
                                 .pool_row = kernels::PoolRow};

}  // namespace lockstep::tables
