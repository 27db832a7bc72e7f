// Sequences of GPU work that operators launch again and again: what to fuse or to capture in a graph.

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "analysis/gpu/launch_index.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {

constexpr std::uint32_t kNone = schema::kNone;
constexpr std::uint8_t kCpuOp = schema::RangeSource::kCpuOp;
// By copies.kind; Kineto's words.
constexpr std::array<std::string_view, 7> kCopyNames = {"Memcpy",      "Memcpy HtoD", "Memcpy DtoH", "Memcpy DtoD",
                                                        "Memcpy PtoP", "Memcpy HtoH", "Memset"};

enum Column : std::size_t { kRank, kSequence, kLength, kCount, kTotal, kMean, kMeanKernel, kShare, kOps, kColumns };

Table Head() {
  return {"sequences",
          "Frequent sequences of GPU work",
          {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
           {"sequence", ColumnKind::kText,
            "kernels, copies and memsets that one call of an operator launched, by their start", Pool::kKey},
           {"length", ColumnKind::kCount, "how many; at least --min-length", Pool::kMax},
           {"count", ColumnKind::kCount, "calls that launched exactly this sequence", Pool::kSum},
           {"total_ns", ColumnKind::kNs, "sum of their durations", Pool::kSum},
           {"mean_ns", ColumnKind::kNs, "per call"},
           {"mean_kernel_ns", ColumnKind::kNs, "per kernel, copy or memset"},
           {"share", ColumnKind::kFraction, "of the durations of all sequences", Pool::kNone, true},
           {"op", ColumnKind::kText, "the operator that launched it most often", Pool::kNone, true}},
          {},
          {}};
}

struct Sum {
  std::int64_t count = 0, total = 0;
  std::map<std::uint32_t, std::int64_t> ops;  // Name -> calls.
};

struct Work {
  std::uint32_t op;
  std::int64_t begin_ns, duration_ns;
  std::uint32_t what;  // Name of a kernel, or kFirstCopy + kind.
  bool copy;
  std::uint32_t row;
};

class Sequences {
 public:
  Sequences(const gpu::RankView& rank, const TableOptions& options)
      : rank_(rank), options_(options), nest_(rank.tables, gpu::RangeNest::kCpuOps) {}

  void Run() {
    Choose();
    Collect();
    std::vector<std::uint32_t> key;
    for (std::size_t i = 0; i < work_.size();) {
      key.clear();
      std::int64_t total = 0;
      std::size_t j = i;
      for (; j < work_.size() && work_[j].op == work_[i].op; ++j) {
        key.push_back(work_[j].what);
        total += work_[j].duration_ns;
      }
      if (key.size() >= std::max<std::size_t>(options_.min_length, 1)) {
        Sum& sum = sums[key];
        ++sum.count;
        sum.total += total;
        ++sum.ops[rank_.tables.ranges.name[work_[i].op]];
      }
      i = j;
    }
  }

  std::string TextOf(const std::vector<std::uint32_t>& key) const {
    std::string text;
    for (const std::uint32_t what : key) {
      if (!text.empty()) text += " -> ";
      text += what >= kFirstCopy && what != kNone ? kCopyNames[what - kFirstCopy] : rank_.Text(what);
    }
    return text;
  }

  std::map<std::vector<std::uint32_t>, Sum> sums;

 private:
  static constexpr std::uint32_t kFirstCopy = kNone - static_cast<std::uint32_t>(kCopyNames.size());

  // Per operator: the outermost one around it, itself included, whose name passes.
  void Choose() {
    const auto& ranges = rank_.tables.ranges;
    outermost_.assign(ranges.rows(), kNone);
    for (std::uint32_t thread = 0; thread < nest_.threads(); ++thread)
      for (const std::uint32_t row : nest_.Of(thread)) {
        const std::uint32_t parent = nest_.Parent(row);
        if (parent != kNone && outermost_[parent] != kNone)
          outermost_[row] = outermost_[parent];
        else if (Passes(rank_.Text(ranges.name[row]), options_))
          outermost_[row] = row;
      }
  }

