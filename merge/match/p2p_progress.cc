#include "merge/match/p2p_progress.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "core/soon_after.h"
#include "merge/parallel.h"

namespace lockstep::merge {
namespace {

using schema::kNoTime;

// When a rank was inside MPI, as far as calls that post or complete operations tell, cluster time; by begin.
using Calls = std::vector<Interval>;

template <typename Table>
void AddCalls(const MatchRank& rank, const Table& table, Calls& calls) {
  const auto add = [&](std::int64_t begin_ns, std::int64_t end_ns) {
    if (begin_ns == kNoTime) return;
    const std::int64_t begin = rank.clock->ToCluster(begin_ns);
    calls.push_back({begin, end_ns == kNoTime ? begin : std::max(begin, rank.clock->ToCluster(end_ns))});
  };
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (table.mode[row] == schema::Code(CollectiveMode::kGpu)) continue;
    add(table.begin_ns[row], table.post_end_ns[row]);
    if (table.wait_begin_ns[row] != table.begin_ns[row]) add(table.wait_begin_ns[row], table.end_ns[row]);
  }
}

Calls CallsOf(const MatchRank& rank) {
  Calls calls;
  AddCalls(rank, rank.tables->p2p, calls);
  AddCalls(rank, rank.tables->collectives, calls);
  std::sort(calls.begin(), calls.end(),
            [](const Interval& a, const Interval& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  return calls;
}

// The call in which a rank moves what is there since `ns` and has moved at `moved_ns`: its next one, if that begins in
// time; else that in which `ns` is. kNoTime: none. (The one in which `ns` is may be about to return.)
std::int64_t MovesIn(const Calls& calls, std::int64_t ns, std::int64_t moved_ns) {
  const auto next = std::lower_bound(calls.begin(), calls.end(), ns,
                                     [](const Interval& call, std::int64_t at) { return call.begin < at; });
  if (next != calls.end() && next->begin < moved_ns) return next->begin;
  return next != calls.begin() && ns <= next[-1].end ? next[-1].begin : kNoTime;
}

// Of a message that was received: the calls of either rank that it may have waited for; kNoTime where it waited for
// none.
struct Moved {
  std::uint64_t bytes;
  std::int64_t both_ns;
  std::int64_t taken_ns = kNoTime, given_ns = kNoTime;
  std::int64_t send_end_ns, receive_end_ns;
};

class Progress {
 public:
  Progress(const std::vector<MatchRank>& ranks, const std::vector<std::vector<std::uint32_t>>& partner_row,
           MatchedP2p& matched, unsigned jobs)
      : ranks_(ranks),
        partner_row_(partner_row),
        matched_(matched),
        jobs_(jobs),
        calls_(ranks.size()),
        ready_(ranks.size()) {}

  void Run() {
    if (matched_.matched == 0) return;
    ParallelFor(jobs_, ranks_.size(), [&](std::size_t r) {
      calls_[r] = CallsOf(ranks_[r]);
      FindReady(r);
    });
    std::vector<MovedSoonAfter> seen(ranks_.size());
    ForEach([&](std::size_t receiver, std::uint32_t row, const Moved& moved) {
      const std::size_t sender = matched_.partner[receiver][row];
      if (moved.taken_ns != kNoTime &&
          !Explained(sender, partner_row_[receiver][row], moved.both_ns, moved.send_end_ns))
        seen[receiver].Add(moved.bytes, false, moved.both_ns, moved.taken_ns, moved.send_end_ns);
      if (moved.given_ns != kNoTime && !Explained(receiver, row, moved.both_ns, moved.receive_end_ns))
        seen[receiver].Add(moved.bytes, true, moved.both_ns, moved.given_ns, moved.receive_end_ns);
    });
    MovedSoonAfter all;
    for (const MovedSoonAfter& of_rank : seen) all.Add(of_rank);
    // A message has one receiver, so that no two threads write the same place.
    ForEach([&](std::size_t receiver, std::uint32_t row, const Moved& moved) {
      if (moved.taken_ns != kNoTime && all.Holds(moved.bytes, false, moved.send_end_ns - moved.both_ns))
        matched_.partner_begin_ns[matched_.partner[receiver][row]][partner_row_[receiver][row]] = moved.taken_ns;
      if (moved.given_ns != kNoTime && all.Holds(moved.bytes, true, moved.receive_end_ns - moved.both_ns))
        matched_.partner_begin_ns[receiver][row] = moved.given_ns;
    });
  }

 private:
  // By thread, entry and return, rank clock.
  using Call = std::tuple<std::uint32_t, std::int64_t, std::int64_t>;
  static Call CallOf(const schema::P2p& p2p, std::uint32_t row) {
    return {p2p.thread[row], p2p.wait_begin_ns[row], p2p.end_ns[row]};
  }
  void FindReady(std::size_t r) {
    const schema::P2p& p2p = ranks_[r].tables->p2p;
    for (std::uint32_t row = 0; row < p2p.rows(); ++row)
      if (matched_.partner[r][row] != schema::kNone && Ended(ranks_[r], row))
        ready_[r][CallOf(p2p, row)].Add(row, matched_.partner_begin_ns[r][row],
                                        ranks_[r].clock->ToCluster(p2p.end_ns[row]));
  }
  bool Explained(std::size_t r, std::uint32_t row, std::int64_t since_ns, std::int64_t end_ns) const {
    return ready_[r].at(CallOf(ranks_[r].tables->p2p, row)).Explains(row, since_ns, end_ns);
  }

  // f(position of the receiver, its row, Moved), in parallel by receiver.
  template <typename F>
  void ForEach(F&& f) const {
    ParallelFor(jobs_, ranks_.size(), [&](std::size_t r) {
      const schema::P2p& p2p = ranks_[r].tables->p2p;
      for (std::uint32_t row = 0; row < p2p.rows(); ++row) {
        if (p2p.direction[row] != schema::Direction::kReceive || matched_.partner[r][row] == schema::kNone) continue;
        const Moved moved = MovedOf(r, row);
        if (moved.taken_ns != kNoTime || moved.given_ns != kNoTime) f(r, row, moved);
      }
    });
  }

  static bool Ended(const MatchRank& rank, std::uint32_t row) {
    const schema::P2p& p2p = rank.tables->p2p;
    return p2p.outcome[row] == schema::RequestOutcome::kCompleted && p2p.end_ns[row] != kNoTime &&
           p2p.wait_begin_ns[row] != kNoTime && p2p.mode[row] != schema::Code(CollectiveMode::kGpu) &&
           p2p.comm[row] < rank.tables->comms.rows() &&
           rank.tables->comms.kind[p2p.comm[row]] != schema::CommKind::kTorchGroup;
  }

  Moved MovedOf(std::size_t receiver, std::uint32_t row) const {
    const std::size_t sender = matched_.partner[receiver][row];
    const std::uint32_t sent = partner_row_[receiver][row];
    const MatchRank &to = ranks_[receiver], &from = ranks_[sender];
    Moved moved{.bytes = to.tables->p2p.bytes[row]};
    if (sender == receiver || !Ended(to, row) || !Ended(from, sent)) return moved;
    const schema::P2p &receives = to.tables->p2p, &sends = from.tables->p2p;
    moved.send_end_ns = from.clock->ToCluster(sends.end_ns[sent]);
    moved.receive_end_ns = to.clock->ToCluster(receives.end_ns[row]);
    moved.both_ns = std::max(from.clock->ToCluster(sends.begin_ns[sent]), to.clock->ToCluster(receives.begin_ns[row]));
    const auto late = [&](std::int64_t came_ns, const MatchRank& waiting, const schema::P2p& half, std::uint32_t at,
                          std::int64_t end_ns) {
      return came_ns > moved.both_ns && came_ns > waiting.clock->ToCluster(half.wait_begin_ns[at]) && came_ns < end_ns;
    };
    const std::int64_t takes = MovesIn(calls_[receiver], moved.both_ns, moved.send_end_ns);
    if (takes == kNoTime) return moved;
    if (late(takes, from, sends, sent, moved.send_end_ns)) moved.taken_ns = takes;
    const std::int64_t gives = MovesIn(calls_[sender], std::max(moved.both_ns, takes), moved.receive_end_ns);
    if (gives != kNoTime && late(gives, to, receives, row, moved.receive_end_ns)) moved.given_ns = gives;
    return moved;
  }

  const std::vector<MatchRank>& ranks_;
  const std::vector<std::vector<std::uint32_t>>& partner_row_;
  MatchedP2p& matched_;
  const unsigned jobs_;
  std::vector<Calls> calls_;
  std::vector<std::map<Call, ReadyInCall>> ready_;  // By rank.
};

}  // namespace

void WaitForProgress(const std::vector<MatchRank>& ranks, const std::vector<std::vector<std::uint32_t>>& partner_row,
                     MatchedP2p& matched, unsigned jobs) {
  Progress(ranks, partner_row, matched, jobs).Run();
}

}  // namespace lockstep::merge
