// Communication per process group and kind: how much of it was exposed.

#include <algorithm>
#include <array>

#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "analysis/tables/kinds/comm_ops.h"

namespace lockstep::tables {
namespace {
namespace groups {

constexpr std::string_view kSeveral = "(several at once)";

const struct Columns : TableColumns {
  Column group = Add("group", kText,
                     "name of the communicator or process group, else its pattern of ranks; groups of one name and "
                     "size are one, but for calls that the program marked (NCCL's userProfilerTag): \"NAME tag N\". "
                     "(several at once): exposed time with operations of more than one row in flight",
                     kKey);
  Column size = Add("size", kCount, "members", kKey);
  Column kind =
      Add("kind", kText, "kind of operation; unknown: communication kernels without a recorded collective", kKey);
  Column count = AddDetail("count", kCount, "operations that began in the window", kSum);
  Column bytes_moved = AddDetail("bytes", kBytes, "sum of their arrays", kSum);
  Column total = Add("total_ns", kNs, "time with such an operation in flight: hidden + exposed + shared", kSum);
  Column hidden = AddDetail("hidden_ns", kNs, "part of it under compute", kSum);
  Column exposed = Add("exposed_ns", kNs,
                       "part of it outside compute with no other row's operation in flight; over all rows it is the "
                       "rank's exposed communication to the nanosecond",
                       kSum);
  Column exposed_wait = Add("exposed_wait_ns", kNs, "part of exposed that waits for another rank", kSum);
  Column exposed_transfer = Add("exposed_transfer_ns", kNs, "part of exposed that transfers", kSum);
  Column exposed_unsplit = Add("exposed_unsplit_ns", kNs, "part of exposed that cannot be split", kSum);
  Column shared = AddDetail(
      "shared_ns", kNs,
      "outside compute, but another row's operation was in flight too: counted once in (several at once)", kSum);
  Column exposed_share = AddDetail("exposed_share", kFraction, "exposed of the window");
  Column algbw = AddDetail("algbw_bytes_per_s", kNumber,
                           "bytes over transfer, over the instances whose transfer is known and even");
  Column busbw = Add("busbw_bytes_per_s", kNumber, "algbw times the kind's factor (definitions.md)");
  Column timed_bytes = AddDetail("timed_bytes", kBytes, "from which algbw is computed", kSum);
  Column timed_transfer = AddDetail("timed_transfer_ns", kNs, "from which algbw is computed", kSum);
  Column timed = AddDetail("timed_count", kCount, "operations from which algbw is computed", kSum);
} col;

struct Sum {
  std::int64_t count = 0, bytes = 0, total = 0, hidden = 0, shared = 0;
  std::array<std::int64_t, 3> exposed{};  // Wait, transfer, unsplit.
  std::int64_t timed_bytes = 0, timed_transfer = 0, timed = 0;
  std::int64_t Exposed() const { return exposed[0] + exposed[1] + exposed[2]; }
};

// A single walk over all edges: which groups are in flight, waiting, transferring.
class Sweep {
 public:
  Sweep(const RankComm& comm, const std::vector<Interval>& windows) : comm_(comm), sums_(comm.groups.size()) {
    const auto add = [&](std::int64_t begin, std::int64_t end, What what, std::uint32_t group) {
      if (end <= begin) return;
      edges_.push_back({begin, group, what, 1});
      edges_.push_back({end, group, what, -1});
    };
    edges_.reserve(2 * (3 * comm.ops.size() + comm.message_waits.size() + comm.busy.size() + comm.inside_mpi.size() +
                        windows.size()));
    for (const CommOperation& op : comm.ops) {
      add(op.begin_ns, op.end_ns, op.certain ? kCertain : kPossible, op.group);
      add(op.begin_ns, op.wait_end_ns, kWait, op.group);
      add(op.transfer_begin_ns, op.end_ns, kTransfer, op.group);
    }
    for (const MessageWaiting& wait : comm.message_waits) add(wait.at.begin, wait.at.end, kMessage, wait.group);
    for (const Interval& part : comm.busy) add(part.begin, part.end, kBusy, 0);
    for (const Interval& part : comm.inside_mpi) add(part.begin, part.end, kInside, 0);
    for (const Interval& part : windows) add(part.begin, part.end, kWindow, 0);
    std::sort(edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) { return a.at_ns < b.at_ns; });
  }

