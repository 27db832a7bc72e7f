#include "merge/match/order.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <numeric>

#include "core/collective.h"
#include "core/hash.h"
#include "core/rules/common.h"
#include "merge/match/instance_key.h"
#include "merge/match/sequence.h"
#include "merge/match/sequence_parts.h"
#include "merge/parallel.h"
#include "merge/rules/match.h"

namespace lockstep::merge {
namespace {

struct Member {
  std::uint32_t rank;  // Index into the ranks.
  std::uint32_t comm;  // Row of its comms.
  std::vector<std::uint32_t> rows;
};

struct Group {
  std::uint64_t id = 0;
  bool guessed = false;
  std::vector<Member> members;  // By rank.
  std::size_t rows = 0;
};

// Clock offsets between ranks, known from communicators that were matched before: offsets within trees.
class Relations {
 public:
  explicit Relations(std::size_t ranks) : parent_(ranks), offset_(ranks, 0) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  // The offset that converts a time of b to a time of a; false: not related.
  bool Offset(std::size_t a, std::size_t b, std::int64_t* offset_ns) const {
    std::int64_t to_a = 0, to_b = 0;
    if (Root(a, &to_a) != Root(b, &to_b)) return false;
    *offset_ns = to_b - to_a;
    return true;
  }
  void Relate(std::size_t a, std::size_t b, std::int64_t offset_ns) {
    std::int64_t to_a = 0, to_b = 0;
    const std::size_t x = Root(a, &to_a), y = Root(b, &to_b);
    if (x == y) return;
    // time_a = time_b + offset; root time = own time + to_own.
    parent_[y] = x;
    offset_[y] = offset_ns + to_a - to_b;
  }

 private:
  std::size_t Root(std::size_t rank, std::int64_t* offset_ns) const {
    while (parent_[rank] != rank) {
      *offset_ns += offset_[rank];
      rank = parent_[rank];
    }
    return rank;
  }
  std::vector<std::size_t> parent_;
  std::vector<std::int64_t> offset_;  // Added to own time gives the parent's.
};

class Orderer {
 public:
  Orderer(std::vector<RunRank>& ranks, unsigned jobs) : ranks_(ranks), jobs_(jobs), relations_(ranks.size()) {}

  std::vector<RunLoss> Run() {
    Collect();
    ambiguous_.assign(ranks_.size(), 0);
    // What is open at first may be decided by the clock offsets that other communicators give.
    std::vector<Group*> open;
    for (Group& group : groups_)
      if (group.members.size() > 1 && !Number(group, false)) open.push_back(&group);
    for (Group* group : open) Number(*group, true);
    std::vector<RunLoss> losses;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (ambiguous_[r] > 0) losses.push_back(MakeLoss(ranks_[r].rank, Loss::kCollectiveAmbiguous, ambiguous_[r], ""));
    return losses;
  }

 private:
  void Collect() {
    // A group that one rank's trace numbers and another's does not is matched by order on both.
    std::map<std::uint64_t, Group> found;
    for (const RunRank& rank : ranks_) {
      const schema::Comms& comms = rank.head.comms;
      for (std::size_t c = 0; c < comms.identity.size(); ++c)
        if (comms.identity[c] != schema::CommIdentity::kCounted && Identified(comms, c)) {
          Group& group = found[comms.global_id[c]];
          group.id = comms.global_id[c];
          group.guessed |= comms.identity[c] == schema::CommIdentity::kGuessed;
        }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const schema::RankTables& head = ranks_[r].head;
      const schema::Comms& comms = head.comms;
      std::vector<Member*> of_comm(comms.rows(), nullptr);
      for (std::size_t c = 0; c < comms.rows(); ++c) {
        const auto at = found.find(comms.global_id[c]);
        // Two rows of one group on one rank: its operations are one sequence.
        if (at != found.end() && (at->second.members.empty() || at->second.members.back().rank != r))
          at->second.members.push_back({static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(c), {}});
      }
      if (found.empty()) continue;
      for (std::size_t c = 0; c < comms.rows(); ++c) {
        const auto at = found.find(comms.global_id[c]);
        if (at != found.end() && !at->second.members.empty() && at->second.members.back().rank == r)
          of_comm[c] = &at->second.members.back();
      }
      const schema::Collectives& rows = head.collectives;
      for (std::uint32_t row = 0; row < rows.rows(); ++row)
        if (rows.comm[row] < of_comm.size() && of_comm[rows.comm[row]] != nullptr)
          of_comm[rows.comm[row]]->rows.push_back(row);
    }
    for (auto& [id, group] : found) {
      for (Member& member : group.members) {
        const schema::Collectives& rows = ranks_[member.rank].head.collectives;
        SortByNumber(rows, member.rows);
        group.rows += member.rows.size();
      }
      groups_.push_back(std::move(group));
    }
    // The group that determines clocks best comes first, because it helps the small ones.
    std::stable_sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) { return a.rows > b.rows; });
  }

