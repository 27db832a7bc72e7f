// Which lines of the job call its collectives and messages (lockstep run --stacks calls), and what these took.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/stacks/job_frame.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "core/collective.h"

namespace lockstep::tables {
namespace {
namespace callers {

using schema::kNone;
using schema::kNoTime;

const struct Columns : TableColumns {
  Column kind = Add("kind", kText, "collective, send or recv", kKey);
  Column function = Add("function", kText, "the job's own function that called it; of others, the innermost one", kKey);
  Column file = Add("file", kText, "source file or library", kKey);
  Column line = Add("line", kId, "line of the call", kKey);
  Column calls = Add("calls", kCount, "operations that were called there", kSum);
  Column bytes = Add("bytes", kBytes, "of these, as in their tables", kSum);
  Column inside = Add("inside_ns", kNs, "from each one's begin to its end", kSum);
  Column wait = Add("wait_ns", kNs, "of collectives: for the last rank to come, where that is known", kSum);
} col;

struct Sum {
  std::int64_t calls = 0, bytes = 0, inside_ns = 0, wait_ns = 0;
  bool waits = false;
};
// Kind, function, file and line; texts of the rank's file.
using Key = std::tuple<std::string_view, std::uint32_t, std::uint32_t, std::uint32_t>;

class Callers {
 public:
  explicit Callers(const gpu::RankView& rank) : rank_(rank), stacks_(rank.tables.stacks) {}

  void Run() {
    const schema::Collectives& c = rank_.tables.collectives;
    std::vector<std::int64_t> waits(c.rows(), -1);
    if (rank_.timeline != nullptr) {
      const auto& met = rank_.timeline->tables.collective_ranks;
      for (const std::uint32_t member : rank_.members)
        if (met.row[member] < waits.size()) waits[met.row[member]] = met.wait_ns[member];
    }
    for (std::size_t i = 0; i < c.rows(); ++i) {
      Add(Name(static_cast<CollectiveKind>(c.kind[i])), c.caller[i], c.begin_ns[i], c.end_ns[i], c.bytes[i], waits[i]);
    }
    const schema::P2p& p = rank_.tables.p2p;
    for (std::size_t i = 0; i < p.rows(); ++i)
      Add(p.direction[i] == schema::Direction::kReceive ? "recv" : "send", p.caller[i], p.begin_ns[i], p.end_ns[i],
          p.bytes[i], -1);
  }

  std::map<Key, Sum> sums;
  std::int64_t unknown = 0;  // Operations in the window without a caller.

 private:
  void Add(std::string_view kind, std::uint32_t caller, std::int64_t begin_ns, std::int64_t end_ns, std::uint64_t bytes,
           std::int64_t wait_ns) {
    if (!rank_.InHostWindow(begin_ns)) return;
    if (caller >= stacks_.rows()) {
      ++unknown;
      return;
    }
    const std::uint32_t shown = analysis::JobFrame(stacks_, caller);
    Sum& sum = sums[{kind, stacks_.function[shown], stacks_.file[shown], stacks_.line[shown]}];
    ++sum.calls;
    sum.bytes += static_cast<std::int64_t>(bytes);
    if (end_ns != kNoTime && end_ns > begin_ns) sum.inside_ns += end_ns - begin_ns;
    if (wait_ns < 0) return;
    sum.wait_ns += wait_ns;
    sum.waits = true;
  }

  const gpu::RankView& rank_;
  const schema::Stacks& stacks_;
};

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  Callers callers(rank);
  callers.Run();
  if (callers.sums.empty())
    return table.Note("what called its operations was not recorded: lockstep run --stacks calls");
  for (const auto& [key, sum] : callers.sums) {
    const auto& [kind, function, file, line] = key;
    if (!Passes(rank.Text(function), options)) continue;
    TableRow& row = table.AddRow(rank.rank);
    row[col.kind] = Text(kind);
    row[col.function] = Text(rank.Text(function));
    row[col.file] = Text(rank.Text(file));
    row[col.line] = IntOrUnknown(line, line > 0);
    row[col.calls] = Int(sum.calls);
    row[col.bytes] = Int(sum.bytes);
    row[col.inside] = Int(sum.inside_ns);
    row[col.wait] = IntOrUnknown(sum.wait_ns, sum.waits);
  }
  if (callers.unknown != 0) table.Note(analysis::Plural(callers.unknown, "operation") + " whose caller is not known");
}

bool Before(const TableRow& a, const TableRow& b) {
  return InOrder(a, b, {Down(col.inside), Down(col.calls), Up(col.kind), Up(col.file), Up(col.line), Up(col.function)});
}

}  // namespace callers
}  // namespace

const TableKind kCallersTable = {.name = "callers",
                                 .title = "Lines that call collectives and messages",
                                 .answers = "which line calls which operation, and how long that takes",
                                 .columns = &callers::col,
                                 .rank_rows = callers::RankRows,
                                 .before = callers::Before};

}  // namespace lockstep::tables
