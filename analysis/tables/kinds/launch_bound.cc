// Distinguishes steps in which the GPU is busy from those in which it waits for launches.

#include <algorithm>
#include <array>

#include "analysis/gpu/device_gaps.h"
#include "analysis/rules/causes.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "core/rules/common.h"

namespace lockstep::tables {
namespace {
namespace launch_bound {

const struct Columns : TableColumns {
  Column step = Add("step", kId, "step; none: the window", kKey);
  Column device = Add("device", kId, "device, on ranks that use several", kKey);
  Column bound =
      Add("bound", kText,
          "compute, communication or copies: the device is busy for 80 % of the step, mostly with that (compute "
          "if that is half of it or more); else the "
          "largest part of its idle time: launch, input, sync, collective, unknown");
  Column window = Add("window_ns", kNs, "the step on the GPU", kSum);
  Column busy = Add("busy_ns", kNs, "any stream busy", kSum);
  Column idle = Add("idle_ns", kNs, "no stream busy", kSum);
  Column launch_limited = Add("launch_limited_ns", kNs,
                              "part of idle in which the host was too slow with the launch (calls, operators, Python), "
                              "or a launch was starting",
                              kSum);
  Column of_idle = Add("launch_limited_share", kFraction, "of idle");
  Column input = AddDetail("input_ns", kNs, "part of idle by data loading", kSum);
  Column sync =
      AddDetail("sync_ns", kNs, "part of idle until syncs returned, and the launches that they delayed", kSum);
  Column collective = AddDetail("collective_ns", kNs, "part of idle in communication on the CPU", kSum);
  Column compute = AddDetail("compute_ns", kNs, "compute kernels running", kSum);
  Column communication = AddDetail("communication_ns", kNs, "communication running, also beside compute", kSum);
  Column copies = AddDetail("copy_ns", kNs, "copies and memsets running, also beside kernels", kSum);
  Column launches = Add("launches", kCount, "calls that launched what began in the step", kSum);
  Column launch_cpu = Add("launch_cpu_ns", kNs, "the host's time in them", kSum);
  Column ops = AddDetail("kernels", kCount, "kernels that began in the step", kSum);
  Column short_count = AddDetail("short_kernels", kCount, "of them below 10 us", kSum);
  Column short_share = Add("short_share", kFraction, "of the kernels");
} col;

void Derive(TableRow& row, const TableTotals&) {
  row[col.of_idle] = Share(IntOf(row[col.launch_limited]), IntOf(row[col.idle]));
  row[col.short_share] = Share(IntOf(row[col.short_count]), IntOf(row[col.ops]));
  const auto window = static_cast<double>(IntOf(row[col.window])), busy = static_cast<double>(IntOf(row[col.busy]));
  if (window <= 0) return;
  if (busy >= rules::kThroughout * window) {
    row[col.bound] = Text(2 * IntOf(row[col.compute]) >= IntOf(row[col.busy])       ? "compute"
                          : IntOf(row[col.communication]) >= IntOf(row[col.copies]) ? "communication"
                                                                                    : "copies");
    return;
  }
  const std::int64_t known =
      IntOf(row[col.launch_limited]) + IntOf(row[col.input]) + IntOf(row[col.sync]) + IntOf(row[col.collective]);
  const std::array<std::pair<std::int64_t, std::string_view>, 5> parts = {{{IntOf(row[col.launch_limited]), "launch"},
                                                                           {IntOf(row[col.input]), "input"},
                                                                           {IntOf(row[col.sync]), "sync"},
                                                                           {IntOf(row[col.collective]), "collective"},
                                                                           {IntOf(row[col.idle]) - known, "unknown"}}};
  row[col.bound] = Text(std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
                          return a.first < b.first;
                        })->second);
}

struct Sums {
  std::int64_t window = 0, idle = 0, limited = 0, input = 0, sync = 0, collective = 0;
  std::int64_t compute = 0, communication = 0, copies = 0;
  std::int64_t launches = 0, launch_cpu = 0, kernels = 0, short_kernels = 0;
};

class PerStep {
 public:
  PerStep(const gpu::RankView& rank, const gpu::DeviceActivity& activity) : rank_(rank), activity_(activity) {
    for (const gpu::RankView::Step& step : rank.steps) windows_.push_back(step.window);
    if (rank.steps.empty()) windows_ = activity.windows;
  }

  void Rows(const gpu::DeviceGaps& found, const gpu::DeviceGaps::Device& device, Table& table) {
    sums_.assign(windows_.size(), {});
    for (std::size_t i = 0; i < windows_.size(); ++i) sums_[i].window = windows_[i].end - windows_[i].begin;
    for (const gpu::Gap& gap : found.gaps)
      if (gap.device == device.device) AddGap(found, gap);
    AddOps(device.device);
    if (rank_.steps.empty()) {
      Sums all;
      for (const Sums& s : sums_) {
        all.window += s.window, all.idle += s.idle, all.limited += s.limited, all.input += s.input;
        all.sync += s.sync, all.collective += s.collective, all.launches += s.launches;
        all.compute += s.compute, all.communication += s.communication, all.copies += s.copies;
        all.launch_cpu += s.launch_cpu, all.kernels += s.kernels, all.short_kernels += s.short_kernels;
      }
      Row(all, {}, device, found.devices.size() > 1, table);
      return;
    }
    for (std::size_t i = 0; i < sums_.size(); ++i)
      Row(sums_[i], Int(rank_.steps[i].index), device, found.devices.size() > 1, table);
  }