  std::vector<OrderedOp> Ops(const Member& member) const {
    const schema::RankTables& head = ranks_[member.rank].head;
    const schema::Collectives& rows = head.collectives;
    const schema::Steps& steps = head.steps;
    std::vector<std::uint32_t> by_begin(steps.rows());
    std::iota(by_begin.begin(), by_begin.end(), 0u);
    std::sort(by_begin.begin(), by_begin.end(),
              [&](std::uint32_t a, std::uint32_t b) { return steps.begin_ns[a] < steps.begin_ns[b]; });
    std::vector<OrderedOp> ops;
    ops.reserve(member.rows.size());
    for (const std::uint32_t row : member.rows) {
      const auto kind = static_cast<CollectiveKind>(rows.kind[row]);
      OrderedOp op;
      op.symbol = Symbol(rows, row);
      op.begin_ns = rows.begin_ns[row];
      op.end_ns = rows.end_ns[row] == schema::kNoTime ? op.begin_ns : std::max(op.begin_ns, rows.end_ns[row]);
      op.together = Splits(kind) && rows.end_ns[row] != schema::kNoTime;
      op.step = -1;
      const auto after = std::upper_bound(by_begin.begin(), by_begin.end(), op.begin_ns,
                                          [&](std::int64_t t, std::uint32_t s) { return t < steps.begin_ns[s]; });
      if (after != by_begin.begin()) {
        // A kernel may run about one step later than the host.
        const std::uint32_t step = after[-1];
        if (op.begin_ns < steps.end_ns[step] + (steps.end_ns[step] - steps.begin_ns[step])) op.step = steps.index[step];
      }
      ops.push_back(op);
    }
    return ops;
  }

  static std::uint64_t Symbol(const schema::Collectives& rows, std::uint32_t row) {
    const auto kind = static_cast<CollectiveKind>(rows.kind[row]);
    if (kind == CollectiveKind::kNone) return 0;
    Hash64 hash;
    hash.Add(rows.kind[row]);
    // Members of an uneven exchange legitimately differ in size; of others an unknown size (0) is rare enough.
    const bool sized = rows.uneven[row] == 0 && kind != CollectiveKind::kAllToAll &&
                       kind != CollectiveKind::kSendRecv && kind != CollectiveKind::kGather &&
                       kind != CollectiveKind::kScatter;
    hash.Add(sized ? rows.bytes[row] : 0);
    if (row < rows.dtype.size()) hash.Add(std::uint64_t{rows.dtype[row]});
    return hash.value();
  }

  // Positions of the members' operations on a common axis, in the clock of members[first].
  struct Axis {
    std::size_t first = 0;                      // Member that it began with.
    std::vector<std::vector<std::int32_t>> to;  // Per member, per operation.
    std::vector<SequenceMatch> match;           // Per member; `to` moved out.
  };

  OffsetPrior Prior(const Group& group, std::size_t spine, std::size_t own, std::int64_t span_ns) const {
    OffsetPrior prior;
    if (relations_.Offset(group.members[spine].rank, group.members[own].rank, &prior.offset_ns))
      prior.within_ns = rules::kRelatedClockNs + static_cast<std::int64_t>(kMostDrift * static_cast<double>(span_ns));
    return prior;
  }

