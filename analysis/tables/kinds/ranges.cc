// Ranges of the application: host time, GPU work launched inside, exposed communication.

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/core/step_names.h"
#include "analysis/gpu/launch_index.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "analysis/tables/kinds/comm_ops.h"
#include "core/order_statistics.h"
#include "merge/timeline/rank_pass.h"

namespace lockstep::tables {
namespace {
namespace ranges {

using schema::kNone;
constexpr std::uint32_t kAnnotations = 1u << 0 | 1u << 1 | 1u << 2;  // ranges.source: lockstep.h, NVTX, torch.
constexpr std::string_view kSourceNames[] = {"lockstep", "nvtx", "annotation"};

const struct Columns : TableColumns {
  Column range = Add("range", kText, "name; ProfilerStep#N stands for all numbers", kKey);
  Column source =
      AddDetail("source", kText, "lockstep (lockstep.h), nvtx, annotation (record_function and the like)", kKey);
  Column domain = AddDetail("domain", kText, "NVTX domain or source module", kKey);
  Column count = Add("count", kCount, "ranges that began in the window, marks too", kSum);
  Column total = Add("total_ns", kNs, "sum of their host time", kSum);
  Column mean = AddDetail("mean_ns", kNs, "mean host time");
  Column p50 = AddDetail("p50_ns", kNs, "median host time, the lower of two; not over ranks");
  Column p90 = AddDetail("p90_ns", kNs, "90 % take no longer; not over ranks");
  Column p99 = AddDetail("p99_ns", kNs, "99 % take no longer; not over ranks");
  Column maximum = AddDetail("max_ns", kNs, "longest", kMax);
  Column gpu = Add("gpu_ns", kNs,
                   "durations of GPU work launched inside: by its thread, or by a thread without a range of its own "
                   "while it was open on the training thread (autograd's threads work for it)",
                   kSum);
  Column gpu_self = Add("gpu_self_ns", kNs, "the same where no inner range was open", kSum);
  Column kernels = Add("kernels", kCount, "kernels launched inside", kSum);
  Column exposed =
      Add("exposed_comm_ns", kNs,
          "time with communication launched inside in flight and no compute; each instant once per row", kSum);
} col;

struct Sum {
  std::string_view name, source, domain;
  std::int64_t count = 0, total = 0, longest = 0, gpu = 0, gpu_self = 0, kernels = 0;
  std::vector<std::int64_t> durations;
  std::vector<Interval> comm;
};

class Rangelist {
 public:
  explicit Rangelist(const gpu::RankView& rank)
      : rank_(rank),
        r_(rank.tables.ranges),
        nest_(rank.tables, kAnnotations),
        training_(merge::TrainingThread(rank.tables)) {}

  void Run() {
    Group();
    if (sums.empty()) return;
    Gpu();
    Communication();
  }

  std::vector<Sum> sums;
  std::vector<std::int64_t> exposed;
  std::int64_t open = 0;

 private:
  void Group() {
    group_.assign(r_.rows(), kNone);
    std::map<std::tuple<std::string_view, std::string_view, std::string_view>, std::uint32_t> groups;
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint8_t>, std::uint32_t> by_id;
    for (std::uint32_t row = 0; row < r_.rows(); ++row) {
      if (r_.source[row] > schema::RangeSource::kTorch || !rank_.InHostWindow(r_.begin_ns[row])) continue;
      const auto [at, fresh] = by_id.try_emplace({r_.name[row], r_.domain[row], r_.source[row]}, 0);
      if (fresh) {
        std::string_view name = rank_.Text(r_.name[row]);
        if (analysis::IsProfilerStep(name)) name = "ProfilerStep#N";
        const std::tuple key{name, kSourceNames[r_.source[row]], rank_.Text(r_.domain[row])};
        const auto [group, new_group] = groups.try_emplace(key, static_cast<std::uint32_t>(sums.size()));
        if (new_group) sums.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key)});
        at->second = group->second;
      }
      group_[row] = at->second;
      Sum& sum = sums[at->second];
      ++sum.count;
      sum.total += r_.duration_ns[row];
      sum.longest = std::max(sum.longest, r_.duration_ns[row]);
      sum.durations.push_back(r_.duration_ns[row]);
      open += r_.open[row];
    }
  }

  // Rows of `sums` of the ranges around a launch, innermost first, each once.
  void Around(std::uint32_t thread, std::int64_t at_ns, std::vector<std::uint32_t>& found) const {
    found.clear();
    const auto climb = [&](std::uint32_t row) {
      for (; row != kNone; row = nest_.Parent(row)) {
        // A range may end after the one around it.
        if (r_.begin_ns[row] + r_.duration_ns[row] <= at_ns || group_[row] == kNone) continue;
        if (std::find(found.begin(), found.end(), group_[row]) == found.end()) found.push_back(group_[row]);
      }
    };
    climb(nest_.At(thread, at_ns));
    if (thread != training_) climb(nest_.At(training_, at_ns));
  }

