#include "merge/match/collectives.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "core/collective.h"
#include "merge/match/awaited.h"
#include "merge/match/collective_losses.h"
#include "merge/match/comm_groups.h"
#include "merge/match/instance_key.h"
#include "merge/match/order.h"
#include "merge/parallel.h"
#include "merge/rules/match.h"
#include "merge/saturated.h"
#include "trace/file/strings.h"

namespace lockstep::merge {
namespace {

using schema::kNoTime;

struct Instance {
  std::uint64_t seq;
  std::uint32_t comm, start;
  std::size_t first;  // Index into the flat member list.
  std::uint32_t count;
  std::int64_t first_arrival_ns;
};

struct FlatMember {
  std::uint32_t rank, row;
};

class Matcher {
 public:
  Matcher(const std::vector<MatchRank>& ranks, std::size_t absent_ranks, unsigned jobs)
      : ranks_(ranks), absent_ranks_(absent_ranks), jobs_(jobs) {}

  MatchedCollectives Run() {
    comms_ = GroupByComm(ranks_, jobs_, out_.losses);
    std::size_t rows = 0;
    for (const MatchRank& rank : ranks_)
      rows += out_.member_of.emplace_back(rank.tables->collectives.rows(), schema::kNone).size();
    members_.reserve(rows);
    for (std::size_t comm = 0; comm < comms_.size(); ++comm) Enumerate(static_cast<std::uint32_t>(comm));
    Arrive();
    Order();
    ParallelChunks(jobs_, order_.size(), rules::kInstancesPerTask, [&](std::size_t begin, std::size_t end) {
      Waiting who;
      for (std::size_t i = begin; i < end; ++i) Fill(i, who);
    });
    CountMissing(lacks_, out_);
    CountMismatches(ranks_, doubled_, out_);
    return std::move(out_);
  }

 private:
  const schema::Collectives& Rows(std::uint32_t rank) const { return ranks_[rank].tables->collectives; }
  InstanceNumber NumberOf(const FlatMember& member) const {
    return lockstep::merge::NumberOf(Rows(member.rank), member.row);
  }
  std::span<const FlatMember> MembersOf(const Instance& instance) const {
    return std::span(members_).subspan(instance.first, instance.count);
  }

  // Merges the ranks' sorted rows: one instance per distinct number.
  void Enumerate(std::uint32_t comm) {
    const CommGroup& group = comms_[comm];
    std::vector<std::size_t> at(group.ranks.size(), 0);
    while (true) {
      bool any = false;
      InstanceNumber next{};
      for (std::size_t m = 0; m < group.ranks.size(); ++m) {
        const RankOnComm& member = group.ranks[m];
        if (at[m] == member.rows.size()) continue;
        const InstanceNumber number = NumberOf({member.rank, member.rows[at[m]]});
        if (!any || number < next) next = number;
        any = true;
      }
      if (!any) return;
      Instance instance{next.first, comm, next.second, members_.size(), 0, 0};
      for (std::size_t m = 0; m < group.ranks.size(); ++m) {
        const RankOnComm& member = group.ranks[m];
        bool first = true;
        for (; at[m] < member.rows.size() && NumberOf({member.rank, member.rows[at[m]]}) == next;
             ++at[m], first = false) {
          if (first)
            members_.push_back({member.rank, member.rows[at[m]]});
          else
            ++doubled_;
        }
      }
      instance.count = static_cast<std::uint32_t>(members_.size() - instance.first);
      instances_.push_back(instance);
    }
  }

  void Arrive() {
    arrival_.resize(members_.size());
    ParallelChunks(jobs_, instances_.size(), rules::kInstancesPerTask, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        Instance& instance = instances_[i];
        instance.first_arrival_ns = kForever;
        for (std::size_t m = instance.first; m < instance.first + instance.count; ++m) {
          const FlatMember& member = members_[m];
          arrival_[m] = ranks_[member.rank].clock->ToCluster(Rows(member.rank).begin_ns[member.row]);
          instance.first_arrival_ns = std::min(instance.first_arrival_ns, arrival_[m]);
        }
      }
    });
  }