 private:
  // Windows in order, disjoint.
  std::size_t At(std::int64_t time_ns) const {
    const auto after = std::upper_bound(windows_.begin(), windows_.end(), time_ns,
                                        [](std::int64_t t, const Interval& window) { return t < window.begin; });
    if (after == windows_.begin()) return windows_.size();
    const auto at = static_cast<std::size_t>(after - windows_.begin()) - 1;
    // The last event of the whole may have no duration and begin at its very end.
    const bool last_instant =
        rank_.whole && rank_.steps.empty() && at + 1 == windows_.size() && time_ns == windows_[at].end;
    return time_ns < windows_[at].end || last_instant ? at : windows_.size();
  }

  void AddGap(const gpu::DeviceGaps& found, const gpu::Gap& gap) {
    auto w = std::upper_bound(windows_.begin(), windows_.end(), gap.at.begin,
                              [](std::int64_t t, const Interval& window) { return t < window.end; });
    for (; w != windows_.end() && w->begin < gap.at.end; ++w) {
      const std::int64_t ns = std::min(gap.at.end, w->end) - std::max(gap.at.begin, w->begin);
      if (ns <= 0) continue;
      Sums& sum = sums_[static_cast<std::size_t>(w - windows_.begin())];
      sum.idle += ns;
      for (const gpu::GapPart& part : found.PartsOf(gap)) {
        const std::int64_t of_part = std::min(part.at.end, w->end) - std::max(part.at.begin, w->begin);
        if (of_part <= 0) continue;
        if (gpu::LaunchLimited(part.kind)) sum.limited += of_part;
        if (part.kind == gpu::PartKind::kInput) sum.input += of_part;
        if (part.kind == gpu::PartKind::kSync) sum.sync += of_part;
        if (part.kind == gpu::PartKind::kCommunication) sum.collective += of_part;
      }
    }
  }

  void AddOps(std::uint16_t device) {
    const auto& api = rank_.tables.api;
    std::vector<Interval> compute, communication, copies;
    std::vector<bool> seen(api.rows(), false);
    for (const gpu::GpuOp& op : activity_.timeline.ops) {
      if (!op.busy || activity_.timeline.DeviceOf(op) != device) continue;
      if (op.cls == merge::KernelClass::kCompute) compute.push_back({op.begin_ns, op.end_ns});
      if (op.cls == merge::KernelClass::kComm) communication.push_back({op.begin_ns, op.end_ns});
      if (op.cls == merge::KernelClass::kMemory) copies.push_back({op.begin_ns, op.end_ns});
      const std::size_t w = At(op.begin_ns);
      if (w == windows_.size()) continue;
      if (!op.copy) {
        ++sums_[w].kernels;
        sums_[w].short_kernels += op.end_ns - op.begin_ns < rules::kShortKernelNs;
      }
      if (op.api == schema::kNone || seen[op.api]) continue;
      seen[op.api] = true;
      ++sums_[w].launches;
      sums_[w].launch_cpu += api.duration_ns[op.api];
    }
    const auto sum_up = [&](std::vector<Interval> running, std::int64_t Sums::*of) {
      const IntervalSet set = Normalize(std::move(running));
      for (std::size_t i = 0; i < windows_.size(); ++i) sums_[i].*of = TotalWithin(set, windows_[i]);
    };
    sum_up(std::move(compute), &Sums::compute);
    sum_up(std::move(communication), &Sums::communication);
    sum_up(std::move(copies), &Sums::copies);
  }

  void Row(const Sums& sum, Cell step, const gpu::DeviceGaps::Device& device, bool several, Table& table) const {
    TableRow& row = table.AddRow(rank_.rank);
    row[col.step] = std::move(step);
    row[col.device] = IntOrUnknown(device.device, several);
    row[col.window] = Int(sum.window);
    row[col.busy] = Int(sum.window - sum.idle);
    row[col.idle] = Int(sum.idle);
    row[col.launch_limited] = Int(sum.limited);
    row[col.input] = Int(sum.input);
    row[col.sync] = Int(sum.sync);
    row[col.collective] = Int(sum.collective);
    row[col.compute] = Int(sum.compute);
    row[col.communication] = Int(sum.communication);
    row[col.copies] = Int(sum.copies);
    row[col.launches] = Int(sum.launches);
    row[col.launch_cpu] = Int(sum.launch_cpu);
    row[col.ops] = Int(sum.kernels);
    row[col.short_count] = Int(sum.short_kernels);
  }

  const gpu::RankView& rank_;
  const gpu::DeviceActivity& activity_;
  std::vector<Interval> windows_;
  std::vector<Sums> sums_;
};

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const gpu::DeviceActivity activity(rank);
  if (activity.timeline.ops.empty()) return table.Note(gpu::NoGpuEvents());
  const gpu::DeviceGaps found = gpu::FindGaps(activity);
  PerStep per_step(rank, activity);
  for (const gpu::DeviceGaps::Device& device : found.devices) per_step.Rows(found, device, table);
}

// A rank's own rows are by device instead.
void OrderPooled(std::span<TableRow> pooled) {
  std::stable_sort(pooled.begin(), pooled.end(), [](const TableRow& a, const TableRow& b) {
    return InOrder(a, b, {Up(col.step), Up(col.device)});
  });
}

}  // namespace launch_bound
}  // namespace

const TableKind kLaunchBoundTable = {.name = "launch-bound",
                                     .title = "What limits each step: the GPU's work or its launches",
                                     .answers = "which steps wait for launches, which for the GPU",
                                     .columns = &launch_bound::col,
                                     .rank_rows = launch_bound::RankRows,
                                     .derive = launch_bound::Derive,
                                     .order_pooled = launch_bound::OrderPooled};

}  // namespace lockstep::tables