  // Compares `members` with a spine that grows until it contains all their operations.
  Axis Compare(const Group& group, const std::vector<std::vector<OrderedOp>>& ops,
               const std::vector<std::size_t>& members) {
    Axis axis;
    axis.to.resize(group.members.size());
    axis.match.resize(group.members.size());
    // The longest sequence; the lowest rank of equally long ones.
    axis.first = members[0];
    for (const std::size_t m : members)
      if (ops[m].size() > ops[axis.first].size()) axis.first = m;
    auto spine = std::make_unique<Spine>(ops[axis.first]);
    std::vector<std::size_t> todo = members;
    for (int round = 0; round < rules::kOrderRounds && !todo.empty(); ++round) {
      ParallelFor(jobs_, todo.size(), [&](std::size_t i) {
        const std::size_t m = todo[i];
        if (m == axis.first && round == 0) {
          axis.match[m].fit = Fit::kUnique;
          axis.match[m].spread_ns = 0;
          axis.match[m].matched = ops[m].size();
          axis.to[m].resize(ops[m].size());
          std::iota(axis.to[m].begin(), axis.to[m].end(), 0);
          return;
        }
        OffsetPrior prior;
        if (round > 0 && axis.match[m].fit == Fit::kUnique) {
          prior = {axis.match[m].offset_ns, rules::kRelatedClockNs + Allowance(ops[m])};
        } else {
          prior = Prior(group, axis.first, m, ops[m].empty() ? 0 : ops[m].back().end_ns - ops[m].front().end_ns);
        }
        SequenceMatch match = spine->Match(ops[m], prior);
        if (round > 0 && match.fit != Fit::kUnique) return;  // The earlier result stays.
        axis.to[m] = std::move(match.to);
        axis.match[m] = std::move(match);
      });
      // The member with the most operations that the spine lacks extends it.
      std::size_t most = 0, donor = 0;
      std::vector<std::size_t> again;
      for (const std::size_t m : todo) {
        const std::size_t extra = Extras(axis, m);
        if (extra == 0) continue;
        again.push_back(m);
        if (extra > most) most = extra, donor = m;
      }
      // Members that did not fit may fit a longer spine.
      for (const std::size_t m : todo)
        if (axis.match[m].fit != Fit::kUnique) again.push_back(m);
      if (most == 0 || round + 1 == rules::kOrderRounds) break;
      std::sort(again.begin(), again.end());
      std::vector<std::int32_t> moved;
      spine =
          std::make_unique<Spine>(Grown(spine->ops(), ops[donor], axis.to[donor], axis.match[donor].offset_ns, &moved));
      for (const std::size_t m : members)
        for (std::int32_t& to : axis.to[m])
          if (to >= 0) to = moved[static_cast<std::size_t>(to)];
      todo = std::move(again);
    }
    return axis;
  }

  static std::int64_t Allowance(const std::vector<OrderedOp>& ops) {
    return ops.empty() ? 0
                       : static_cast<std::int64_t>(
                             kMostDrift * static_cast<double>(std::llabs(ops.back().end_ns - ops.front().end_ns)));
  }

  static std::size_t Extras(const Axis& axis, std::size_t m) {
    if (axis.match[m].fit != Fit::kUnique) return 0;
    return static_cast<std::size_t>(std::count(axis.to[m].begin(), axis.to[m].end(), kExtraOp));
  }

  // Returns the spine with the donor's operations that it lacks, inserted by time between the neighbours that both
  // have. `moved`: the new positions of the old ones.
  static std::vector<OrderedOp> Grown(const std::vector<OrderedOp>& spine, const std::vector<OrderedOp>& donor,
                                      const std::vector<std::int32_t>& to, std::int64_t offset_ns,
                                      std::vector<std::int32_t>* moved) {
    std::vector<std::size_t> limit(donor.size());  // The next one that both have.
    std::size_t next = spine.size();
    for (std::size_t j = donor.size(); j-- > 0;) {
      if (to[j] >= 0) next = static_cast<std::size_t>(to[j]);
      limit[j] = next;
    }
    std::vector<OrderedOp> grown;
    grown.reserve(spine.size() + donor.size());
    moved->resize(spine.size());
    std::size_t taken = 0;
    const auto take = [&](std::size_t until) {
      for (; taken < until; ++taken) {
        (*moved)[taken] = static_cast<std::int32_t>(grown.size());
        grown.push_back(spine[taken]);
      }
    };
    for (std::size_t j = 0; j < donor.size(); ++j) {
      if (to[j] >= 0) take(static_cast<std::size_t>(to[j]) + 1);
      if (to[j] != kExtraOp) continue;
      OrderedOp op = donor[j];
      op.begin_ns += offset_ns;
      op.end_ns += offset_ns;
      std::size_t before = taken;
      while (before < limit[j] && spine[before].end_ns <= op.end_ns) ++before;
      take(before);
      grown.push_back(op);
    }
    take(spine.size());
    return grown;
  }

