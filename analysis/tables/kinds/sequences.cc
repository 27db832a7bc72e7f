// Sequences of GPU work that operators launch again and again: candidates for fusing or for a CUDA graph.

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "analysis/gpu/launch_index.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {
namespace sequences {

using schema::kNone;
constexpr std::uint8_t kCpuOp = schema::RangeSource::kCpuOp;
// By copies.kind; Kineto's words.
constexpr std::array<std::string_view, 7> kCopyNames = {"Memcpy",      "Memcpy HtoD", "Memcpy DtoH", "Memcpy DtoD",
                                                        "Memcpy PtoP", "Memcpy HtoH", "Memset"};

const struct Columns : TableColumns {
  Column sequence =
      Add("sequence", kText, "kernels, copies and memsets that one call of an operator launched, by their start", kKey);
  Column length = Add("length", kCount, "how many; at least --min-length", kMax);
  Column count = Add("count", kCount, "calls that launched exactly this sequence", kSum);
  Column total = Add("total_ns", kNs, "sum of their durations", kSum);
  Column mean = Add("mean_ns", kNs, "per call");
  Column mean_kernel = Add("mean_kernel_ns", kNs, "per kernel, copy or memset");
  Column share = AddDetail("share", kFraction, "of the durations of all sequences");
  Column ops = AddDetail("op", kText, "the operator that launched it most often");
} col;

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

bool MoreTime(const TableRow& a, const TableRow& b) {
  return InOrder(a, b, {Down(col.total), Down(col.count), Up(col.sequence)});
}

void Derive(TableRow& row, const TableTotals& totals) {
  row[col.mean] = Int(Mean(IntOf(row[col.total]), IntOf(row[col.count])));
  row[col.mean_kernel] = Int(Mean(IntOf(row[col.total]), IntOf(row[col.count]) * IntOf(row[col.length])));
  row[col.share] = Share(IntOf(row[col.total]), TotalOf(totals, "gpu_ns"));
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const auto& sources = rank.tables.ranges.source;
  if (rank.tables.kernels.rows() == 0) return table.Note("no GPU events");
  if (std::find(sources.begin(), sources.end(), kCpuOp) == sources.end())
    return table.Note("no CPU operators were recorded");
  Sequences sequences(rank, options);
  sequences.Run();
  for (const auto& [key, sum] : sequences.sums) table.totals["gpu_ns"] += sum.total;
  for (const auto& [key, sum] : sequences.sums) {
    const auto length = static_cast<std::int64_t>(key.size());
    TableRow& row = table.AddRow(rank.rank);
    row[col.sequence] = sequences.TextOf(key);
    row[col.length] = Int(length), row[col.count] = Int(sum.count), row[col.total] = Int(sum.total);
    std::string_view most;
    std::int64_t calls = 0;
    for (const auto& [name, n] : sum.ops)
      if (n > calls || (n == calls && rank.Text(name) < most)) most = rank.Text(name), calls = n;
    row[col.ops] = Text(most);
  }
}

void PoolRow(const TableRow& of_rank, bool first, TableRow& pooled) {
  if (first) pooled[col.ops] = of_rank[col.ops];
}

}  // namespace sequences
}  // namespace

const TableKind kSequencesTable = {
    .name = "sequences",
    .title = "Frequent sequences of GPU work",
    .answers = "sequences of kernels that operators launch again and again (--filter: operators by name)",
    .columns = &sequences::col,
    .rank_rows = sequences::RankRows,
    .before = sequences::MoreTime,
    .derive = sequences::Derive,
    .pool_row = sequences::PoolRow};

}  // namespace lockstep::tables
