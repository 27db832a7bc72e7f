#include "analysis/replay/host/host_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>

#include "analysis/replay/graph/graph.h"
#include "analysis/replay/graph/read_run.h"
#include "analysis/replay/host/host_messages.h"
#include "core/rules/common.h"
#include "core/soon_after.h"
#include "core/uneven.h"
#include "merge/match/awaited.h"
#include "merge/timeline/activity_stream.h"
#include "merge/timeline/node_cores.h"
#include "merge/timeline/rank_pass.h"
#include "merge/timeline/totals_row.h"

namespace lockstep::replay {
namespace {

using schema::kNoTime;

class Reader {
 public:
  Reader(const merge::Timeline& timeline, const ReadRunOptions& options)
      : timeline_(timeline), t_(timeline.tables), options_(options) {}

  Result<HostRun> Read() {
    LS_CHECK(ChooseRanksAndSteps(timeline_, options_, run_));
    if (run_.steps.empty())
      return Error{ErrorCode::kUnsupported, "nothing to replay: nothing was recorded", timeline_.run_dir,
                   "lockstep info RUN says what each rank's file holds"};
    run_.cores_of_rank = merge::LeastCoresOfRank(timeline_);
    chosen_.resize(run_.ranks.size());
    FindMeetings();
    ChooseCollectives(timeline_, 0, run_, [&](std::size_t row, std::uint32_t position) { Choose(row, position); });
    std::vector<std::size_t> rows;
    if (!run_.whole_window) {
      LS_TRY(rows, StepRows(timeline_, run_));
    }
    run_.stretches.resize(run_.ranks.size());
    std::vector<std::vector<MessageHalf>> halves(run_.ranks.size());
    LS_CHECK(ReadRanks(
        timeline_, options_, run_, [&](std::size_t r, const schema::RankTables& tables, const merge::ClockMap& clock) {
          const std::size_t steps = run_.steps.size();
          const std::span<const std::size_t> own =
              rows.empty() ? std::span<const std::size_t>() : std::span(rows).subspan(r * steps, steps);
          run_.stretches[r] =
              CutIntoStretches(tables, clock, own.empty() ? Whole(run_.ranks[r], clock) : WindowOf(own, clock),
                               Complete(r, tables, clock));
          for (const std::size_t row : own)
            run_.stretches[r].step_without_core_ns.push_back(t_.step_ranks.offcpu_ns[row]);
          halves[r] = MessageHalves(tables, clock, run_.ranks[r], merge::TrainingThread(tables));
        }));
    run_.messages = JoinMessages(run_.ranks, std::move(halves), run_.stretches);
    KnowProgress();
    SayWhatIsABound();
    return std::move(run_);
  }

 private:
  // Kind, size (power of two) and communicator.
  using Class = std::tuple<std::uint8_t, int, std::uint64_t>;
  Class ClassOf(std::size_t row) const {
    const auto& c = t_.collectives;
    return {c.kind[row], std::bit_width(c.bytes[row]), c.comm_id[row]};
  }

  // Who gives a root something, or has something for others, need not wait for them; with many bytes it does, because
  // they move when the other side is there (rendezvous of Open MPI and MPICH). Of such kinds and sizes nobody leaves
  // before the last has come, and who need not wait soon after.
  void FindMeetings() {
    const auto& m = t_.collective_ranks;
    std::map<Class, SoonAfter> classes;
    for (std::size_t row = 0; row < t_.collectives.rows(); ++row) {
      const std::size_t first = timeline_.FirstMember(row), end = timeline_.FirstMember(row + 1);
      if (first == end || t_.collectives.mismatch[row]) continue;
      const std::int64_t last_ns = *std::max_element(m.arrival_ns.begin() + static_cast<std::ptrdiff_t>(first),
                                                     m.arrival_ns.begin() + static_cast<std::ptrdiff_t>(end));
      bool all_stay = true;
      for (std::size_t k = first; k < end; ++k) all_stay &= m.end_high_ns[k] > last_ns;
      for (std::size_t k = first; k < end; ++k) {
        if ((m.exempt[k] & kWaitsForNobody) == 0 || m.arrival_ns[k] == last_ns) continue;
        SoonAfter& of_class = classes[ClassOf(row)];
        if (all_stay)
          of_class.Add(m.arrival_ns[k], last_ns, m.end_high_ns[k]);
        else
          of_class.AddOther();
      }
    }
    for (const auto& [of, seen] : classes)
      if (seen.Holds()) meetings_.insert(of);
  }

  // Gives each member its part of a collective, if the timeline contains it.
  void Choose(std::size_t row, std::uint32_t position) {
    const auto& m = t_.collective_ranks;
    const std::size_t first = timeline_.FirstMember(row), end = timeline_.FirstMember(row + 1);
    const bool meeting = meetings_.contains(ClassOf(row));
    bool in_wait = false;
    for (std::size_t k = first; k < end; ++k) in_wait |= m.censored[k] != 0;
    for (std::size_t k = first; k < end; ++k) {
      RankCollective chosen;
      chosen.row = m.row[k];
      chosen.collective = position;
      chosen.in_wait = in_wait;
      chosen.waits = meeting || (m.exempt[k] & kWaitsForNobody) == 0;
      chosen.awaited = meeting || (m.exempt[k] & kAwaitedByNobody) == 0;
      chosen.end_ns = m.end_high_ns[k];
      chosen.end_low_ns = m.end_low_ns[k];
      chosen_[run_.PositionOf(m.rank[k])].push_back(chosen);
    }
  }

