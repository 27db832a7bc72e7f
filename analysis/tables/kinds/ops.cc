// Operators of the framework: host time against the GPU time of what they launched.

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "analysis/gpu/launch_index.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {
namespace ops {

using schema::kNone;
constexpr std::uint8_t kCpuOp = schema::RangeSource::kCpuOp, kSequenceNumber = schema::PayloadKind::kSequence;
// What an operator's plain number is (runtime/python/_lockstep/operators.py).
constexpr std::uint8_t kFlops = schema::PayloadKind::kInteger;
// What PyTorch calls the range around each node of the backward graph.
constexpr std::string_view kBackwardPrefix = "autograd::engine::evaluate_function";
constexpr std::string_view kOutside = "(outside operators)", kNoLaunch = "(launch not in the trace)";

const struct Columns : TableColumns {
  Column op =
      Add("op", kText,
          "operator; (outside operators): launched by none; (launch not in the trace): the operator is unknown", kKey);
  Column calls = Add("calls", kCount, "calls that began in the window, all threads", kSum);
  Column cpu_self = Add("cpu_self_ns", kNs, "host time inside it, less that of the operators it called", kSum);
  Column cpu_total =
      Add("cpu_total_ns", kNs, "host time inside it; a call within one of the same name counts once", kSum);
  Column gpu_self = Add("gpu_self_ns", kNs, "durations of kernels, copies and memsets that it launched itself", kSum);
  Column gpu_total = Add("gpu_total_ns", kNs, "the same with those of the operators it called", kSum);
  Column kernels = Add("kernels", kCount, "kernels launched, called operators' included", kSum);
  Column backward_gpu = AddDetail(
      "backward_gpu_ns", kNs, "gpu_total of the backward functions of its calls, by autograd's sequence number", kSum);
  Column backward_cpu = AddDetail("backward_cpu_ns", kNs, "their host time", kSum);
  Column cpu_share = AddDetail("cpu_share", kFraction, "cpu_self of the sum over all operators");
  Column gpu_share = AddDetail("gpu_share", kFraction, "gpu_self of all GPU work's durations");
  Column launched = AddDetail("kernels_self", kCount, "kernels that it launched itself", kSum);
  Column shapes = Add("shapes", kText, "with --group-by shapes: of its inputs, where they were recorded", kKey);
  Column flops = Add("flops", kCount,
                     "floating-point operations of the calls, where they were recorded: see --torch-shapes", kSum);
} col;

struct Sum {
  std::int64_t calls = 0, cpu_self = 0, cpu_total = 0, gpu_self = 0, gpu_total = 0, kernels = 0, kernels_self = 0;
  std::int64_t backward_gpu = 0, backward_cpu = 0, flops = 0;
};

// One rank's operators.
class Operators {
 public:
  Operators(const gpu::RankView& rank, bool by_shapes)
      : rank_(rank), by_shapes_(by_shapes), ranges_(rank.tables.ranges), nest_(rank.tables, gpu::RangeNest::kCpuOps) {}

  void Run() {
    const std::size_t n = ranges_.rows();
    self_ = nest_.SelfTimes();
    gpu_.assign(n, 0), kernels_.assign(n, 0);
    Launched();
    AddUp();
    Backward();
  }

  // Name and shapes (kNone unless they matter): texts of the rank's file.
  using Key = std::pair<std::uint32_t, std::uint32_t>;
  std::map<Key, Sum> by_name;
  bool flops = false;  // Some operator has a number.
  Sum outside, no_launch;
  std::int64_t unlinked = 0;  // Backward functions whose forward operator is not there.

 private:
  Key KeyOf(std::uint32_t row) const { return {ranges_.name[row], by_shapes_ ? ranges_.domain[row] : kNone}; }
  bool Counts(std::uint32_t row) const {
    return ranges_.source[row] == kCpuOp && ranges_.kind[row] != schema::RangeKind::kMark &&
           rank_.InHostWindow(ranges_.begin_ns[row]);
  }

  // f(row) for each operator, callers before what they call.
  template <typename F>
  void Each(F&& f) {
    for (std::uint32_t thread = 0; thread < nest_.threads(); ++thread)
      for (const std::uint32_t row : nest_.Of(thread)) f(row);
  }

