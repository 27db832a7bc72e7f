#include "merge/match/p2p_waits.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "merge/parallel.h"
#include "merge/saturated.h"

namespace lockstep::merge {
namespace {

using schema::kNoTime;

// A call that began to wait before the other half of one of its messages was
// there. All messages that one call completes have its begin and end.
struct WaitCandidate {
  std::int64_t begin_ns, end_ns;  // Begin and end of the call, rank clock.
  std::int64_t until_ns;          // When the partner came, rank clock; at most end_ns.
  std::uint32_t thread, row;
  bool receive;
};

// The smallest difference between two ranks' times that their clocks can resolve.
std::int64_t Resolution(const MatchRank& a, std::int64_t a_local_ns, const MatchRank& b, std::int64_t b_local_ns) {
  const std::int64_t error = Sum(a.clock->ErrorAt(a_local_ns), b.clock->ErrorAt(b_local_ns));
  return Sum(error, error);
}

class RankWaits {
 public:
  struct Cost {
    std::int64_t ns = 0, wrong_order_ns = 0;
    std::uint64_t count = 0, below_resolution = 0;
  };
  using Costs = std::map<std::uint32_t, Cost>;  // By the partner's position.

  RankWaits(const std::vector<MatchRank>& ranks, const MatchedP2p& matched, std::size_t r, Interval window)
      : ranks_(ranks),
        rank_(ranks[r]),
        p2p_(ranks[r].tables->p2p),
        begins_(matched.partner_begin_ns[r]),
        partners_(matched.partner[r]),
        window_(window) {}

  void Run() {
    FindCandidates();
    if (candidates_.empty()) return;
    std::sort(candidates_.begin(), candidates_.end(), [](const WaitCandidate& a, const WaitCandidate& b) {
      return std::tie(a.begin_ns, a.thread, a.end_ns, b.until_ns, a.row) <
             std::tie(b.begin_ns, b.thread, b.end_ns, a.until_ns, b.row);
    });
    // Latest first: what is received later is known when an earlier call is examined.
    OrderReceives();
    std::size_t end = candidates_.size();
    while (end > 0) {
      std::size_t begin = end - 1;
      const auto same = [](const WaitCandidate& a, const WaitCandidate& b) {
        return a.begin_ns == b.begin_ns && a.thread == b.thread && a.end_ns == b.end_ns;
      };
      while (begin > 0 && same(candidates_[begin - 1], candidates_[begin])) --begin;
      AddCall(begin, end);
      end = begin;
    }
    std::stable_sort(waits.waits.begin(), waits.waits.end(),
                     [](const P2pWait& a, const P2pWait& b) { return a.at.begin < b.at.begin; });
  }

  RankP2pWaits waits;
  Costs senders, receivers;

 private:
  void FindCandidates() {
    for (std::uint32_t row = 0; row < p2p_.rows(); ++row) {
      const std::int64_t came = begins_[row];
      if (came == kNoTime || p2p_.wait_begin_ns[row] == kNoTime || p2p_.end_ns[row] == kNoTime) continue;
      if (came <= rank_.clock->ToCluster(p2p_.wait_begin_ns[row])) continue;
      const bool receive = p2p_.direction[row] == schema::Direction::kReceive;
      const std::int64_t end = p2p_.end_ns[row];
      const std::int64_t until = rank_.clock->ToLocal(came);
      // A send that ended before its receive was posted was buffered and did not wait.
      if (!receive && until >= end) continue;
      candidates_.push_back({p2p_.wait_begin_ns[row], end, std::min(until, end), p2p_.thread[row], row, receive});
    }
  }

  void OrderReceives() {
    for (std::uint32_t row = 0; row < p2p_.rows(); ++row)
      if (p2p_.direction[row] == schema::Direction::kReceive && begins_[row] != kNoTime &&
          p2p_.wait_begin_ns[row] != kNoTime)
        receives_.push_back(row);
    const auto by_wait = [&](std::uint32_t a, std::uint32_t b) {
      return p2p_.wait_begin_ns[a] < p2p_.wait_begin_ns[b];
    };
    if (!std::is_sorted(receives_.begin(), receives_.end(), by_wait))
      std::stable_sort(receives_.begin(), receives_.end(), by_wait);
  }

  std::int64_t ResolutionOf(const WaitCandidate& candidate) const {
    const MatchRank& partner = ranks_[partners_[candidate.row]];
    return Resolution(rank_, candidate.begin_ns, partner, partner.clock->ToLocal(begins_[candidate.row]));
  }

  // Whether a message that is received after `call` was sent before the one it waited for.
  bool WrongOrder(const WaitCandidate& call) {
    while (!receives_.empty() && p2p_.wait_begin_ns[receives_.back()] >= call.end_ns) {
      const std::uint32_t row = receives_.back();
      receives_.pop_back();
      if (earliest_row_ == schema::kNone || begins_[row] < begins_[earliest_row_]) earliest_row_ = row;
    }
    if (earliest_row_ == schema::kNone) return false;
    const MatchRank &a = ranks_[partners_[call.row]], &b = ranks_[partners_[earliest_row_]];
    const std::int64_t resolution =
        Resolution(a, a.clock->ToLocal(begins_[call.row]), b, b.clock->ToLocal(begins_[earliest_row_]));
    return begins_[call.row] - begins_[earliest_row_] > resolution;
  }