  void Run() {
    groups_.resize(sums_.size());
    std::int64_t now = 0;
    for (std::size_t i = 0; i < edges_.size();) {
      const std::int64_t at = edges_[i].at_ns;
      if (i > 0 && at > now) Spend(at - now);
      for (; i < edges_.size() && edges_[i].at_ns == at; ++i) Apply(edges_[i]);
      now = at;
    }
  }

  std::vector<Sum>& sums() { return sums_; }
  const Sum& several() const { return several_; }

 private:
  enum What : std::uint8_t { kCertain, kPossible, kWait, kTransfer, kMessage, kBusy, kInside, kWindow };
  struct Edge {
    std::int64_t at_ns;
    std::uint32_t group;
    What what;
    std::int8_t change;
  };
  struct State {
    std::int32_t certain = 0, possible = 0, message = 0;
    bool InFlight() const { return certain + possible + message > 0; }
  };

  void Apply(const Edge& edge) {
    switch (edge.what) {
      case kBusy:
        busy_ += edge.change;
        return;
      case kInside:
        inside_ += edge.change;
        return;
      case kWindow:
        window_ += edge.change;
        return;
      case kWait:
        waiting_ += edge.change;
        return;
      case kTransfer:
        transferring_ += edge.change;
        return;
      case kMessage:
        waiting_ += edge.change;
        break;
      case kCertain:
      case kPossible:
        break;
    }
    State& group = groups_[edge.group];
    const bool was = group.InFlight();
    (edge.what == kCertain ? group.certain : edge.what == kPossible ? group.possible : group.message) += edge.change;
    if (group.InFlight() == was) return;
    if (was)
      active_.erase(std::find(active_.begin(), active_.end(), edge.group));
    else
      active_.push_back(edge.group);
  }

  void Spend(std::int64_t ns) {
    if (window_ == 0 || active_.empty()) return;
    const bool compute = comm_.gpu == (busy_ > 0);
    if (compute) {
      for (const std::uint32_t group : active_) {
        if (groups_[group].certain == 0 && (groups_[group].possible == 0 || inside_ == 0)) continue;
        sums_[group].hidden += ns;
        sums_[group].total += ns;
      }
      return;
    }
    const std::size_t state = transferring_ > 0 ? 1 : waiting_ > 0 ? 0 : 2;
    for (const std::uint32_t group : active_) sums_[group].total += ns;
    if (active_.size() == 1) {
      sums_[active_[0]].exposed[state] += ns;
      return;
    }
    several_.exposed[state] += ns;
    for (const std::uint32_t group : active_) sums_[group].shared += ns;
  }

