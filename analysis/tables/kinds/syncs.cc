// Where the host waits for the GPU, and how long the GPU is idle after it.

#include <algorithm>
#include <map>

#include "analysis/gpu/device_gaps.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "analysis/tables/engine/row_lists.h"

namespace lockstep::tables {
namespace {

constexpr std::uint32_t kNone = schema::kNone;

enum Column : std::size_t {
  kRank,
  kCall,
  kOp,
  kRange,
  kCount,
  kTotal,
  kMean,
  kMax,
  kIdleAfter,
  kIdleGaps,
  kIdleLargest,
  kIdleStep,
  kWaited,
};

Table Head() {
  return {"syncs",
          "Where the host waits for the GPU",
          {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
           {"call", ColumnKind::kText, "what blocks: a sync, a blocking copy, freeing memory", Pool::kKey},
           {"op", ColumnKind::kText, "innermost operator around it", Pool::kKey},
           {"range", ColumnKind::kText, "innermost range of the application around it", Pool::kKey},
           {"count", ColumnKind::kCount, "calls that began in the window", Pool::kSum},
           {"total_ns", ColumnKind::kNs, "the host's time in them", Pool::kSum},
           {"mean_ns", ColumnKind::kNs, "mean"},
           {"max_ns", ColumnKind::kNs, "longest", Pool::kMax, true},
           {"idle_after_ns", ColumnKind::kNs, "idle time of the GPU that these caused (cause sync of the table idle)",
            Pool::kSum},
           {"idle_gaps", ColumnKind::kCount, "in so many gaps", Pool::kSum},
           {"idle_largest_ns", ColumnKind::kNs, "the largest of them", Pool::kMax, true},
           {"idle_largest_step", ColumnKind::kId, "its step", Pool::kNone, true},
           {"gpu_wait_ns", ColumnKind::kNs, "wait as the GPU's own record of the sync has it, where there is one",
            Pool::kSum, true}},
          {},
          {}};
}

struct Sum {
  std::int64_t count = 0, total_ns = 0, max_ns = 0, idle_ns = 0, gaps = 0, largest_ns = 0, waited_ns = 0;
  bool waited = false;
  Cell largest_step;
};

bool Worse(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  const auto key = [](const std::vector<Cell>& row) {
    return std::tuple(-IntOf(row[kIdleAfter]), -IntOf(row[kTotal]), -IntOf(row[kCount]), TextOfCell(row[kCall]),
                      TextOfCell(row[kOp]), TextOfCell(row[kRange]));
  };
  return key(a) < key(b);
}

// What is around a call: an operator, a range that the application made. Rows of strings.
struct Around {
  std::uint32_t op = kNone, range = kNone;
};
Around AroundOf(const gpu::RankView& rank, const gpu::RangeNest& nest, const gpu::BlockingCall& call) {
  constexpr std::uint8_t kCpuOp = schema::RangeSource::kCpuOp, kPythonFunction = schema::RangeSource::kPython;
  Around around;
  if (call.thread == kNone) return around;
  const auto& ranges = rank.tables.ranges;
  for (std::uint32_t r = nest.At(call.thread, call.begin_ns); r != kNone; r = nest.Parent(r)) {
    if (ranges.source[r] == kCpuOp) {
      if (around.op == kNone) around.op = ranges.name[r];
    } else if (ranges.source[r] != kPythonFunction && !rank.Text(ranges.name[r]).starts_with("ProfilerStep#")) {
      around.range = ranges.name[r];
      break;
    }
  }
  return around;
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const gpu::DeviceActivity activity(rank);
  const gpu::DeviceGaps found = gpu::FindGaps(activity);
  if (found.blocking.empty()) {
    if (activity.timeline.ops.empty())
      table.notes.emplace_back(gpu::NoGpuEvents());
    else
      table.notes.emplace_back(rank.tables.api.rows() == 0 && rank.tables.sync.rows() == 0
                                   ? "no host calls into the GPU runtime in the trace"
                                   : "no call that waits for the GPU");
    return;
  }
  const gpu::RangeNest nest(rank.tables);
  const auto name_of = [&](std::uint32_t id) { return std::string(id == kNone ? std::string_view() : rank.Text(id)); };
  std::map<std::tuple<std::string, std::string, std::string>, Sum> sums;
  std::vector<Sum*> of_call(found.blocking.size(), nullptr);
  const auto sum_of = [&](std::uint32_t i) -> Sum& {
    if (of_call[i] == nullptr) {
      const Around around = AroundOf(rank, nest, found.blocking[i]);
      of_call[i] = &sums[{gpu::BlockingName(rank, found.blocking[i]), name_of(around.op), name_of(around.range)}];
    }
    return *of_call[i];
  };
  for (std::uint32_t i = 0; i < found.blocking.size(); ++i) {
    const gpu::BlockingCall& call = found.blocking[i];
    if (!rank.InHostWindow(call.begin_ns)) continue;
    Sum& sum = sum_of(i);
    ++sum.count;
    sum.total_ns += call.end_ns - call.begin_ns;
    sum.max_ns = std::max(sum.max_ns, call.end_ns - call.begin_ns);
    if (call.sync == kNone) continue;
    sum.waited = true;
    sum.waited_ns += rank.tables.sync.duration_ns[call.sync];
  }
  for (const gpu::Gap& gap : found.gaps) {
    if (gap.cause != gpu::GapCause::kSync) continue;
    Sum& sum = sum_of(gap.blocking);
    const std::int64_t ns = gap.at.end - gap.at.begin;
    sum.idle_ns += ns;
    ++sum.gaps;
    if (ns <= sum.largest_ns) continue;
    sum.largest_ns = ns;
    const gpu::RankView::Step* step = StepAt(rank, gap.at.begin);
    sum.largest_step = step != nullptr ? Int(step->index) : Cell();
  }
  for (const auto& [key, sum] : sums) {
    const auto& [call, op, range] = key;
    if (!Passes(call, options) && !Passes(op, options) && !Passes(range, options)) continue;
    std::vector<Cell> row(kWaited + 1);
    row[kRank] = Int(rank.rank);
    row[kCall] = call;
    if (!op.empty()) row[kOp] = op;
    if (!range.empty()) row[kRange] = range;
    row[kCount] = Int(sum.count);
    row[kTotal] = Int(sum.total_ns);
    if (sum.count > 0) row[kMean] = Int(Mean(sum.total_ns, sum.count));
    row[kMax] = Int(sum.max_ns);
    row[kIdleAfter] = Int(sum.idle_ns);
    row[kIdleGaps] = Int(sum.gaps);
    row[kIdleLargest] = Int(sum.largest_ns);
    row[kIdleStep] = sum.largest_step;
    row[kWaited] = IntOrUnknown(sum.waited_ns, sum.waited);
    table.rows.push_back(std::move(row));
  }
  std::stable_sort(table.rows.begin(), table.rows.end(), Worse);
}

void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end)
    if (IntOf((*end)[kCount]) > 0) (*end)[kMean] = Int(Mean(IntOf((*end)[kTotal]), IntOf((*end)[kCount])));
  std::stable_sort(table.rows.begin(), end, Worse);
}

}  // namespace

const TableKind kSyncsTable = {"syncs", "where the host waits for the GPU, and what that costs", Head, RankRows,
                               Finish};

}  // namespace lockstep::tables