  void Order() {
    order_.resize(instances_.size());
    std::iota(order_.begin(), order_.end(), 0u);
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      const Instance &x = instances_[a], &y = instances_[b];
      // comms_ is sorted by global id, so the dense index has the same order.
      return std::tie(x.first_arrival_ns, x.comm, x.seq, x.start) <
             std::tie(y.first_arrival_ns, y.comm, y.seq, y.start);
    });
    const std::size_t n = instances_.size();
    out_.collectives.Resize(n);
    out_.members.Resize(members_.size());
    out_.limit_ns.resize(members_.size());
    out_.error_ns.resize(members_.size());
    out_.endless.resize(members_.size());
    out_.doubtful.resize(members_.size());
    out_.whole.resize(n);
    lacks_.resize(n);
    out_.first_member.resize(n + 1);
    std::size_t at = 0;
    for (std::size_t i = 0; i < n; ++i) {
      out_.first_member[i] = at;
      at += instances_[order_[i]].count;
    }
    out_.first_member[n] = at;
  }

  // Members agree on what they do. Sizes are compared where MPI makes them equal
  // on every member: not for v-variants, nor where only the root's argument counts.
  bool Mismatch(const Instance& instance) const {
    const FlatMember& one = members_[instance.first];
    const auto kind = static_cast<CollectiveKind>(Rows(one.rank).kind[one.row]);
    bool sizes = !comms_[instance.comm].inter && (Splits(kind) || kind == CollectiveKind::kBroadcast ||
                                                  kind == CollectiveKind::kReduce || kind == CollectiveKind::kScan);
    for (const auto& [rank, row] : MembersOf(instance)) sizes &= Rows(rank).uneven[row] == 0;
    const bool ordered = comms_[instance.comm].ordered;
    sizes &= !(UnmarkedCounts(instance.comm) && kind == CollectiveKind::kAllToAll);
    for (const auto& [rank, row] : MembersOf(instance).subspan(1)) {
      const auto other = static_cast<CollectiveKind>(Rows(rank).kind[row]);
      const std::uint64_t bytes = Rows(rank).bytes[row], expected = Rows(one.rank).bytes[one.row];
      // Imported kernels may come without name or size, which is not a contradiction.
      if (other != kind && !(ordered && (other == CollectiveKind::kNone || kind == CollectiveKind::kNone))) return true;
      if (sizes && bytes != expected && !(ordered && (bytes == 0 || expected == 0))) return true;
    }
    return false;
  }

  // Imported traces and PyTorch do not say whether the members of an all-to-all have counts of their own.
  bool UnmarkedCounts(std::size_t comm) const { return comms_[comm].ordered || comms_[comm].torch; }

  // Whether the members of such an all-to-all moved different amounts.
  bool Differ(const Instance& instance) const {
    const FlatMember& one = members_[instance.first];
    if (!UnmarkedCounts(instance.comm) || Rows(one.rank).kind[one.row] != static_cast<int>(CollectiveKind::kAllToAll))
      return false;
    return std::ranges::any_of(MembersOf(instance), [&](const FlatMember& member) {
      return Rows(member.rank).bytes[member.row] != Rows(one.rank).bytes[one.row];
    });
  }

  // Facts about an instance from all its members.
  struct Together {
    std::uint64_t bytes = 0;
    std::uint32_t operations = 1;
    bool uneven = false;
    bool untimed = false;  // The arrival of some member is not known, so no wait is known.
    std::int64_t last_arrival_ns = kNoTime;
    std::int64_t error_ns = 0;  // Sum of the two largest clock errors.
  };

  // For a whole or partial instance: which members are awaited, and by which.
  struct Waiting {
    std::vector<Part> parts;
    std::size_t last = kNobody, second = kNobody;  // Positions of the latest awaited members.
    std::size_t last_waiting = kNobody;            // Of the latest that waits.
    std::size_t next = kNobody, after = kNobody;   // First two of the others that came after the last awaited one.
    static constexpr std::size_t kNobody = SIZE_MAX;

    // Keeps the memory: instances are many, and their members few.
    void Clear() {
      parts.clear();
      last = second = last_waiting = next = after = kNobody;
    }
  };

  // Writes the members' rows, except for what their ranks' breakdowns compute.
  Together FillMembers(std::size_t to, const Instance& instance) {
    const std::size_t base = out_.first_member[to];
    schema::TlCollectiveRanks& members = out_.members;
    Together all;
    std::int64_t error_1 = 0, error_2 = 0;
    for (std::size_t i = 0; i < instance.count; ++i) {
      const auto& [rank, row] = members_[instance.first + i];
      const schema::Collectives& rows = Rows(rank);
      const std::int64_t arrival = arrival_[instance.first + i];
      members.collective[base + i] = static_cast<std::uint32_t>(to);
      members.rank[base + i] = ranks_[rank].rank;
      members.row[base + i] = row;
      members.arrival_ns[base + i] = arrival;
      members.wait_ns[base + i] = members.transfer_ns[base + i] = members.step[base + i] = -1;
      out_.endless[base + i] = rows.end_ns[row] == kNoTime;
      out_.member_of[rank][row] = static_cast<std::uint32_t>(base + i);
      const std::int64_t error = out_.error_ns[base + i] = ranks_[rank].clock->ErrorAt(rows.begin_ns[row]);
      error_2 = std::max(error_2, std::min(error_1, error));
      error_1 = std::max(error_1, error);
      all.bytes = std::max(all.bytes, rows.bytes[row]);
      all.uneven |= rows.uneven[row] != 0;
      all.untimed |= WithoutGpuTimes(rows.mode[row], rows.end_ns[row]);
      if (row < rows.kernel_operations.size()) all.operations = std::max(all.operations, rows.kernel_operations[row]);
      all.last_arrival_ns = std::max(all.last_arrival_ns, arrival);
    }
    all.error_ns = Sum(error_1, error_2);
    return all;
  }

  Exchange ExchangeOf(const Instance& instance, const CommGroup& group, std::uint64_t bytes) const {
    const FlatMember& one = members_[instance.first];
    return lockstep::merge::ExchangeOf(Rows(one.rank), one.row, group.torch, group.size, bytes);
  }

  // Position of the member that is the root; instance.count if it has none, or if its root was not recorded.
  std::size_t RootAt(const Instance& instance, const CommGroup& group, CollectiveKind kind) const {
    std::size_t root_at = instance.count;
    if (!RootSends(kind) && !RootReceives(kind)) return root_at;
    const FlatMember& one = members_[instance.first];
    for (std::size_t i = 0; i < instance.count; ++i)
      if (CommRank(group, members_[instance.first + i].rank) == Rows(one.rank).root[one.row]) root_at = i;
    return root_at;
  }

  void FindWaiting(const Instance& instance, const CommGroup& group, CollectiveKind kind, WaitRule rule,
                   Waiting& who) const {
    const std::size_t root_at = RootAt(instance, group, kind);
    const bool rooted = RootSends(kind) || RootReceives(kind);
    if (rooted && root_at == instance.count && rule != WaitRule::kAllForAll) return;
    const auto arrival = [&](std::size_t i) { return arrival_[instance.first + i]; };
    const auto later = [&](std::size_t i, std::size_t than) {
      return than == Waiting::kNobody || arrival(i) > arrival(than);
    };
    for (std::size_t i = 0; i < instance.count; ++i) {
      const FlatMember& member = members_[instance.first + i];
      who.parts.push_back(rule == WaitRule::kByKind ? PartOf(kind, i == root_at, Rows(member.rank).uneven[member.row])
                                                    : Part{.waits = true, .awaited = true});
      if (!who.parts[i].awaited) continue;
      if (later(i, who.last))
        who.second = std::exchange(who.last, i);
      else if (later(i, who.second))
        who.second = i;
    }
    for (std::size_t i = 0; i < instance.count; ++i) {
      if (i == who.last) continue;
      if (who.parts[i].waits && later(i, who.last_waiting)) who.last_waiting = i;
      if (who.last == Waiting::kNobody || who.parts[i].awaited || !later(i, who.last)) continue;
      if (who.next == Waiting::kNobody || later(who.next, i))
        who.after = std::exchange(who.next, i);
      else if (who.after == Waiting::kNobody || later(who.after, i))
        who.after = i;
    }
  }

  // When the member left, cluster time.
  std::int64_t LeftAt(const FlatMember& member) const {
    const std::int64_t end = Rows(member.rank).end_ns[member.row];
    return end == kNoTime ? kForever : ranks_[member.rank].clock->ToCluster(end);
  }

  // Until when each member could only wait, cluster time.
  void SetLimits(std::size_t base, const Instance& instance, bool splits, bool uneven, const Waiting& who) {
    const bool doubtful = splits && who.next != Waiting::kNobody;
    for (std::size_t i = 0; i < who.parts.size(); ++i) {
      if (!who.parts[i].waits) continue;
      // The last of them waits for the others; a member that has no other to wait for waits until it arrives itself.
      std::size_t until = i == who.last ? who.second : who.last;
      if (until == Waiting::kNobody) until = i;
      const std::int64_t limit = arrival_[instance.first + until];
      out_.limit_ns[base + i] = limit;
      if (!uneven && !doubtful) continue;
      const std::int64_t left = LeftAt(members_[instance.first + i]);
      // With uneven counts it is not known which pairs exchange something: a member that left before did not wait for
      // the last one.
      if (uneven && left < limit && limit - left > Sum(out_.error_ns[base + until], out_.error_ns[base + i]))
        out_.limit_ns[base + i] = kNoTime;
      const std::size_t other = i == who.next ? who.after : who.next;
      out_.doubtful[base + i] = doubtful && other != Waiting::kNobody && arrival_[instance.first + other] < left;
    }
  }

  // Who waits for nobody and whom nobody waits for, for those who replay it. Where which of the others a member waits
  // for is known by more than its kind, or nothing is known, all wait for all there.
  void SetExempt(std::size_t base, std::size_t n, CollectiveKind kind, WaitRule rule, bool known, bool nothing_moves,
                 const Waiting& who) {
    const bool has_rule = Splits(kind) || RootSends(kind) || RootReceives(kind);
    for (std::size_t i = 0; i < n; ++i) {
      std::uint8_t exempt = 0;
      if (has_rule && nothing_moves)
        exempt = kWaitsForNobody | kAwaitedByNobody;
      else if (has_rule && known && rule == WaitRule::kByKind)
        exempt = static_cast<std::uint8_t>((out_.limit_ns[base + i] == kNoTime ? kWaitsForNobody : 0) |
                                           (who.parts[i].awaited ? 0 : kAwaitedByNobody));
      out_.members.exempt[base + i] = exempt;
    }
  }

  // Until when each member could only wait, where members wait for some of the others.
  void SetPeerLimits(std::size_t base, const Instance& instance, const CommGroup& group, const Exchange& exchange) {
    std::vector<std::int64_t> arrival(group.size, kNoTime);  // By number in the group.
    const auto number = [&](std::size_t i) {
      return static_cast<std::uint32_t>(CommRank(group, members_[instance.first + i].rank));
    };
    for (std::size_t i = 0; i < instance.count; ++i)
      if (number(i) < group.size) arrival[number(i)] = arrival_[instance.first + i];
    if (!exchange.RootIsKnown()) return;
    PeerSets sets;
    FindPeers(exchange, sets);
    const LatestOfPeers latest(sets, arrival);
    for (std::size_t i = 0; i < instance.count; ++i) {
      if (number(i) >= group.size) continue;
      const std::int64_t limit = out_.limit_ns[base + i] = latest.Of(number(i));
      if (limit == kNoTime) continue;
      // One that it may have waited for as well came while it was there.
      const std::int64_t left = LeftAt(members_[instance.first + i]);
      const Numbers possible = PossiblePeers(exchange, number(i));
      for (std::uint32_t peer = possible.begin; peer < possible.end && !out_.doubtful[base + i]; ++peer)
        out_.doubtful[base + i] = arrival[peer] > limit && arrival[peer] < left;
    }
  }

  // Sets the member that came last, if some member waited for it and its margin exceeds the clocks' error.
  void SetLast(std::size_t to, const Instance& instance, bool all_awaited, const Waiting& who) {
    if (who.last == Waiting::kNobody) return;
    std::size_t second = who.second;
    // The margin is the one over the second awaited member. Where not all members are awaited, a member that only waits
    // may have come later than that one, and then counts instead.
    const bool alone = !all_awaited || second == Waiting::kNobody;
    if (alone && who.last_waiting != Waiting::kNobody &&
        (second == Waiting::kNobody || arrival_[instance.first + who.last_waiting] > arrival_[instance.first + second]))
      second = who.last_waiting;
    if (second == Waiting::kNobody) return;
    const std::size_t base = out_.first_member[to];
    const std::int64_t margin = arrival_[instance.first + who.last] - arrival_[instance.first + second];
    const std::int64_t error = Sum(out_.error_ns[base + who.last], out_.error_ns[base + second]);
    if (margin <= Sum(error, error)) return;
    out_.collectives.last_rank[to] = out_.members.rank[base + who.last];
    out_.collectives.charge_ns[to] = margin;
  }

  void Fill(std::size_t to, Waiting& who) {
    const Instance& instance = instances_[order_[to]];
    const CommGroup& group = comms_[instance.comm];
    const auto& [one_rank, one_row] = members_[instance.first];
    const auto kind = static_cast<CollectiveKind>(Rows(one_rank).kind[one_row]);
    const std::uint8_t mode = Rows(one_rank).mode[one_row];
    const std::size_t base = out_.first_member[to], n = instance.count;
    const Together all = FillMembers(to, instance);
    const bool mismatch = Mismatch(instance), uneven = all.uneven || Differ(instance);
    // A kernel always moves something: without a size, the size is only not known.
    const bool moves = all.bytes > 0 || IsEmpty(kind) || mode == schema::Code(CollectiveMode::kGpu);
    // MPI does not promise that nobody leaves MPI_Finalize, or a fence with nothing to complete, before the last came.
    const bool may_leave = kind == CollectiveKind::kFinalize || kind == CollectiveKind::kFence;
    const bool apart = may_leave && std::ranges::any_of(MembersOf(instance), [&](const auto& m) {
                         return Sum(LeftAt(m), all.error_ns) < all.last_arrival_ns;
                       });
    const bool says_waits = !all.untimed && moves && !group.inter && !mismatch && !apart;
    const Exchange exchange = ExchangeOf(instance, group, all.bytes);
    const WaitRule rule = RuleOf(exchange);
    const bool splits = says_waits && (Splits(kind) || rule == WaitRule::kAllForAll);
    who.Clear();
    if (says_waits) FindWaiting(instance, group, kind, rule, who);
    std::fill_n(out_.limit_ns.begin() + static_cast<std::ptrdiff_t>(base), n, kNoTime);
    if (rule == WaitRule::kPeers && !who.parts.empty())
      SetPeerLimits(base, instance, group, exchange);
    else
      SetLimits(base, instance, splits, uneven, who);
    SetExempt(base, n, kind, rule, moves && !who.parts.empty(), !moves && !mismatch && !group.inter, who);
    const std::int64_t last_arrival =
        splits && who.last != Waiting::kNobody ? arrival_[instance.first + who.last] : all.last_arrival_ns;

    schema::TlCollectives& c = out_.collectives;
    c.comm_id[to] = group.id;
    c.seq[to] = instance.seq, c.start[to] = instance.start;
    c.kind[to] = schema::Code(kind), c.mode[to] = mode;
    c.bytes[to] = all.bytes;
    c.expected[to] = group.size;
    c.seen[to] = static_cast<std::uint32_t>(n);
    c.first_arrival_ns[to] = instance.first_arrival_ns;
    c.last_arrival_ns[to] = last_arrival;
    c.last_rank[to] = -1;
    c.transfer_ns[to] = c.wait_ns[to] = c.step[to] = -1;
    c.error_ns[to] = all.error_ns;
    c.splits[to] = splits;
    c.uneven[to] = uneven;
    c.operations[to] = all.operations;
    c.mismatch[to] = mismatch;
    out_.whole[to] = n >= group.size;
    if (!out_.whole[to]) {
      lacks_[to] = WhyLacking(instance, group);
      return;
    }
    SetLast(to, instance, splits || rule == WaitRule::kPeers, who);
  }

  static std::int32_t CommRank(const CommGroup& group, std::uint32_t rank) {
    const auto at = std::lower_bound(group.ranks.begin(), group.ranks.end(), rank,
                                     [](const RankOnComm& member, std::uint32_t r) { return member.rank < r; });
    return at != group.ranks.end() && at->rank == rank ? at->comm_rank : -1;
  }

  Lack WhyLacking(const Instance& instance, const CommGroup& group) const {
    if (instance.seq >= kNowhereSeq) return {Lack::kFitsNowhere};
    if (instance.seq >= kAmbiguousSeq) return {Lack::kOpen};
    std::int64_t last_end = instance.first_arrival_ns;
    for (const auto& [rank, row] : MembersOf(instance)) {
      const schema::Collectives& rows = Rows(rank);
      std::int64_t end = rows.end_ns[row];
      if (WithoutGpuTimes(rows.mode[row], end)) end = rows.begin_ns[row];
      last_end = std::max(last_end, end == kNoTime ? kForever : ranks_[rank].clock->ToCluster(end));
    }
    bool outside = false;
    std::size_t m = instance.first;
    const std::size_t m_end = instance.first + instance.count;
    for (const RankOnComm& member : group.ranks) {
      while (m < m_end && members_[m].rank < member.rank) ++m;
      if (m < m_end && members_[m].rank == member.rank) continue;
      const MatchRank& rank = ranks_[member.rank];
      const InstanceNumber number{instance.seq, instance.start};
      if (rank.in_parts && !WithinOneWindow(member, number)) {
        outside = true;
        continue;
      }
      if (rank.cut_begin && (instance.first_arrival_ns < rank.window.begin || member.numbered == 0 ||
                             number < NumberOf({member.rank, member.rows.front()})))
        continue;
      if (rank.cut_end && (last_end > rank.window.end || member.numbered == 0 ||
                           NumberOf({member.rank, member.rows[member.numbered - 1]}) < number))
        continue;
      return {Lack::kRank, rank.rank};
    }
    // Members whose file does not know the communicator, or that have no file.
    const std::size_t strangers = group.size - group.ranks.size();
    if (strangers > absent_ranks_ && !AnyCut()) return {Lack::kMember};
    return {outside ? Lack::kOutside : Lack::kCut};
  }

  // Numbers are counted while recording is off: between two of one window this one should be there, too.
  bool WithinOneWindow(const RankOnComm& member, InstanceNumber number) const {
    const auto after = std::ranges::upper_bound(member.rows, number, {}, [&](std::uint32_t row) {
      return NumberOf({member.rank, row});
    });
    if (after == member.rows.begin() || after == member.rows.end()) return false;
    const auto window_of = [&](std::uint32_t row) {
      const std::int64_t begin = Rows(member.rank).begin_ns[row];
      const std::vector<RecordedWindow>* windows = ranks_[member.rank].windows;
      if (windows == nullptr) return std::size_t{0};
      return static_cast<std::size_t>(
          std::upper_bound(windows->begin(), windows->end(), begin,
                           [](std::int64_t t, const RecordedWindow& window) { return t < window.local.begin; }) -
          windows->begin());
    };
    return window_of(after[-1]) == window_of(*after);
  }

  bool AnyCut() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const MatchRank& r) { return r.cut_begin || r.cut_end; });
  }

  const std::vector<MatchRank>& ranks_;
  const std::size_t absent_ranks_;
  const unsigned jobs_;
  std::vector<CommGroup> comms_;
  std::vector<Instance> instances_;
  std::vector<FlatMember> members_;
  std::vector<std::int64_t> arrival_;
  std::vector<std::uint32_t> order_;
  std::vector<Lack> lacks_;
  std::uint64_t doubled_ = 0;
  MatchedCollectives out_;
};

}  // namespace

MatchedCollectives MatchCollectives(const std::vector<MatchRank>& ranks, std::size_t absent_ranks, unsigned jobs) {
  return Matcher(ranks, absent_ranks, jobs).Run();
}

}  // namespace lockstep::merge
