// Who waits for whom: the waiting of each rank in collectives and for messages, charged to the ranks that it is for.

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "merge/timeline/charges.h"

namespace lockstep::tables {
namespace {
namespace waits {

const struct Columns : TableColumns {
  Column awaited = Add("awaited", kText,
                       "rank that is waited for. (clocks): who came later is below the clocks' error; (not recorded): "
                       "of collectives with members without a file; (not known): who was waited for is not recorded",
                       kKey);
  Column wait = Add("wait_ns", kNs, "time waited; over all rows it is all that the rank waited", kSum);
  Column share = Add("share", kFraction, "of all that the rank waited");
  Column collectives = Add("collective_ns", kNs, "part of it in collectives", kSum);
  Column messages = Add("message_ns", kNs, "part of it for late senders and receivers", kSum);
  Column calls = AddDetail("messages", kCount, "calls that waited for a message", kSum);
} col;

std::string AwaitedName(std::int32_t rank) {
  switch (rank) {
    case merge::kClocks:
      return "(clocks)";
    case merge::kNotRecorded:
      return "(not recorded)";
    case merge::kNobodyKnown:
      return "(not known)";
    default:
      return "rank " + std::to_string(rank);
  }
}

struct Sum {
  double collective = 0;
  std::int64_t collective_ns = 0, message_ns = 0, calls = 0;
};

// Whole nanoseconds that sum to `whole`: rounded down, the rest to those that lost most.
void Round(std::int64_t whole, std::map<std::int32_t, Sum>& sums) {
  std::vector<std::pair<double, Sum*>> lost;
  for (auto& [rank, sum] : sums) {
    sum.collective_ns = static_cast<std::int64_t>(std::floor(sum.collective));
    whole -= sum.collective_ns;
    lost.emplace_back(static_cast<double>(sum.collective_ns) - sum.collective, &sum);
  }
  std::stable_sort(lost.begin(), lost.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < lost.size() && whole > 0; ++i, --whole) ++lost[i].second->collective_ns;
  if (!lost.empty()) lost.front().second->collective_ns += whole;
}

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  if (rank.timeline == nullptr || rank.charges == nullptr) return table.Note("the other ranks are not known");
  std::map<std::int32_t, Sum> sums;
  std::int64_t in_collectives = 0;
  const auto& members = rank.timeline->tables.collective_ranks;
  const auto& begins = rank.tables.collectives.begin_ns;
  std::vector<bool> counted(rank.tables.kernels.rows(), false);  // One kernel may carry several operations.
  for (const std::uint32_t member : rank.members) {
    const std::uint32_t op = members.row[member];
    if (members.wait_ns[member] <= 0 || op >= begins.size() || !rank.InWindow(begins[op])) continue;
    if (const std::uint32_t kernel = rank.tables.collectives.kernel[op]; kernel < counted.size()) {
      if (counted[kernel]) continue;
      counted[kernel] = true;
    }
    in_collectives += members.wait_ns[member];
    rank.charges->EachOf(member, [&](std::int32_t charged, double ns) { sums[charged].collective += ns; });
  }
  Round(in_collectives, sums);
  if (rank.partners != nullptr)
    for (const merge::P2pWait& wait : rank.partners->waits.waits) {
      if (!rank.InWindow(wait.at.begin)) continue;
      sums[wait.partner].message_ns += wait.at.end - wait.at.begin;
      ++sums[wait.partner].calls;
    }
  for (const auto& [awaited, sum] : sums) {
    if (sum.collective_ns + sum.message_ns <= 0) continue;
    TableRow& row = table.AddRow(rank.rank);
    row[col.awaited] = AwaitedName(awaited);
    row[col.wait] = Int(sum.collective_ns + sum.message_ns);
    row[col.collectives] = Int(sum.collective_ns), row[col.messages] = Int(sum.message_ns);
    row[col.calls] = Int(sum.calls);
    table.totals["wait_ns"] += sum.collective_ns + sum.message_ns;
  }
  if (table.rows.empty()) table.Note("waited for nobody, or only where it is not known for whom");
}

void Derive(TableRow& row, const TableTotals& totals) {
  row[col.share] = Share(IntOf(row[col.wait]), TotalOf(totals, "wait_ns"));
}

bool Longer(const TableRow& a, const TableRow& b) { return InOrder(a, b, {Down(col.wait), Up(col.awaited)}); }

}  // namespace waits
}  // namespace

const TableKind kWaitsTable = {
    .name = "waits",
    .title = "Who waits for whom",
    .answers = "for which rank each rank waits, in collectives and for messages; over all: who is waited for",
    .columns = &waits::col,
    .rank_rows = waits::RankRows,
    .before = waits::Longer,
    .derive = waits::Derive,
    .p2p_partners = true,
    .charges = true};

}  // namespace lockstep::tables
