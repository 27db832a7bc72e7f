#include "merge/match/comm_groups.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "core/loss.h"
#include "merge/match/instance_key.h"
#include "merge/match/order.h"
#include "merge/parallel.h"

namespace lockstep::merge {
namespace {

// All groups, without their members yet. An NCCL communicator has one group for each function that some rank called.
std::vector<CommGroup> EmptyGroups(const std::vector<MatchRank>& ranks) {
  std::set<std::pair<std::uint64_t, std::uint8_t>> keys;
  for (const MatchRank& rank : ranks) {
    const schema::Comms& comms = rank.tables->comms;
    bool nccl = false;
    for (std::size_t i = 0; i < comms.rows(); ++i) {
      if (!Identified(comms, i)) continue;
      nccl |= comms.kind[i] == kNcclCommKind;
      if (comms.kind[i] != kNcclCommKind) keys.emplace(comms.global_id[i], std::uint8_t{0});
    }
    const schema::Collectives& rows = rank.tables->collectives;
    for (std::size_t row = 0; nccl && row < rows.rows(); ++row)
      if (const std::uint32_t comm = rows.comm[row]; Identified(comms, comm))
        keys.emplace(comms.global_id[comm], KeyFunction(comms, comm, rows.kind[row]));
  }
  std::vector<CommGroup> groups;
  groups.reserve(keys.size());
  for (const auto& [id, function] : keys) groups.push_back({.id = id, .function = function});
  return groups;
}

// One rank's rows on each group.
struct OnRank {
  std::vector<std::pair<std::size_t, RankOnComm>> members;  // With the group's index.
  std::uint64_t unidentified = 0;                           // Communicators with rows.
};

OnRank MembersOn(const MatchRank& rank, std::uint32_t index, const std::vector<CommGroup>& groups) {
  const schema::Comms& comms = rank.tables->comms;
  const schema::Collectives& rows = rank.tables->collectives;
  std::vector<std::vector<std::uint32_t>> by_comm(comms.rows());
  for (std::uint32_t row = 0; row < rows.rows(); ++row)
    if (rows.comm[row] < by_comm.size()) by_comm[rows.comm[row]].push_back(row);
  OnRank on_rank;
  for (std::uint32_t comm = 0; comm < comms.rows(); ++comm) {
    std::vector<std::uint32_t>& own = by_comm[comm];
    if (!Identified(comms, comm)) {
      on_rank.unidentified += !own.empty();
      continue;
    }
    SortByNumber(rows, own);
    for (const CommGroup& group : std::ranges::equal_range(groups, comms.global_id[comm], {}, &CommGroup::id)) {
      RankOnComm member{index, comm, comms.rank[comm], {}};
      if (comms.kind[comm] == kNcclCommKind)
        std::ranges::copy_if(own, std::back_inserter(member.rows),
                             [&](std::uint32_t row) { return rows.kind[row] == group.function; });
      else
        member.rows = std::move(own);
      on_rank.members.emplace_back(&group - groups.data(), std::move(member));
      if (comms.kind[comm] != kNcclCommKind) break;
    }
  }
  return on_rank;
}

}  // namespace

std::vector<CommGroup> GroupByComm(const std::vector<MatchRank>& ranks, unsigned jobs, std::vector<RunLoss>& losses) {
  std::vector<CommGroup> groups = EmptyGroups(ranks);
  std::vector<OnRank> on_ranks(ranks.size());
  ParallelFor(jobs, ranks.size(),
              [&](std::size_t r) { on_ranks[r] = MembersOn(ranks[r], static_cast<std::uint32_t>(r), groups); });
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const schema::Comms& comms = ranks[r].tables->comms;
    for (auto& [index, member] : on_ranks[r].members) {
      CommGroup& group = groups[index];
      group.size = std::max(group.size, comms.size[member.comm]);
      group.inter |= comms.kind[member.comm] == schema::CommKind::kInter;
      group.torch |= comms.kind[member.comm] == schema::CommKind::kTorchGroup;
      group.ordered |=
          member.comm < comms.identity.size() && comms.identity[member.comm] != schema::CommIdentity::kCounted;
      // Two handles of one member (a damaged file): their rows are joined. A process with several GPUs has several
      // members.
      if (!group.ranks.empty() && group.ranks.back().rank == r && group.ranks.back().comm_rank == member.comm_rank) {
        std::vector<std::uint32_t>& rows = group.ranks.back().rows;
        rows.insert(rows.end(), member.rows.begin(), member.rows.end());
        SortByNumber(ranks[r].tables->collectives, rows);
      } else {
        group.ranks.push_back(std::move(member));
      }
    }
    if (on_ranks[r].unidentified > 0 && !HasLoss(*ranks[r].tables, Loss::kCommUnidentified))
      losses.push_back(MakeLoss(ranks[r].rank, Loss::kCommUnidentified, on_ranks[r].unidentified, ""));
  }
  for (CommGroup& group : groups) {
    group.size = std::max(group.size, static_cast<std::uint32_t>(group.ranks.size()));
    for (RankOnComm& member : group.ranks) {
      const std::vector<std::uint64_t>& seq = ranks[member.rank].tables->collectives.seq;
      member.numbered = static_cast<std::size_t>(
          std::ranges::partition_point(member.rows, [&](std::uint32_t row) { return seq[row] < kAmbiguousSeq; }) -
          member.rows.begin());
    }
  }
  return groups;
}

}  // namespace lockstep::merge
