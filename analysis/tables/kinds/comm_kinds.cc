// Collectives of one kind, size and making: how often, how long, how fast.

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "analysis/core/dtype_name.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "analysis/tables/kinds/comm_ops.h"

namespace lockstep::tables {
namespace {

enum Column : std::size_t {
  kRank,
  kGroup,
  kSize,
  kKind,
  kBytes,
  kDtype,
  kReduction,
  kAlgorithm,
  kProtocol,
  kChannels,
  kCount,
  kGrouped,
  kTotal,
  kWait,
  kTransfer,
  kAlgbw,
  kBusbw,
  kQueue,
  kTimed,
  kTimedTransfer,
  kColumns,
};

Table Head() {
  return {"collectives",
          "Collectives by group, kind, size and how they were made",
          {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
           {"group", ColumnKind::kText, "as in groups", Pool::kKey},
           {"size", ColumnKind::kCount, "members", Pool::kKey},
           {"kind", ColumnKind::kText, "kind of operation", Pool::kKey},
           {"bytes", ColumnKind::kBytes, "whole array of one", Pool::kKey},
           {"dtype", ColumnKind::kText, "type of its elements", Pool::kKey},
           {"reduction", ColumnKind::kText, "sum, product, maximum, minimum, average, user's own", Pool::kKey},
           {"algorithm", ColumnKind::kText, "NCCL's algorithm", Pool::kKey},
           {"protocol", ColumnKind::kText, "NCCL's protocol", Pool::kKey},
           {"channels", ColumnKind::kId, "NCCL's channels", Pool::kKey},
           {"count", ColumnKind::kCount, "operations that began in the window", Pool::kSum},
           {"grouped", ColumnKind::kCount,
            "of these, in a kernel with others: no part of what follows but the first of each kernel's total and wait",
            Pool::kSum},
           {"total_ns", ColumnKind::kNs, "sum of their durations", Pool::kSum},
           {"wait_ns", ColumnKind::kNs, "part of it that waits for another rank", Pool::kSum},
           {"transfer_ns", ColumnKind::kNs, "part of it that transfers", Pool::kSum},
           {"algbw_bytes_per_s", ColumnKind::kNumber,
            "bytes over the instances' transfer, where that is known and even", Pool::kNone, true},
           {"busbw_bytes_per_s", ColumnKind::kNumber, "algbw times the kind's factor (definitions.md)"},
           {"queue_ns", ColumnKind::kNs, "from the host's call to the start on the GPU, summed", Pool::kSum, true},
           {"timed_count", ColumnKind::kCount, "operations from which algbw is computed", Pool::kSum, true},
           {"timed_transfer_ns", ColumnKind::kNs, "their instances' transfer", Pool::kSum, true}},
          {},
          {}};
}

std::string_view ReductionName(std::uint8_t reduction) {
  constexpr std::string_view kNames[] = {"", "sum", "product", "maximum", "minimum", "average", "user's own"};
  return kNames[reduction < std::size(kNames) ? reduction : 0];
}

struct Sum {
  std::int64_t count = 0, grouped = 0, total = 0, wait = 0, transfer = 0, queue = 0, timed = 0, timed_transfer = 0;
  bool queue_known = false;
};

CollectiveKind KindNamed(std::string_view name) {
  for (int kind = 1; kind <= static_cast<int>(CollectiveKind::kSendRecv); ++kind)
    if (Name(static_cast<CollectiveKind>(kind)) == name) return static_cast<CollectiveKind>(kind);
  return CollectiveKind::kNone;
}

void Bandwidths(std::vector<Cell>& row) {
  const std::int64_t ns = IntOf(row[kTimedTransfer]);
  if (ns <= 0 || IntOf(row[kBytes]) <= 0) return;
  const double algbw =
      1e9 * static_cast<double>(IntOf(row[kBytes])) * static_cast<double>(IntOf(row[kTimed])) / static_cast<double>(ns);
  row[kAlgbw] = algbw;
  row[kBusbw] = algbw * BusFactor(KindNamed(TextOfCell(row[kKind])), static_cast<std::uint32_t>(IntOf(row[kSize])));
}

bool Longer(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  if (IntOf(a[kTotal]) != IntOf(b[kTotal])) return IntOf(a[kTotal]) > IntOf(b[kTotal]);
  for (const Column column : {kGroup, kKind, kDtype, kReduction, kAlgorithm, kProtocol})
    if (TextOfCell(a[column]) != TextOfCell(b[column])) return TextOfCell(a[column]) < TextOfCell(b[column]);
  return std::tuple(IntOf(a[kSize]), IntOf(a[kBytes]), IntOf(a[kChannels])) <
         std::tuple(IntOf(b[kSize]), IntOf(b[kBytes]), IntOf(b[kChannels]));
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const RankComm comm = CommOf(rank);
  const schema::Collectives& c = rank.tables.collectives;
  // Row of collectives -> of the timeline's members.
  std::vector<std::uint32_t> member_of(c.rows(), schema::kNone);
  const schema::TimelineTables* timeline = rank.timeline == nullptr ? nullptr : &rank.timeline->tables;
  for (const std::uint32_t member : rank.members)
    if (timeline->collective_ranks.row[member] < member_of.size())
      member_of[timeline->collective_ranks.row[member]] = member;
  using Key = std::tuple<std::uint32_t, std::uint64_t, std::uint16_t, std::uint8_t, std::string_view, std::string_view,
                         std::uint16_t>;
  std::map<Key, Sum> sums;
  std::vector<bool> told(rank.tables.kernels.rows(), false);  // Kernels whose time is counted.
  for (const CommOperation& op : comm.ops) {
    if (op.row == schema::kNone || !rank.InWindow(op.begin_ns)) continue;
    Sum& sum = sums[{op.group, c.bytes[op.row], c.dtype[op.row], c.reduction[op.row], rank.Text(c.algorithm[op.row]),
                     rank.Text(c.protocol[op.row]), c.channels[op.row]}];
    ++sum.count;
    const std::uint32_t kernel = c.kernel[op.row];
    const bool grouped = c.kernel_operations[op.row] > 1;
    sum.grouped += grouped;
    // The kernel's time belongs to all it carries: it counts once, with the first.
    if (grouped && kernel < told.size()) {
      if (told[kernel]) continue;
      told[kernel] = true;
    }
    sum.total += op.end_ns - op.begin_ns;
    sum.wait += op.wait_end_ns - op.begin_ns;
    if (c.enqueue_begin_ns[op.row] != schema::kNoTime && c.enqueue_begin_ns[op.row] <= op.begin_ns) {
      sum.queue += op.begin_ns - c.enqueue_begin_ns[op.row];
      sum.queue_known = true;
    }
    if (grouped) continue;
    sum.transfer += op.end_ns - op.transfer_begin_ns;
    const std::uint32_t member = member_of[op.row];
    if (member == schema::kNone) continue;
    const std::uint32_t instance = timeline->collective_ranks.collective[member];
    const schema::TlCollectives& i = timeline->collectives;
    if (instance >= i.rows() || i.transfer_ns[instance] <= 0 || i.censored[instance] || i.uneven[instance] ||
        i.mismatch[instance] || i.operations[instance] > 1)
      continue;
    ++sum.timed;
    sum.timed_transfer += i.transfer_ns[instance];
  }
  if (sums.empty()) {
    table.notes.emplace_back("no collectives were recorded in the window");
    return;
  }
  for (const auto& [key, sum] : sums) {
    const auto& [group, bytes, dtype, reduction, algorithm, protocol, channels] = key;
    if (!Passes(comm.groups[group].name, options)) continue;
    std::vector<Cell> row(kColumns);
    const auto text = [](std::string_view value) { return value.empty() ? Cell() : Text(value); };
    row[kRank] = Int(rank.rank);
    row[kGroup] = comm.groups[group].name;
    row[kSize] = IntOrUnknown(comm.groups[group].size, comm.groups[group].size > 0);
    row[kKind] =
        comm.groups[group].kind == CollectiveKind::kNone ? Text("unknown") : Text(Name(comm.groups[group].kind));
    row[kBytes] = Int(static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, INT64_MAX)));
    row[kDtype] = dtype == 0 ? Cell() : Text(analysis::DtypeName(dtype));
    row[kReduction] = text(ReductionName(reduction));
    row[kAlgorithm] = text(algorithm);
    row[kProtocol] = text(protocol);
    row[kChannels] = IntOrUnknown(channels, channels > 0);
    row[kCount] = Int(sum.count);
    row[kGrouped] = Int(sum.grouped);
    row[kTotal] = Int(sum.total);
    row[kWait] = Int(sum.wait);
    row[kTransfer] = Int(sum.transfer);
    row[kQueue] = IntOrUnknown(sum.queue, sum.queue_known);
    row[kTimed] = Int(sum.timed);
    row[kTimedTransfer] = Int(sum.timed_transfer);
    Bandwidths(row);
    table.rows.push_back(std::move(row));
  }
  std::stable_sort(table.rows.begin(), table.rows.end(), Longer);
}

void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end) Bandwidths(*end);
  std::stable_sort(table.rows.begin(), end, Longer);
}

}  // namespace

const TableKind kCollectivesTable = {
    "collectives", "collectives by size, algorithm and protocol: count, wait, bandwidth", Head, RankRows, Finish};

}  // namespace lockstep::tables
