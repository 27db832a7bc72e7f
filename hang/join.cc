#include "hang/join.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace lockstep::hang {

void Join(Progress& progress, Progress more) {
  std::map<std::int32_t, RankFacts> ranks;
  for (RankFacts& facts : progress.ranks) ranks.emplace(facts.rank, std::move(facts));
  for (RankFacts& facts : more.ranks) {
    const auto [at, fresh] = ranks.try_emplace(facts.rank, facts);
    if (fresh) continue;
    RankFacts& known = at->second;
    // With facts of either, a rank is not missing; what is known of its process stays.
    if (known.state == RankState::kMissing) known.state = facts.state;
    if (known.host.empty()) known.host = std::move(facts.host);
    if (known.doing.empty()) known.doing = std::move(facts.doing);
    if (known.threads.empty()) {
      known.threads = std::move(facts.threads);
      known.stacks_file = std::move(facts.stacks_file);
    }
    known.seen_ns = std::max(known.seen_ns, facts.seen_ns);
    known.hides_messages |= facts.hides_messages;
    known.makes_messages |= facts.makes_messages;
  }
  progress.ranks.clear();
  for (auto& [rank, facts] : ranks) progress.ranks.push_back(std::move(facts));
  std::move(more.groups.begin(), more.groups.end(), std::back_inserter(progress.groups));
}

}  // namespace lockstep::hang
