// The GPU's activity: every combination of compute, communication and memory traffic; each instant is counted in one of
// them.

#include <algorithm>
#include <array>

#include "analysis/gpu/gpu_window.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {
namespace breakdown {

const struct Columns : TableColumns {
  Column activity = Add("activity", kText,
                        "classes of what ran, and nothing else: compute and communication kernels by --classes, "
                        "memory: copies and memsets",
                        kKey);
  Column time = Add("time_ns", kNs, "time in which exactly these ran; the rows are disjoint", kSum);
  Column share_of_busy = Add("share_of_busy", kFraction, "of the sum of all rows");
  Column share_of_window = Add("share_of_window", kFraction, "of the window; the rest is idle");
} col;

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const auto& kernels = rank.tables.kernels;
  const auto& copies = rank.tables.copies;
  if (kernels.rows() + copies.rows() == 0) return table.Note("no GPU events");
  std::array<std::vector<Interval>, 3> of;
  std::int64_t other = 0;
  const gpu::GpuWindow counted(rank);
  for (std::uint32_t i = 0; i < kernels.rows(); ++i) {
    if (!counted.KeepsKernel(i)) continue;
    const Interval kernel{kernels.begin_ns[i], kernels.begin_ns[i] + kernels.duration_ns[i]};
    switch (rank.classes[i]) {
      case merge::KernelClass::kCompute:
        of[0].push_back(kernel);
        break;
      case merge::KernelClass::kComm:
        of[1].push_back(kernel);
        break;
      case merge::KernelClass::kMemory:
        of[2].push_back(kernel);
        break;
      case merge::KernelClass::kNone:
        other += rank.InWindow(kernel.begin);
        break;
    }
  }
  for (std::uint32_t i = 0; i < copies.rows(); ++i)
    if (counted.KeepsCopy(i)) of[2].push_back({copies.begin_ns[i], copies.begin_ns[i] + copies.duration_ns[i]});
  std::array<IntervalSet, 3> set;
  for (std::size_t i = 0; i < 3; ++i) set[i] = Intersect(Normalize(std::move(of[i])), rank.windows);

  const IntervalSet ab = Intersect(set[0], set[1]), ac = Intersect(set[0], set[2]), bc = Intersect(set[1], set[2]);
  const std::int64_t abc = Total(Intersect(ab, set[2]));
  const std::int64_t both[] = {Total(ab) - abc, Total(ac) - abc, Total(bc) - abc};
  const std::pair<std::string_view, std::int64_t> rows[] = {
      {"compute", Total(set[0]) - both[0] - both[1] - abc},
      {"communication", Total(set[1]) - both[0] - both[2] - abc},
      {"memory", Total(set[2]) - both[1] - both[2] - abc},
      {"compute + communication", both[0]},
      {"compute + memory", both[1]},
      {"communication + memory", both[2]},
      {"compute + communication + memory", abc},
  };
  for (const auto& [name, ns] : rows) table.totals["busy_ns"] += ns;
  table.totals["window_ns"] += Total(rank.windows);
  for (const auto& [name, ns] : rows) {
    if (ns == 0) continue;
    TableRow& row = table.AddRow(rank.rank);
    row[col.activity] = Text(name);
    row[col.time] = Int(ns);
  }
  if (other > 0 && rank.hta) table.Note("kernels that HTA calls OTHER are left out, as HTA does");
}

void Derive(TableRow& row, const TableTotals& totals) {
  row[col.share_of_busy] = Share(IntOf(row[col.time]), TotalOf(totals, "busy_ns"));
  row[col.share_of_window] = Share(IntOf(row[col.time]), TotalOf(totals, "window_ns"));
}

bool Longer(const TableRow& a, const TableRow& b) { return InOrder(a, b, {Down(col.time)}); }

}  // namespace breakdown
}  // namespace

const TableKind kBreakdownTable = {
    .name = "breakdown",
    .title = "GPU time by what ran side by side",
    .answers = "how much of the GPU's time compute, communication and copies ran, alone and together",
    .columns = &breakdown::col,
    .rank_rows = breakdown::RankRows,
    .before = breakdown::Longer,
    .derive = breakdown::Derive};

}  // namespace lockstep::tables
