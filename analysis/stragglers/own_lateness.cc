#include "analysis/stragglers/own_lateness.h"

#include <algorithm>
#include <map>
#include <optional>

#include "analysis/core/statistics.h"
#include "analysis/rules/stragglers.h"
#include "analysis/stragglers/lateness.h"
#include "core/interval.h"
#include "core/mpi_ops.h"
#include "merge/parallel.h"
#include "merge/timeline/activity_stream.h"
#include "merge/timeline/blocked_time.h"
#include "merge/timeline/rank_pass.h"
#include "merge/timeline/unrecorded_calls.h"

namespace lockstep::analysis {
namespace {

IntervalSet Communicating(const schema::RankTables& t) {
  std::vector<Interval> communicating;
  if (t.kernels.rows() > 0) {
    std::vector<Interval> compute;
    for (std::size_t i = 0; i < t.kernels.rows(); ++i) {
      const Interval kernel{t.kernels.begin_ns[i], t.kernels.begin_ns[i] + t.kernels.duration_ns[i]};
      (t.kernels.work[i] == schema::Work::kCompute ? compute : communicating).push_back(kernel);
    }
    return Subtract(Normalize(std::move(communicating)), Normalize(std::move(compute)));
  }
  const std::uint32_t thread = merge::TrainingThread(t);
  for (std::size_t i = 0; i < t.mpi_calls.rows(); ++i)
    if (t.mpi_calls.thread[i] == thread && !IsMpiOther(merge::ClassOf(t.mpi_calls.op[i])))
      communicating.push_back({t.mpi_calls.begin_ns[i], t.mpi_calls.begin_ns[i] + t.mpi_calls.duration_ns[i]});
  return Unite(Normalize(std::move(communicating)),
               Unite(merge::FindUnrecordedComm(t, thread, false).waiting, merge::FindBlockedTime(t, thread).awaited));
}

std::optional<OwnTime> Read(const Context& context, std::size_t position) {
  const std::int32_t rank = context.ranks()[position];
  const Result<schema::RankTables> tables = context.ReadActivity(rank);
  if (!tables.ok()) return std::nullopt;
  const merge::ClockMap clock(context.tables().clock, rank);
  IntervalSet set = Communicating(tables.value());
  for (Interval& member : set) member = {clock.ToCluster(member.begin), clock.ToCluster(member.end)};
  return OwnTime(Normalize(std::move(set)));
}

// Whether a collective tells if the rank is late: of those in which some wait for one only, if it is the one.
bool SaysOfItself(const Context& context, std::size_t collective, std::size_t position) {
  return context.Comparable(collective) ||
         (context.WaitsForOne(collective) &&
          context.tables().collectives.last_rank[collective] == context.ranks()[position]);
}

// Lower median of the arrivals; of members that wait for one only, when the last of them came.
std::int64_t OthersArrival(const Context& context, std::size_t collective) {
  return context.WaitsForOne(collective)
             ? context.LastAwaited(collective) - context.tables().collectives.charge_ns[collective]
             : context.MedianArrival(collective);
}

// The other members of the collective to which the rank is latest: no suspects, if there are others.
std::vector<std::size_t> PeersOf(const Context& context, std::size_t position,
                                 const std::vector<std::size_t>& suspects) {
  const auto& members = context.tables().collective_ranks;
  std::size_t latest = kNowhere;
  std::int64_t most = -1;
  for (std::size_t c = 0; c < context.tables().collectives.rows(); ++c) {
    if (!SaysOfItself(context, c, position)) continue;
    const std::size_t m = context.MemberRow(c, context.ranks()[position]);
    if (m == kNowhere) continue;
    const std::int64_t off = members.arrival_ns[m] - OthersArrival(context, c);
    if (off <= most) continue;
    most = off;
    latest = c;
  }
  std::vector<std::size_t> others, suspected;
  if (latest == kNowhere) return others;
  for (std::size_t m = context.timeline().FirstMember(latest); m < context.timeline().FirstMember(latest + 1); ++m) {
    const std::size_t p = context.Position(members.rank[m]);
    if (p == kNowhere || p == position) continue;
    (std::find(suspects.begin(), suspects.end(), p) == suspects.end() ? others : suspected).push_back(p);
  }
  if (others.empty()) others = std::move(suspected);
  if (others.size() <= rules::kOwnLatenessPeers) return others;
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < rules::kOwnLatenessPeers; ++i)
    chosen.push_back(others[i * others.size() / rules::kOwnLatenessPeers]);
  return chosen;
}

// When the rank, and each of its peers, arrived at an operation or had left it.
struct Event {
  std::int64_t at_ns = 0;
  std::vector<std::optional<std::int64_t>> peers_ns;
  std::int64_t median_ns = 0;  // The median over all members.
  std::size_t unit = kNowhere;
  bool counts = false;  // An arrival beyond the clocks' resolution.
  // Only of ends: the last arrival. No member leaves before it, so the others have waited for every rank that was late
  // until then.
  std::optional<std::int64_t> all_there_ns = std::nullopt;
  std::int64_t own_late_ns = 0;  // The part of its lateness at this event that the rank added itself.
};

// The event from which an arrival is measured: the last arrival, or the last end that the others had passed before they
// arrived. If an operation was only posted, the others continue before it ends, and a late rank keeps its own lateness.
const Event* BaseOf(const std::vector<Event>& events, std::size_t arrival) {
  for (std::size_t i = arrival; i-- > 0;)
    if (!events[i].all_there_ns || events[i].median_ns <= events[arrival].median_ns) return &events[i];
  return nullptr;
}

}  // namespace

