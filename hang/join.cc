#include "hang/join.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace lockstep::hang {
namespace {

// By process id, those that one rank has alone.
std::map<std::int64_t, std::int32_t> ByProcess(const Progress& progress) {
  constexpr std::int32_t kSeveral = -1;
  std::map<std::int64_t, std::int32_t> ranks;
  for (const RankFacts& facts : progress.ranks)
    if (facts.pid > 0)
      if (const auto [at, fresh] = ranks.try_emplace(facts.pid, facts.rank); !fresh) at->second = kSeveral;
  std::erase_if(ranks, [](const auto& each) { return each.second == kSeveral; });
  return ranks;
}

// Gives `own` the ranks that its processes have in `job`.
bool Renumber(Progress& own, const Progress& job) {
  const std::map<std::int64_t, std::int32_t> here = ByProcess(own), there = ByProcess(job);
  std::map<std::int32_t, std::int32_t> to;
  for (const auto& [pid, rank] : here)
    if (const auto at = there.find(pid); at != there.end()) to[rank] = at->second;
  const auto known = [&](std::int32_t rank) { return to.contains(rank); };
  for (const RankFacts& facts : own.ranks)
    if (!known(facts.rank)) return false;
  for (const Group& group : own.groups)
    for (const Member& member : group.members)
      if (!known(member.rank)) return false;
  const auto renumber_peers = [&](std::vector<Operation>& calls) {
    for (Operation& call : calls) call.peer = known(call.peer) ? to[call.peer] : -1;
  };
  const auto by_rank = [](const auto& a, const auto& b) { return a.rank < b.rank; };
  for (RankFacts& facts : own.ranks) facts.rank = to[facts.rank];
  std::sort(own.ranks.begin(), own.ranks.end(), by_rank);
  for (Group& group : own.groups) {
    for (Member& member : group.members) {
      member.rank = to[member.rank];
      renumber_peers(member.calls);
      renumber_peers(member.messages);
    }
    std::sort(group.members.begin(), group.members.end(), by_rank);
  }
  own.own_ranks = false;
  return true;
}

}  // namespace

bool Join(Progress& progress, Progress more) {
  if (progress.own_ranks && more.own_ranks) return false;
  if (more.own_ranks && !Renumber(more, progress)) return false;
  if (progress.own_ranks && !Renumber(progress, more)) return false;
  std::map<std::int32_t, RankFacts> ranks;
  for (RankFacts& facts : progress.ranks) ranks.emplace(facts.rank, std::move(facts));
  for (RankFacts& facts : more.ranks) {
    const auto [at, fresh] = ranks.try_emplace(facts.rank, facts);
    if (fresh) continue;
    RankFacts& known = at->second;
    // With facts of either, a rank is not missing; what is known of its process stays.
    if (known.state == RankState::kMissing ||
        (known.state == RankState::kUnknown && facts.state != RankState::kMissing))
      known.state = facts.state;
    if (known.host.empty()) known.host = std::move(facts.host);
    if (known.pid == 0) known.pid = facts.pid;
    if (known.process.empty()) known.process = std::move(facts.process);
    if (known.doing.empty()) known.doing = std::move(facts.doing);
    if (known.threads.empty()) {
      known.threads = std::move(facts.threads);
      known.stacks_file = std::move(facts.stacks_file);
    }
    known.seen_ns = std::max(known.seen_ns, facts.seen_ns);
    known.hides_messages |= facts.hides_messages;
    known.makes_messages |= facts.makes_messages;
    known.counts_only &= facts.counts_only;
    known.blind &= facts.blind;
    if (known.shows.empty()) known.shows = std::move(facts.shows);
  }
  progress.ranks.clear();
  for (auto& [rank, facts] : ranks) progress.ranks.push_back(std::move(facts));
  // What counts leave open, dumps of all ranks tell; what Lockstep records does not (NCCL).
  const bool dumps_tell = std::all_of(progress.ranks.begin(), progress.ranks.end(),
                                      [](const RankFacts& facts) { return !facts.shows.empty(); });
  progress.open = std::max(progress.open, more.open);
  if (dumps_tell && progress.open != Open::kUnreadFiles) progress.open = Open::kNothing;
  std::move(more.groups.begin(), more.groups.end(), std::back_inserter(progress.groups));
  return true;
}

}  // namespace lockstep::hang