  // If on some rank half of a communicator's non-blocking collectives are found to end outside of waits, they make
  // progress outside of calls; then those that ended in a wait did not move data only there: their ranks waited for
  // others.
  void KnowProgress() {
    std::vector<bool> posted(run_.collectives.size(), false), tested(run_.collectives.size(), false);
    for (const RankStretches& rank : run_.stretches)
      for (const RankCollective& c : rank.collectives) {
        if (c.posted) posted[c.collective] = true;
        if (c.by_test) tested[c.collective] = true;
      }
    std::map<std::uint64_t, std::pair<std::size_t, std::size_t>> counts;  // By communicator: tested, posted.
    for (std::size_t c = 0; c < posted.size(); ++c) {
      counts[run_.collectives[c].comm].first += tested[c];
      counts[run_.collectives[c].comm].second += posted[c];
    }
    for (RankStretches& rank : run_.stretches)
      for (RankCollective& c : rank.collectives) {
        const auto& [some, all] = counts[run_.collectives[c.collective].comm];
        if (HalfOf(some, all)) c.in_wait = false;
      }
  }

  // `rows`: rows of step_ranks, one for each step.
  RankWindow WindowOf(std::span<const std::size_t> rows, const merge::ClockMap& clock) const {
    RankWindow window{clock.ToCluster(t_.step_ranks.begin_ns[rows.front()]), {}};
    for (const std::size_t row : rows) window.step_ends_ns.push_back(clock.ToCluster(t_.step_ranks.end_ns[row]));
    return window;
  }
  RankWindow Whole(std::int32_t rank, const merge::ClockMap& clock) const {
    const auto& totals = t_.rank_totals;
    const std::size_t row = merge::TotalsRow(totals, rank);  // Each rank that is replayed has one.
    return {clock.ToCluster(totals.begin_ns[row]), {clock.ToCluster(totals.end_ns[row])}};
  }

  std::vector<RankCollective> Complete(std::size_t r, const schema::RankTables& tables,
                                       const merge::ClockMap& clock) const {
    std::vector<RankCollective> list;
    const auto& rows = tables.collectives;
    for (RankCollective c : chosen_[r]) {
      if (c.row >= rows.rows()) continue;
      c.thread = rows.thread[c.row];
      c.begin_ns = clock.ToCluster(rows.begin_ns[c.row]);
      c.posted = merge::IsPosted(rows.mode[c.row]);
      c.in_wait &= c.posted;
      c.wait_begin_ns = rows.wait_begin_ns[c.row] == kNoTime ? c.begin_ns : clock.ToCluster(rows.wait_begin_ns[c.row]);
      SetPeers(tables, c);
      list.push_back(c);
    }
    return list;
  }

  void SetPeers(const schema::RankTables& tables, RankCollective& c) const {
    const std::uint32_t comm = tables.collectives.comm[c.row];
    if (comm >= tables.comms.rows() || tables.comms.rank[comm] < 0) return;
    const RunCollective& whole = run_.collectives[c.collective];
    c.exchange = merge::ExchangeOf(tables.collectives, c.row, tables.comms.kind[comm] == schema::CommKind::kTorchGroup,
                                   whole.members, whole.bytes);
    if (merge::RuleOf(c.exchange) == merge::WaitRule::kPeers && c.exchange.RootIsKnown())
      c.number = static_cast<std::uint32_t>(tables.comms.rank[comm]);
  }

  void SayWhatIsABound() {
    std::vector<bool> least(run_.collectives.size(), false), most(run_.collectives.size(), false);
    for (const RankStretches& rank : run_.stretches)
      for (const RankCollective& c : rank.collectives) {
        if (c.number == kNone) continue;
        // Posted ones take turns, and a turn has one begin for all (host_job.cc).
        if (c.posted)
          most[c.collective] = true;
        else if (!merge::PossiblePeers(c.exchange, c.number).empty())
          least[c.collective] = true;
      }
    if (const auto n = std::count(least.begin(), least.end(), true); n > 0)
      run_.notes.push_back(
          fmt::format("reductions to one rank over gloo in which members may wait for more ranks than "
                      "is known: {}; what those ranks delay there is a lower bound",
                      n));
    if (const auto n = std::count(most.begin(), most.end(), true); n > 0)
      run_.notes.push_back(
          fmt::format("posted broadcasts, reductions, gathers and scatters over gloo, replayed as if "
                      "every rank waited for all others: {}; what a rank delays there is an upper bound",
                      n));
  }

  const merge::Timeline& timeline_;
  const schema::TimelineTables& t_;
  const ReadRunOptions& options_;
  HostRun run_;
  std::vector<std::vector<RankCollective>> chosen_;  // By rank.
  std::set<Class> meetings_;                         // All members wait for all.
};

// A collective that moved only in its wait did so on all ranks. If a rank's wait is unknown or different, collectives
// would take their turns in another order than on the other ranks: then none counts as moved in waits only.
void AgreeOnWaits(HostRun& run) {
  std::vector<bool> in_wait(run.collectives.size(), true);
  for (const RankStretches& rank : run.stretches)
    for (const RankCollective& c : rank.collectives)
      if (!c.in_wait) in_wait[c.collective] = false;
  const auto set = [&] {
    for (RankStretches& rank : run.stretches)
      for (RankCollective& c : rank.collectives) c.in_wait = in_wait[c.collective];
  };
  set();
  const Job job = run.MakeJob();
  if (Simulator(job.graph).Run().ok()) return;
  in_wait.assign(in_wait.size(), false);
  set();
}

}  // namespace

Result<HostRun> ReadHostRun(const merge::Timeline& timeline, const ReadRunOptions& options) {
  LS_TRY(HostRun run, Reader(timeline, options).Read());
  AgreeOnWaits(run);
  run.overlap = OverlapOf(run);
  return run;
}

}  // namespace lockstep::replay