  void Gpu() {
    const gpu::LaunchIndex launches = gpu::FindLaunches(rank_.tables);
    const auto& api = rank_.tables.api;
    std::vector<std::uint32_t> around;
    const auto add = [&](const auto& table, const std::vector<std::uint32_t>& api_of, bool kernel) {
      for (std::uint32_t row = 0; row < table.rows(); ++row) {
        if (api_of[row] == kNone) continue;
        if (kernel && !rank_.hta && rank_.classes[row] == merge::KernelClass::kNone) continue;
        Around(api.thread[api_of[row]], api.begin_ns[api_of[row]], around);
        for (std::size_t i = 0; i < around.size(); ++i) {
          sums[around[i]].gpu += table.duration_ns[row];
          sums[around[i]].kernels += kernel;
          if (i == 0) sums[around[i]].gpu_self += table.duration_ns[row];
        }
      }
    };
    add(rank_.tables.kernels, launches.of_kernel, true);
    add(rank_.tables.copies, launches.of_copy, false);
  }

  void Communication() {
    const RankComm comm = CommOf(rank_);
    std::vector<std::uint32_t> around;
    for (const CommOperation& op : comm.ops) {
      if (op.thread == kNone || op.launch_ns == schema::kNoTime) continue;
      Around(op.thread, op.launch_ns, around);
      for (const std::uint32_t sum : around) sums[sum].comm.push_back({op.begin_ns, op.end_ns});
    }
    for (const MessageWaiting& wait : comm.message_waits) {
      Around(rank_.tables.p2p.thread[wait.row], rank_.tables.p2p.begin_ns[wait.row], around);
      for (const std::uint32_t sum : around) sums[sum].comm.push_back(wait.at);
    }
    exposed.assign(sums.size(), 0);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const IntervalSet in_flight = Intersect(Normalize(std::move(sums[i].comm)), rank_.windows);
      exposed[i] = Total(comm.gpu ? Subtract(in_flight, comm.busy) : Intersect(in_flight, comm.busy));
    }
  }

  const gpu::RankView& rank_;
  const schema::Ranges& r_;
  gpu::RangeNest nest_;
  const std::uint32_t training_;
  std::vector<std::uint32_t> group_;  // Per row of ranges: row of sums, kNone: does not count.
};

bool Longer(const TableRow& a, const TableRow& b) {
  return InOrder(a, b, {Down(col.total), Up(col.range), Up(col.source), Up(col.domain)});
}

void Derive(TableRow& row, const TableTotals&) {
  row[col.mean] = Int(Mean(IntOf(row[col.total]), IntOf(row[col.count])));
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  Rangelist list(rank);
  list.Run();
  if (list.sums.empty()) return table.Note("no ranges were recorded");
  const bool gpu = rank.tables.kernels.rows() + rank.tables.copies.rows() > 0;
  for (std::size_t i = 0; i < list.sums.size(); ++i) {
    Sum& sum = list.sums[i];
    if (!Passes(sum.name, options)) continue;
    TableRow& row = table.AddRow(rank.rank);
    row[col.range] = Text(sum.name), row[col.source] = Text(sum.source);
    if (!sum.domain.empty()) row[col.domain] = Text(sum.domain);
    row[col.count] = Int(sum.count), row[col.total] = Int(sum.total);
    row[col.maximum] = Int(sum.longest);
    row[col.p50] = Int(LowerQuantile(sum.durations, 0.5));
    row[col.p90] = Int(LowerQuantile(sum.durations, 0.9));
    row[col.p99] = Int(LowerQuantile(std::move(sum.durations), 0.99));
    row[col.gpu] = IntOrUnknown(sum.gpu, gpu), row[col.gpu_self] = IntOrUnknown(sum.gpu_self, gpu);
    row[col.kernels] = IntOrUnknown(sum.kernels, gpu);
    row[col.exposed] = Int(list.exposed[i]);
  }
  if (list.open > 0) table.Note("ranges that never ended count to the last sign of life: " + std::to_string(list.open));
}

}  // namespace ranges
}  // namespace

const TableKind kRangesTable = {
    .name = "ranges",
    .title = "Ranges and the GPU work launched inside",
    .answers = "the application's ranges: host time, GPU work and exposed communication launched inside",
    .columns = &ranges::col,
    .rank_rows = ranges::RankRows,
    .before = ranges::Longer,
    .derive = ranges::Derive,
    .p2p_partners = true};

}  // namespace lockstep::tables
