#include "merge/match/comm_groups.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/loss.h"
#include "merge/match/instance_key.h"
#include "merge/match/order.h"
#include "merge/parallel.h"
#include "trace/file/strings.h"

namespace lockstep::merge {

std::vector<CommGroup> GroupByComm(const std::vector<MatchRank>& ranks, unsigned jobs, std::vector<RunLoss>& losses) {
  std::vector<CommGroup> groups;
  const auto key_of = [&](std::uint32_t rank, std::uint32_t row) {
    const schema::Collectives& rows = ranks[rank].tables->collectives;
    return std::pair(rows.seq[row], rows.start[row]);
  };
  std::map<std::pair<std::uint64_t, std::uint8_t>, std::uint32_t> dense;
  for (const MatchRank& rank : ranks) {
    const schema::Comms& comms = rank.tables->comms;
    bool nccl = false;
    for (std::size_t i = 0; i < comms.rows(); ++i) {
      if (comms.global_id[i] == 0 || comms.unidentified[i]) continue;
      if (comms.kind[i] == kNcclCommKind)
        nccl = true;
      else
        dense.emplace(std::pair(comms.global_id[i], std::uint8_t{0}), 0);
    }
    const schema::Collectives& rows = rank.tables->collectives;
    for (std::size_t row = 0; nccl && row < rows.rows(); ++row) {
      const std::uint32_t comm = rows.comm[row];
      if (comm < comms.rows() && comms.global_id[comm] != 0 && !comms.unidentified[comm])
        dense.emplace(std::pair(comms.global_id[comm], KeyFunction(comms, comm, rows.kind[row])), 0);
    }
  }
  groups.reserve(dense.size());
  for (auto& [key, index] : dense) {
    index = static_cast<std::uint32_t>(groups.size());
    groups.push_back({.id = key.first, .function = key.second});
  }
  const auto functions = [&](std::uint64_t id) {
    return std::pair(dense.lower_bound({id, 0}), dense.upper_bound({id, UINT8_MAX}));
  };
  std::vector<std::vector<std::pair<std::uint32_t, RankOnComm>>> found(ranks.size());
  std::vector<std::uint64_t> unidentified(ranks.size(), 0);
  ParallelFor(jobs, ranks.size(), [&](std::size_t r) {
    const schema::Comms& comms = ranks[r].tables->comms;
    const schema::Collectives& rows = ranks[r].tables->collectives;
    std::vector<std::vector<std::uint32_t>> by_comm(comms.rows());
    for (std::uint32_t row = 0; row < rows.rows(); ++row)
      if (rows.comm[row] < by_comm.size()) by_comm[rows.comm[row]].push_back(row);
    for (std::size_t i = 0; i < comms.rows(); ++i) {
      if (comms.global_id[i] == 0 || comms.unidentified[i]) {
        unidentified[r] += !by_comm[i].empty();
        continue;
      }
      const auto before = [&](std::uint32_t a, std::uint32_t b) {
        return std::tuple(rows.seq[a], rows.start[a], a) < std::tuple(rows.seq[b], rows.start[b], b);
      };
      if (!std::is_sorted(by_comm[i].begin(), by_comm[i].end(), before))
        std::sort(by_comm[i].begin(), by_comm[i].end(), before);
      const auto [first, end] = functions(comms.global_id[i]);
      for (auto at = first; at != end; ++at) {
        RankOnComm one{static_cast<std::uint32_t>(r), comms.rank[i], {}};
        if (comms.kind[i] != kNcclCommKind)
          one.rows = std::move(by_comm[i]);
        else
          std::copy_if(by_comm[i].begin(), by_comm[i].end(), std::back_inserter(one.rows),
                       [&](std::uint32_t row) { return rows.kind[row] == at->first.second; });
        found[r].push_back({at->second, std::move(one)});
        if (comms.kind[i] != kNcclCommKind) break;
      }
    }
  });
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const schema::Comms& comms = ranks[r].tables->comms;
    for (std::size_t i = 0; i < comms.rows(); ++i) {
      if (comms.global_id[i] == 0 || comms.unidentified[i]) continue;
      const auto [first, end] = functions(comms.global_id[i]);
      for (auto at = first; at != end; ++at) {
        CommGroup& group = groups[at->second];
        group.size = std::max(group.size, comms.size[i]);
        group.inter |= comms.kind[i] == schema::CommKind::kInter;
        group.ordered |= i < comms.identity.size() && comms.identity[i] != schema::CommIdentity::kCounted;
      }
    }
    for (auto& [comm, rank_on_comm] : found[r]) {
      auto& members = groups[comm].ranks;
      // Two handles of one member (a damaged file): its rows together. A process with several GPUs is several.
      if (!members.empty() && members.back().rank == r && members.back().comm_rank == rank_on_comm.comm_rank) {
        members.back().rows.insert(members.back().rows.end(), rank_on_comm.rows.begin(), rank_on_comm.rows.end());
        std::sort(members.back().rows.begin(), members.back().rows.end(), [&](std::uint32_t a, std::uint32_t b) {
          return key_of(members.back().rank, a) < key_of(members.back().rank, b);
        });
        continue;
      }
      members.push_back(std::move(rank_on_comm));
    }
    bool told = false;
    const std::string_view name = Info(Loss::kCommUnidentified).name;
    const schema::Losses& known = ranks[r].tables->losses;
    for (std::size_t i = 0; i < known.rows(); ++i) told |= trace::TextOf(*ranks[r].tables, known.name[i]) == name;
    if (unidentified[r] > 0 && !told)
      losses.push_back(MakeLoss(ranks[r].rank, Loss::kCommUnidentified, unidentified[r], ""));
  }
  for (CommGroup& group : groups) {
    group.size = std::max(group.size, static_cast<std::uint32_t>(group.ranks.size()));
    for (RankOnComm& member : group.ranks)
      member.placed = static_cast<std::size_t>(
          std::partition_point(
              member.rows.begin(), member.rows.end(),
              [&](std::uint32_t row) { return ranks[member.rank].tables->collectives.seq[row] < kAmbiguousSeq; }) -
          member.rows.begin());
  }
  return groups;
}

}  // namespace lockstep::merge