  void Collect() {
    const gpu::LaunchIndex launches = gpu::FindLaunches(rank_.tables);
    const std::vector<std::uint32_t> op_of_call = nest_.At(rank_.tables.api.thread, rank_.tables.api.begin_ns);
    const auto op_of = [&](std::uint32_t call) {
      const std::uint32_t inner = call == kNone ? kNone : op_of_call[call];
      const std::uint32_t op = inner == kNone ? kNone : outermost_[inner];
      return op != kNone && rank_.InHostWindow(rank_.tables.ranges.begin_ns[op]) ? op : kNone;
    };
    const auto& kernels = rank_.tables.kernels;
    for (std::uint32_t row = 0; row < kernels.rows(); ++row) {
      if (!rank_.hta && rank_.classes[row] == merge::KernelClass::kNone) continue;
      if (const std::uint32_t op = op_of(launches.of_kernel[row]); op != kNone)
        work_.push_back({op, kernels.begin_ns[row], kernels.duration_ns[row], kernels.name[row], false, row});
    }
    const auto& copies = rank_.tables.copies;
    for (std::uint32_t row = 0; row < copies.rows(); ++row)
      if (const std::uint32_t op = op_of(launches.of_copy[row]); op != kNone) {
        const std::uint32_t kind = copies.kind[row] < kCopyNames.size() ? copies.kind[row] : 0;
        work_.push_back({op, copies.begin_ns[row], copies.duration_ns[row], kFirstCopy + kind, true, row});
      }
    std::sort(work_.begin(), work_.end(), [](const Work& a, const Work& b) {
      return std::tuple(a.op, a.begin_ns, a.begin_ns + a.duration_ns, a.copy, a.row) <
             std::tuple(b.op, b.begin_ns, b.begin_ns + b.duration_ns, b.copy, b.row);
    });
  }

  const gpu::RankView& rank_;
  const TableOptions& options_;
  gpu::RangeNest nest_;
  std::vector<std::uint32_t> outermost_;
  std::vector<Work> work_;
};

bool MoreTime(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  if (IntOf(a[kTotal]) != IntOf(b[kTotal])) return IntOf(a[kTotal]) > IntOf(b[kTotal]);
  if (IntOf(a[kCount]) != IntOf(b[kCount])) return IntOf(a[kCount]) > IntOf(b[kCount]);
  return TextOfCell(a[kSequence]) < TextOfCell(b[kSequence]);
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const auto& sources = rank.tables.ranges.source;
  if (rank.tables.kernels.rows() == 0) {
    table.notes.push_back("no GPU events");
    return;
  }
  if (std::find(sources.begin(), sources.end(), kCpuOp) == sources.end()) {
    table.notes.push_back("no CPU operators were recorded");
    return;
  }
  Sequences sequences(rank, options);
  sequences.Run();
  std::int64_t all = 0;
  for (const auto& [key, sum] : sequences.sums) all += sum.total;
  table.totals["gpu_ns"] += all;
  for (const auto& [key, sum] : sequences.sums) {
    const auto length = static_cast<std::int64_t>(key.size());
    std::vector<Cell> row(kColumns);
    row[kRank] = Int(rank.rank);
    row[kSequence] = sequences.TextOf(key);
    row[kLength] = Int(length), row[kCount] = Int(sum.count), row[kTotal] = Int(sum.total);
    row[kMean] = Int(Mean(sum.total, sum.count)), row[kMeanKernel] = Int(Mean(sum.total, sum.count * length));
    row[kShare] = Share(sum.total, all);
    std::string_view most;
    std::int64_t calls = 0;
    for (const auto& [name, n] : sum.ops)
      if (n > calls || (n == calls && rank.Text(name) < most)) most = rank.Text(name), calls = n;
    row[kOps] = Text(most);
    table.rows.push_back(std::move(row));
  }
  std::stable_sort(table.rows.begin(), table.rows.end(), MoreTime);
}

void PoolRow(const std::vector<Cell>& of_rank, bool first, std::vector<Cell>& pooled) {
  if (first) pooled[kOps] = of_rank[kOps];
}

void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end) {
    std::vector<Cell>& row = *end;
    row[kMean] = Int(Mean(IntOf(row[kTotal]), IntOf(row[kCount])));
    row[kMeanKernel] = Int(Mean(IntOf(row[kTotal]), IntOf(row[kCount]) * IntOf(row[kLength])));
    row[kShare] = Share(IntOf(row[kTotal]), table.totals["gpu_ns"]);
  }
  std::stable_sort(table.rows.begin(), end, MoreTime);
}

}  // namespace

const TableKind kSequencesTable = {
    "sequences", "sequences of kernels that operators launch again and again (--filter: operators by name)",
    Head,        RankRows,
    Finish,      PoolRow};

}  // namespace lockstep::tables