  template <typename Table>
  void Launched(const Table& table, const std::vector<std::uint32_t>& api_of, bool kernel) {
    const auto& api = rank_.tables.api;
    for (std::uint32_t row = 0; row < table.rows(); ++row) {
      if (kernel && !rank_.hta && rank_.classes[row] == merge::KernelClass::kNone) continue;
      const std::int64_t ns = table.duration_ns[row];
      const std::uint32_t call = api_of[row];
      if (call == kNone) {
        if (rank_.InWindow(table.begin_ns[row])) Outside(no_launch, ns, kernel);
        continue;
      }
      const std::uint32_t op = op_of_call_[call];
      if (op == kNone) {
        if (rank_.InHostWindow(api.begin_ns[call])) Outside(outside, ns, kernel);
        continue;
      }
      gpu_[op] += ns;
      kernels_[op] += kernel;
    }
  }
  static void Outside(Sum& sum, std::int64_t ns, bool kernel) {
    sum.gpu_self += ns, sum.gpu_total += ns;
    sum.kernels += kernel, sum.kernels_self += kernel;
  }
  void Launched() {
    const gpu::LaunchIndex launches = gpu::FindLaunches(rank_.tables);
    op_of_call_ = nest_.At(rank_.tables.api.thread, rank_.tables.api.begin_ns);
    Launched(rank_.tables.kernels, launches.of_kernel, true);
    Launched(rank_.tables.copies, launches.of_copy, false);
    gpu_total_ = gpu_, kernels_total_ = kernels_;
    std::vector<std::uint32_t> order;
    Each([&](std::uint32_t row) { order.push_back(row); });
    for (auto row = order.rbegin(); row != order.rend(); ++row)
      if (const std::uint32_t parent = nest_.Parent(*row); parent != kNone) {
        gpu_total_[parent] += gpu_total_[*row];
        kernels_total_[parent] += kernels_total_[*row];
      }
  }

  bool WithinItsName(std::uint32_t row) const {
    for (std::uint32_t at = nest_.Parent(row); at != kNone; at = nest_.Parent(at))
      if (KeyOf(at) == KeyOf(row) && Counts(at)) return true;
    return false;
  }

  void AddUp() {
    for (std::uint32_t row = 0; row < ranges_.rows(); ++row) {
      if (!Counts(row)) continue;
      Sum& sum = by_name[KeyOf(row)];
      ++sum.calls;
      if (ranges_.payload_kind[row] == kFlops) {
        flops = true;
        sum.flops += ranges_.payload[row];
      }
      sum.cpu_self += self_[row], sum.gpu_self += gpu_[row], sum.kernels_self += kernels_[row];
      if (WithinItsName(row)) continue;
      sum.cpu_total += ranges_.duration_ns[row], sum.gpu_total += gpu_total_[row], sum.kernels += kernels_total_[row];
    }
  }

  // Operators that called each other share a number until the backward node is made:
  // the one that began last made it (Kineto's arrows from forward to backward, too).
  void Backward() {
    std::vector<std::uint8_t> backward(ranges_.rows(), 0);
    std::vector<std::uint32_t> functions;
    std::unordered_map<std::int64_t, std::vector<std::uint32_t>> forward;
    Each([&](std::uint32_t row) {
      const std::uint32_t parent = nest_.Parent(row);
      const bool numbered = ranges_.payload_kind[row] == kSequenceNumber && ranges_.payload[row] >= 0;
      if (parent != kNone && backward[parent]) {
        backward[row] = 1;
      } else if (rank_.Text(ranges_.name[row]).starts_with(kBackwardPrefix)) {
        backward[row] = 1;
        if (numbered) functions.push_back(row);
      } else if (numbered) {
        forward[ranges_.payload[row]].push_back(row);
      }
    });
    for (const std::uint32_t function : functions) {
      std::uint32_t maker = kNone;
      if (const auto found = forward.find(ranges_.payload[function]); found != forward.end())
        for (const std::uint32_t row : found->second)
          if (ranges_.begin_ns[row] <= ranges_.begin_ns[function] &&
              (maker == kNone || ranges_.begin_ns[row] >= ranges_.begin_ns[maker]))
            maker = row;
      if (maker == kNone) {
        unlinked += Counts(function);
        continue;
      }
      std::vector<Key> names;
      for (std::uint32_t at = maker; at != kNone; at = nest_.Parent(at)) {
        if (!Counts(at) || std::find(names.begin(), names.end(), KeyOf(at)) != names.end()) continue;
        names.push_back(KeyOf(at));
        Sum& sum = by_name[KeyOf(at)];
        sum.backward_cpu += ranges_.duration_ns[function];
        sum.backward_gpu += gpu_total_[function];
      }
    }
  }

