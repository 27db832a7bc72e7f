// Collectives of one kind, size and issuing call: how often, how long, how fast.

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "analysis/tables/kinds/comm_ops.h"
#include "core/data_type_name.h"

namespace lockstep::tables {
namespace {
namespace comm_kinds {

const struct Columns : TableColumns {
  Column group = Add("group", kText, "as in groups", kKey);
  Column size = Add("size", kCount, "members", kKey);
  Column kind = Add("kind", kText, "kind of operation", kKey);
  Column bytes = Add("bytes", kBytes, "whole array of one", kKey);
  Column dtype = Add("dtype", kText, "type of its elements", kKey);
  Column reduction = Add("reduction", kText, "sum, product, maximum, minimum, average, user's own", kKey);
  Column algorithm = Add("algorithm", kText, "NCCL's algorithm", kKey);
  Column protocol = Add("protocol", kText, "NCCL's protocol", kKey);
  Column channels = Add("channels", kId, "NCCL's channels", kKey);
  Column count = Add("count", kCount, "operations that began in the window", kSum);
  Column grouped = Add(
      "grouped", kCount,
      "of these, in a kernel with others: no part of what follows but the first of each kernel's total and wait", kSum);
  Column total = Add("total_ns", kNs, "sum of their durations", kSum);
  Column wait = Add("wait_ns", kNs, "part of it that waits for another rank", kSum);
  Column wait_mean = Add("wait_mean_ns", kNs, "wait_ns over count: what a rank waits in one of them");
  Column longest_wait =
      Add("longest_wait_mean_ns", kNs, "of the ranks together: wait_mean_ns of the rank that waits longest");
  Column longest_wait_rank = Add("longest_wait_rank", kId, "that rank; the lowest of those that wait as long");
  Column transfer = Add("transfer_ns", kNs, "part of it that transfers", kSum);
  Column algbw =
      AddDetail("algbw_bytes_per_s", kNumber, "bytes over the instances' transfer, where that is known and even");
  Column busbw = Add("busbw_bytes_per_s", kNumber, "algbw times the kind's factor (definitions.md)");
  Column queue = AddDetail("queue_ns", kNs, "from the host's call to the start on the GPU, summed", kSum);
  Column timed = AddDetail("timed_count", kCount, "operations from which algbw is computed", kSum);
  Column timed_transfer = AddDetail("timed_transfer_ns", kNs, "their instances' transfer", kSum);
} col;

std::string_view ReductionName(std::uint8_t reduction) {
  for (const schema::EnumValue& value : schema::Reduction::kValues)
    if (value.code == reduction && value.code != schema::Reduction::kNone) return value.name;
  return {};
}

struct Sum {
  std::int64_t count = 0, grouped = 0, total = 0, wait = 0, transfer = 0, queue = 0, timed = 0, timed_transfer = 0;
  bool queue_known = false;
};

void Derive(TableRow& row, const TableTotals&) {
  if (const std::int64_t count = IntOf(row[col.count]); count > 0)
    row[col.wait_mean] = Int(IntOf(row[col.wait]) / count);
  const std::int64_t ns = IntOf(row[col.timed_transfer]);
  if (ns <= 0 || IntOf(row[col.bytes]) <= 0 || !EnoughForRate(row, IntOf(row[col.timed]), IntOf(row[col.size]))) return;
  const double algbw = 1e9 * static_cast<double>(IntOf(row[col.bytes])) * static_cast<double>(IntOf(row[col.timed])) /
                       static_cast<double>(ns);
  row[col.algbw] = algbw;
  row[col.busbw] = algbw * BusFactorOf(TextOfCell(row[col.kind]), IntOf(row[col.size]));
}

void KeepLongestWait(const TableRow& of_rank, bool, TableRow& pooled) {
  const std::int64_t wait = IntOf(of_rank[col.wait_mean]);
  if (wait <= IntOf(pooled[col.longest_wait])) return;
  pooled[col.longest_wait] = Int(wait);
  pooled[col.longest_wait_rank] = of_rank[col.rank];
}

bool Longer(const TableRow& a, const TableRow& b) {
  return InOrder(a, b,
                 {Down(col.total), Up(col.group), Up(col.kind), Up(col.dtype), Up(col.reduction), Up(col.algorithm),
                  Up(col.protocol), Up(col.size), Up(col.bytes), Up(col.channels)});
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
    // The kernel's time belongs to all operations that it carries: it is counted once, with the first.
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
  if (sums.empty()) return table.Note("no collectives were recorded in the window");
  for (const auto& [key, sum] : sums) {
    const auto& [group, bytes, dtype, reduction, algorithm, protocol, channels] = key;
    if (!Passes(comm.groups[group].name, options)) continue;
    TableRow& row = table.AddRow(rank.rank);
    const auto text = [](std::string_view value) { return value.empty() ? Cell() : Text(value); };
    row[col.group] = comm.groups[group].name;
    row[col.size] = IntOrUnknown(comm.groups[group].size, comm.groups[group].size > 0);
    row[col.kind] =
        comm.groups[group].kind == CollectiveKind::kNone ? Text("unknown") : Text(Name(comm.groups[group].kind));
    row[col.bytes] = Int(static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, INT64_MAX)));
    row[col.dtype] = dtype == 0 ? Cell() : Text(TextOfDataType(dtype).name);
    row[col.reduction] = text(ReductionName(reduction));
    row[col.algorithm] = text(algorithm);
    row[col.protocol] = text(protocol);
    row[col.channels] = IntOrUnknown(channels, channels > 0);
    row[col.count] = Int(sum.count);
    row[col.grouped] = Int(sum.grouped);
    row[col.total] = Int(sum.total);
    row[col.wait] = Int(sum.wait);
    row[col.transfer] = Int(sum.transfer);
    row[col.queue] = IntOrUnknown(sum.queue, sum.queue_known);
    row[col.timed] = Int(sum.timed);
    row[col.timed_transfer] = Int(sum.timed_transfer);
  }
}

}  // namespace comm_kinds
}  // namespace

const TableKind kCollectivesTable = {.name = "collectives",
                                     .title = "Collectives by group, kind, size and how they were made",
                                     .answers = "collectives by size, algorithm and protocol: count, wait, bandwidth",
                                     .columns = &comm_kinds::col,
                                     .rank_rows = comm_kinds::RankRows,
                                     .before = comm_kinds::Longer,
                                     .derive = comm_kinds::Derive,
                                     .pool_row = comm_kinds::KeepLongestWait};

}  // namespace lockstep::tables