  // Returns false if something stayed open and nothing was written; never if `last`.
  bool Number(Group& group, bool last) {
    std::vector<std::vector<OrderedOp>> ops(group.members.size());
    ParallelFor(jobs_, group.members.size(), [&](std::size_t m) { ops[m] = Ops(group.members[m]); });
    std::vector<std::size_t> left;
    std::size_t total = 0;
    for (std::size_t m = 0; m < group.members.size(); ++m)
      if (!ops[m].empty()) left.push_back(m), total += ops[m].size();
    std::vector<Part> parts;
    std::size_t compared = 0;
    while (!left.empty()) {
      Part part;
      part.axis = Compare(group, ops, left);
      const auto ambiguous = [&](std::size_t m) { return part.axis.match[m].fit == Fit::kAmbiguous; };
      if (!last && !group.guessed && std::any_of(left.begin(), left.end(), ambiguous)) return false;
      std::vector<std::size_t> rest;
      compared += total;
      for (const std::size_t m : left) {
        const bool here = !group.guessed || compared > rules::kGuessedGroupOperations || OneGroup(part.axis, m);
        (here ? part.members : rest).push_back(m);
      }
      parts.push_back(std::move(part));
      left = std::move(rest);
    }
    // A wrong guess divides into groups of one size. Any other result decides nothing: the largest part is taken as the
    // group, and the others do not belong to it.
    const bool clear = std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
      return part.members.size() > 1 && part.members.size() == parts[0].members.size();
    });
    std::size_t largest = 0;
    for (std::size_t p = 0; p < parts.size(); ++p)
      if (parts[p].members.size() > parts[largest].members.size()) largest = p;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      if (parts.size() == 1 || (!clear && p == largest && parts[p].members.size() > 1))
        Settle(group, parts[p], group.id, 0);
      else if (clear)
        Settle(group, parts[p], PartId(group.id, p), static_cast<std::uint32_t>(parts[p].members.size()));
      else
        LeaveOut(group, parts[p], parts[0].axis);
    }
    return true;
  }

  struct Part {
    Axis axis;
    std::vector<std::size_t> members;
  };

  static std::uint64_t PartId(std::uint64_t id, std::size_t part) {
    if (part == 0) return id;
    Hash64 hash;
    hash.Add(id);
    hash.Add(std::uint64_t{part});
    return hash.value();
  }

  // Whether a rank of a guessed group behaves as a member of it. Traces misname a few operations.
  static bool OneGroup(const Axis& axis, std::size_t m) {
    const SequenceMatch& match = axis.match[m];
    return m == axis.first || (match.fit == Fit::kUnique && match.spread_ns <= rules::kGuessedGroupEndsNs &&
                               LittleOf(match.disagree, match.matched));
  }

  void LeaveOut(const Group& group, const Part& part, const Axis& first) {
    for (const std::size_t m : part.members)
      for (const std::uint32_t row : group.members[m].rows)
        Leave(group.members[m], row, first.match[m].fit == Fit::kAmbiguous);
  }

  void Leave(const Member& member, std::uint32_t row, bool ambiguous) {
    ranks_[member.rank].head.collectives.seq[row] =
        (ambiguous ? kAmbiguousSeq : kNowhereSeq) + (std::uint64_t{member.rank} << 31) + row;
    ambiguous_[member.rank] += ambiguous;
  }

  // `size` 0: as in the files.
  void Settle(const Group& group, const Part& part, std::uint64_t id, std::uint32_t size) {
    const Axis& axis = part.axis;
    for (const std::size_t m : part.members) {
      const Member& member = group.members[m];
      schema::RankTables& head = ranks_[member.rank].head;
      head.comms.global_id[member.comm] = id;
      if (size > 0) head.comms.size[member.comm] = size;
      const Fit fit = axis.match[m].fit;
      for (std::size_t j = 0; j < member.rows.size(); ++j) {
        const std::uint32_t row = member.rows[j];
        const std::int32_t to = fit == Fit::kUnique ? axis.to[m][j] : kExtraOp;
        if (to >= 0) {
          head.collectives.seq[row] = static_cast<std::uint64_t>(to);
          head.collectives.start[row] = 0;
        } else {
          Leave(member, row, fit == Fit::kAmbiguous || to == kAmbiguousOp);
        }
      }
      if (fit == Fit::kUnique && m != axis.first && axis.match[m].spread_ns >= 0 &&
          !MuchOf(axis.match[m].spread_ns, rules::kRelatedClockNs))
        relations_.Relate(group.members[axis.first].rank, member.rank, axis.match[m].offset_ns);
    }
  }

  std::vector<RunRank>& ranks_;
  const unsigned jobs_;
  std::vector<Group> groups_;
  Relations relations_;
  std::vector<std::uint64_t> ambiguous_;  // Per rank.
};

}  // namespace

std::vector<RunLoss> NumberCollectives(std::vector<RunRank>& ranks, unsigned jobs) {
  return Orderer(ranks, jobs).Run();
}

}  // namespace lockstep::merge