  const gpu::RankView& rank_;
  const bool by_shapes_;
  const schema::Ranges& ranges_;
  gpu::RangeNest nest_;
  std::vector<std::uint32_t> op_of_call_;
  std::vector<std::int64_t> self_, gpu_, gpu_total_, kernels_, kernels_total_;
};

bool MoreTime(const TableRow& a, const TableRow& b) {
  const std::int64_t time_a = IntOf(a[col.cpu_self]) + IntOf(a[col.gpu_self]);
  const std::int64_t time_b = IntOf(b[col.cpu_self]) + IntOf(b[col.gpu_self]);
  return time_a != time_b ? time_a > time_b : InOrder(a, b, {Up(col.op), Up(col.shapes)});
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const auto& sources = rank.tables.ranges.source;
  if (std::find(sources.begin(), sources.end(), kCpuOp) == sources.end())
    return table.Note("no CPU operators were recorded");
  Operators ops(rank, options.by_shapes);
  ops.Run();
  std::int64_t cpu = 0, gpu = ops.outside.gpu_self + ops.no_launch.gpu_self;
  for (const auto& [name, sum] : ops.by_name) cpu += sum.cpu_self, gpu += sum.gpu_self;
  table.totals["cpu_ns"] += cpu;
  table.totals["gpu_ns"] += gpu;

  const auto add = [&](std::string_view name, std::uint32_t shapes, const Sum& sum, bool op) {
    if (!Passes(name, options)) return;
    TableRow& row = table.AddRow(rank.rank);
    row[col.op] = Text(name);
    if (shapes != kNone) row[col.shapes] = Text(rank.Text(shapes));
    row[col.gpu_self] = Int(sum.gpu_self), row[col.gpu_total] = Int(sum.gpu_total);
    row[col.kernels] = Int(sum.kernels), row[col.launched] = Int(sum.kernels_self);
    if (op) {
      row[col.calls] = Int(sum.calls);
      row[col.flops] = IntOrUnknown(sum.flops, ops.flops);
      row[col.cpu_self] = Int(sum.cpu_self), row[col.cpu_total] = Int(sum.cpu_total);
      row[col.backward_gpu] = Int(sum.backward_gpu), row[col.backward_cpu] = Int(sum.backward_cpu);
    }
  };
  for (const auto& [key, sum] : ops.by_name) add(rank.Text(key.first), key.second, sum, true);
  if (ops.outside.gpu_self > 0 || ops.outside.kernels > 0) add(kOutside, kNone, ops.outside, false);
  if (ops.no_launch.gpu_self > 0 || ops.no_launch.kernels > 0) add(kNoLaunch, kNone, ops.no_launch, false);
  if (ops.unlinked > 0)
    table.Note("backward functions whose forward operator is not in the trace: " + std::to_string(ops.unlinked));
}

void Derive(TableRow& row, const TableTotals& totals) {
  if (Known(row[col.calls])) row[col.cpu_share] = Share(IntOf(row[col.cpu_self]), TotalOf(totals, "cpu_ns"));
  row[col.gpu_share] = Share(IntOf(row[col.gpu_self]), TotalOf(totals, "gpu_ns"));
}

}  // namespace ops
}  // namespace

const TableKind kOpsTable = {.name = "ops",
                             .title = "CPU operators and the GPU work they launched",
                             .answers = "which operators take host time, and GPU time through what they launch",
                             .columns = &ops::col,
                             .rank_rows = ops::RankRows,
                             .before = ops::MoreTime,
                             .derive = ops::Derive};

}  // namespace lockstep::tables