  // One call's candidates, [begin, end), the longest wait first.
  void AddCall(std::size_t begin, std::size_t end) {
    const WaitCandidate *sender = nullptr, *receiver = nullptr;
    for (std::size_t i = begin; i < end; ++i) {
      const WaitCandidate*& longest = candidates_[i].receive ? sender : receiver;
      if (longest == nullptr) longest = &candidates_[i];
    }
    const std::int64_t call = candidates_[begin].begin_ns;
    const std::int64_t at = rank_.clock->ToCluster(call);
    const bool inside = window_.begin == window_.end || (at >= window_.begin && at < window_.end);
    // Where a call waited for both, the time counts for the late sender first; the receiver's is the time after it.
    std::int64_t from = call;
    if (sender != nullptr) {
      const bool wrong_order = WrongOrder(*sender);
      if (AddWait(*sender, from, wrong_order, inside ? &senders : nullptr)) from = sender->until_ns;
    }
    if (receiver != nullptr && receiver->until_ns > from)
      AddWait(*receiver, from, false, inside ? &receivers : nullptr);
  }

  // Counts waiting from `from_ns` on, if the clocks can resolve it; returns false if they cannot. `costs` null: it is
  // not counted.
  bool AddWait(const WaitCandidate& wait, std::int64_t from_ns, bool wrong_order, Costs* costs) {
    const std::int64_t length = wait.until_ns - from_ns;
    const bool resolved = length > ResolutionOf(wait);
    if (resolved)
      waits.waits.push_back({{from_ns, wait.until_ns}, wait.row, ranks_[partners_[wait.row]].rank, wait.receive});
    if (costs == nullptr) return resolved;
    Cost& cost = (*costs)[partners_[wait.row]];
    cost.count += resolved;
    cost.below_resolution += !resolved;
    if (resolved) cost.ns += length;
    if (resolved && wrong_order) cost.wrong_order_ns += length;
    return resolved;
  }

  const std::vector<MatchRank>& ranks_;
  const MatchRank& rank_;
  const schema::P2p& p2p_;
  const std::vector<std::int64_t>& begins_;
  const std::vector<std::uint32_t>& partners_;
  Interval window_;
  std::vector<WaitCandidate> candidates_;
  std::vector<std::uint32_t> receives_;  // By the begin of their wait; taken from the back.
  std::uint32_t earliest_row_ = schema::kNone;
};

}  // namespace

IntervalSet RankP2pWaits::Of(bool receive) const {
  std::vector<Interval> of_kind;
  for (const P2pWait& wait : waits)
    if (wait.receive == receive) of_kind.push_back(wait.at);
  return Normalize(std::move(of_kind));
}

std::vector<MessageWait> MessageWaits(const RankP2pWaits& waits, const schema::P2p& p2p, std::uint32_t training,
                                      const IntervalSet& awaited) {
  std::vector<MessageWait> own;
  for (const P2pWait& wait : waits.waits) {
    if (p2p.thread[wait.row] == training || p2p.mode[wait.row] == schema::Code(CollectiveMode::kGpu))
      own.push_back({wait.at, wait.row});
    else
      for (const Interval& part : Intersect({wait.at}, awaited)) own.push_back({part, wait.row});
  }
  std::stable_sort(own.begin(), own.end(),
                   [](const MessageWait& a, const MessageWait& b) { return a.at.begin < b.at.begin; });
  return own;
}

std::vector<RankP2pWaits> FindP2pWaits(const std::vector<MatchRank>& ranks, MatchedP2p& matched, Interval window,
                                       unsigned jobs) {
  std::vector<RankP2pWaits> out(ranks.size());
  std::vector<RankWaits::Costs> senders(ranks.size()), receivers(ranks.size());
  ParallelFor(jobs, ranks.size(), [&](std::size_t r) {
    RankWaits waits(ranks, matched, r, window);
    waits.Run();
    out[r] = std::move(waits.waits);
    senders[r] = std::move(waits.senders);
    receivers[r] = std::move(waits.receivers);
  });
  schema::TlP2pPairs& pairs = matched.pairs;
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> row_of;
  for (std::size_t i = 0; i < pairs.rows(); ++i) row_of[{pairs.source_rank[i], pairs.destination_rank[i]}] = i;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& [partner, cost] : senders[r]) {
      const std::size_t row = row_of.at({ranks[partner].rank, ranks[r].rank});
      pairs.late_sender_ns[row] += cost.ns;
      pairs.late_sender_count[row] += cost.count;
      pairs.wrong_order_ns[row] += cost.wrong_order_ns;
      pairs.below_resolution[row] += cost.below_resolution;
    }
    for (const auto& [partner, cost] : receivers[r]) {
      const std::size_t row = row_of.at({ranks[r].rank, ranks[partner].rank});
      pairs.late_receiver_ns[row] += cost.ns;
      pairs.late_receiver_count[row] += cost.count;
      pairs.below_resolution[row] += cost.below_resolution;
    }
  }
  return out;
}

}  // namespace lockstep::merge