  const RankComm& comm_;
  std::vector<Edge> edges_;
  std::vector<State> groups_;
  std::vector<std::uint32_t> active_;
  std::int32_t busy_ = 0, inside_ = 0, window_ = 0, waiting_ = 0, transferring_ = 0;
  std::vector<Sum> sums_;
  Sum several_;
};

// Counts, bytes and the transfers that bandwidth is taken of.
void Count(const gpu::RankView& rank, const RankComm& comm, std::vector<Sum>& sums) {
  std::vector<std::uint32_t> member_of(rank.tables.collectives.rows(), schema::kNone);
  const auto& timeline = rank.timeline->tables;
  for (const std::uint32_t member : rank.members)
    if (timeline.collective_ranks.row[member] < member_of.size())
      member_of[timeline.collective_ranks.row[member]] = member;
  for (const CommOperation& op : comm.ops) {
    if (op.goes_on || !rank.InWindow(op.begin_ns)) continue;
    Sum& sum = sums[op.group];
    ++sum.count;
    if (op.row == schema::kNone) continue;
    const auto bytes =
        static_cast<std::int64_t>(std::min<std::uint64_t>(rank.tables.collectives.bytes[op.row], INT64_MAX));
    sum.bytes += bytes;
    const std::uint32_t member = member_of[op.row];
    if (member == schema::kNone) continue;
    const std::uint32_t instance = timeline.collective_ranks.collective[member];
    if (instance >= timeline.collectives.rows()) continue;
    const auto& c = timeline.collectives;
    if (c.transfer_ns[instance] <= 0 || c.censored[instance] || c.uneven[instance] || c.mismatch[instance]) continue;
    ++sum.timed;
    sum.timed_bytes += bytes;
    sum.timed_transfer += c.transfer_ns[instance];
  }
}

std::string_view KindName(CollectiveKind kind) { return kind == CollectiveKind::kNone ? "unknown" : Name(kind); }

void Derive(TableRow& row, const TableTotals& totals) {
  row[col.exposed_share] = Share(IntOf(row[col.exposed]), TotalOf(totals, "window_ns"));
  const std::int64_t bytes = IntOf(row[col.timed_bytes]), ns = IntOf(row[col.timed_transfer]);
  if (bytes <= 0 || ns <= 0 || !EnoughForRate(row, IntOf(row[col.timed]), IntOf(row[col.size]))) return;
  const double algbw = 1e9 * static_cast<double>(bytes) / static_cast<double>(ns);
  row[col.algbw] = algbw;
  row[col.busbw] = algbw * BusFactorOf(TextOfCell(row[col.kind]), IntOf(row[col.size]));
}

bool MoreExposed(const TableRow& a, const TableRow& b) {
  return InOrder(a, b,
                 {Down(col.exposed), Down(col.shared), Down(col.total), Down(col.count), Up(col.group), Up(col.size),
                  Up(col.kind)});
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  RankComm comm = CommOf(rank);
  table.totals["window_ns"] += Total(rank.windows);
  if (comm.ops.empty()) return table.Note("no communication was recorded");
  Sweep sweep(comm, rank.windows);
  sweep.Run();
  Count(rank, comm, sweep.sums());
  for (std::size_t g = 0; g < comm.groups.size(); ++g) {
    const Sum& sum = sweep.sums()[g];
    if ((sum.count == 0 && sum.total == 0) || !Passes(comm.groups[g].name, options)) continue;
    TableRow& row = table.AddRow(rank.rank);
    row[col.group] = comm.groups[g].name;
    row[col.size] = IntOrUnknown(comm.groups[g].size, comm.groups[g].size > 0);
    row[col.kind] = Text(KindName(comm.groups[g].kind));
    row[col.count] = Int(sum.count), row[col.bytes_moved] = Int(sum.bytes);
    row[col.total] = Int(sum.total), row[col.hidden] = Int(sum.hidden), row[col.shared] = Int(sum.shared);
    row[col.exposed] = Int(sum.Exposed());
    row[col.exposed_wait] = Int(sum.exposed[0]), row[col.exposed_transfer] = Int(sum.exposed[1]);
    row[col.exposed_unsplit] = Int(sum.exposed[2]);
    row[col.timed_bytes] = Int(sum.timed_bytes), row[col.timed_transfer] = Int(sum.timed_transfer);
    row[col.timed] = Int(sum.timed);
  }
  if (const Sum& several = sweep.several(); several.Exposed() > 0 && options.filter.empty()) {
    TableRow& row = table.AddRow(rank.rank);
    row[col.group] = Text(kSeveral);
    row[col.exposed] = Int(several.Exposed());
    row[col.exposed_wait] = Int(several.exposed[0]), row[col.exposed_transfer] = Int(several.exposed[1]);
    row[col.exposed_unsplit] = Int(several.exposed[2]);
  }
  if (comm.receives_alone > 0) table.Note("the other ranks' files cannot be read: receives count from their own post");
}

}  // namespace groups
}  // namespace

const TableKind kGroupsTable = {
    .name = "groups",
    .title = "Communication by process group and kind",
    .answers = "exposed communication per process group and kind of collective, on each rank and over all",
    .columns = &groups::col,
    .rank_rows = groups::RankRows,
    .before = groups::MoreExposed,
    .derive = groups::Derive,
    .p2p_partners = true};

}  // namespace lockstep::tables