OwnTime::OwnTime(IntervalSet communicating) : communicating_(std::move(communicating)), total_{0} {
  for (const Interval& member : communicating_) total_.push_back(total_.back() + member.end - member.begin);
}

std::int64_t OwnTime::Before(std::int64_t cluster_ns) const {
  const auto after = std::upper_bound(communicating_.begin(), communicating_.end(), cluster_ns,
                                      [](std::int64_t at, const Interval& member) { return at < member.begin; });
  const auto members = static_cast<std::size_t>(after - communicating_.begin());
  if (members == 0) return cluster_ns;
  const Interval& last = communicating_[members - 1];
  return cluster_ns - total_[members - 1] - (std::min(cluster_ns, last.end) - last.begin);
}

OwnLateness OwnLatenessOf(const Context& context, std::size_t position, const std::vector<std::size_t>& suspects) {
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  const std::size_t units = context.units().size();
  const std::vector<std::int64_t> none(units, 0);
  OwnLateness result{none, none, none};
  const std::vector<std::size_t> peers = PeersOf(context, position, suspects);
  std::vector<std::optional<OwnTime>> times(peers.size() + 1);
  merge::ParallelFor(context.options().jobs, times.size(),
                     [&](std::size_t i) { times[i] = Read(context, i < peers.size() ? peers[i] : position); });
  const std::optional<OwnTime>& own = times.back();
  if (!own) return result;

  std::map<std::uint64_t, std::vector<Event>> by_communicator;
  std::vector<std::int64_t> ends;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (!SaysOfItself(context, c, position)) continue;
    const std::size_t m = context.MemberRow(c, context.ranks()[position]);
    if (m == kNowhere) continue;
    const std::int64_t last_ns = context.LastAwaited(c);
    Event arrival{members.arrival_ns[m], {}, OthersArrival(context, c), context.UnitAt(last_ns), false};
    const std::int64_t late = arrival.at_ns - arrival.median_ns;
    arrival.counts = arrival.unit != kNowhere && late > ResolutionNs(t.error_ns[c]);
    ends.clear();
    for (std::size_t each = context.timeline().FirstMember(c); each < context.timeline().FirstMember(c + 1); ++each)
      ends.push_back(members.end_high_ns[each]);
    Event end{members.end_high_ns[m], {}, LowerMedian(ends), kNowhere, false, last_ns};
    for (std::size_t i = 0; i < peers.size(); ++i) {
      const std::size_t peer = times[i] ? context.MemberRow(c, context.ranks()[peers[i]]) : kNowhere;
      arrival.peers_ns.push_back(peer == kNowhere ? std::nullopt : std::optional(members.arrival_ns[peer]));
      end.peers_ns.push_back(peer == kNowhere ? std::nullopt : std::optional(members.end_high_ns[peer]));
    }
    std::vector<Event>& events = by_communicator[t.comm_id[c]];
    events.push_back(std::move(arrival));
    events.push_back(std::move(end));
  }

  for (auto& [communicator, events] : by_communicator) {
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.at_ns < b.at_ns; });
    std::vector<std::int64_t> longer;
    for (std::size_t i = 0; i < events.size(); ++i) {
      Event& event = events[i];
      const Event* base = event.all_there_ns ? nullptr : BaseOf(events, i);
      const std::int64_t late = std::max<std::int64_t>(0, event.at_ns - event.median_ns);
      longer.clear();
      for (std::size_t p = 0; p < peers.size(); ++p) {
        if (!event.peers_ns[p] || (!event.all_there_ns && (base == nullptr || !base->peers_ns[p]))) continue;
        const std::int64_t since = event.all_there_ns ? *event.all_there_ns : *base->peers_ns[p];
        longer.push_back(times[p]->Before(*event.peers_ns[p]) - times[p]->Before(since));
      }
      // The first arrival contains no information about earlier lateness.
      if (longer.empty()) {
        event.own_late_ns = late;
        continue;
      }
      const std::int64_t since = event.all_there_ns ? *event.all_there_ns : base->at_ns;
      const std::int64_t added = own->Before(event.at_ns) - own->Before(since) - LowerMedian(longer);
      event.own_late_ns = std::clamp<std::int64_t>((base == nullptr ? 0 : base->own_late_ns) + added, 0, late);
      if (!event.counts) continue;
      result.late_ns[event.unit] += late;
      result.own_ns[event.unit] += event.own_late_ns;
      result.own_most_ns[event.unit] = std::max(result.own_most_ns[event.unit], event.own_late_ns);
      ++result.compared;
    }
  }
  return result;
}

}  // namespace lockstep::analysis
