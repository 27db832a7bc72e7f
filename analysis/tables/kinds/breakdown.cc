// What the GPU did when: every combination of compute, communication and memory
// traffic, each instant in one of them.

#include <algorithm>
#include <array>

#include "analysis/gpu/gpu_window.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {

enum Column : std::size_t { kRank, kActivity, kTime, kShareOfBusy, kShareOfWindow };

Table Head() {
  return {"breakdown",
          "GPU time by what ran side by side",
          {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
           {"activity", ColumnKind::kText,
            "classes of what ran, and nothing else: compute and communication kernels by --classes, memory: copies and "
            "memsets",
            Pool::kKey},
           {"time_ns", ColumnKind::kNs, "time in which exactly these ran; the rows are disjoint", Pool::kSum},
           {"share_of_busy", ColumnKind::kFraction, "of the sum of all rows"},
           {"share_of_window", ColumnKind::kFraction, "of the window; the rest is idle"}},
          {},
          {}};
}

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const auto& kernels = rank.tables.kernels;
  const auto& copies = rank.tables.copies;
  if (kernels.rows() + copies.rows() == 0) {
    table.notes.push_back("no GPU events");
    return;
  }
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
  std::int64_t busy = 0, window = 0;
  for (const auto& [name, ns] : rows) busy += ns;
  for (const Interval& part : rank.windows) window += part.end - part.begin;
  table.totals["busy_ns"] += busy;
  table.totals["window_ns"] += window;
  for (const auto& [name, ns] : rows)
    if (ns > 0) table.rows.push_back({Int(rank.rank), Text(name), Int(ns), Share(ns, busy), Share(ns, window)});
  std::stable_sort(table.rows.begin(), table.rows.end(),
                   [](const auto& a, const auto& b) { return IntOf(a[kTime]) > IntOf(b[kTime]); });
  if (other > 0 && rank.hta) table.notes.push_back("kernels that HTA calls OTHER are left out, as HTA does");
}

void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end) {
    (*end)[kShareOfBusy] = Share(IntOf((*end)[kTime]), table.totals["busy_ns"]);
    (*end)[kShareOfWindow] = Share(IntOf((*end)[kTime]), table.totals["window_ns"]);
  }
  std::stable_sort(table.rows.begin(), end,
                   [](const auto& a, const auto& b) { return IntOf(a[kTime]) > IntOf(b[kTime]); });
}

}  // namespace

const TableKind kBreakdownTable = {
    "breakdown", "how much of the GPU's time compute, communication and copies ran, alone and together", Head, RankRows,
    Finish};

}  // namespace lockstep::tables
