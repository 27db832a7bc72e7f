#include "ingest/agree_on_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "ingest/inputs.h"

namespace lockstep::ingest {

std::set<std::int32_t> AgreeOnGroups(const std::vector<std::pair<std::int32_t, TraceSummary*>>& ranks) {
  struct OnRank {
    std::int32_t rank;
    std::vector<RankGroup*> groups;
  };
  std::map<std::uint64_t, std::vector<OnRank>> by_members;
  for (const auto& [rank, summary] : ranks)
    for (RankGroup& group : summary->groups) {
      if (group.guessed || !group.group.members_known()) continue;
      auto& list = by_members[group.group.Id("")];
      if (list.empty() || list.back().rank != rank) list.push_back({rank, {}});
      list.back().groups.push_back(&group);
    }
  std::set<std::int32_t> renamed;
  for (auto& [members, list] : by_members) {
    if (list.size() < 2) continue;
    std::map<std::string_view, std::size_t> names;
    bool shared = false, equal = true;
    for (const OnRank& on : list) {
      equal &= on.groups.size() == list[0].groups.size();
      for (const RankGroup* group : on.groups) shared |= ++names[group->group.name] > 1;
    }
    if (shared || !equal) continue;
    for (OnRank& on : list) {
      std::stable_sort(on.groups.begin(), on.groups.end(), [](const RankGroup* a, const RankGroup* b) {
        return NaturalLess(a->group.name, b->group.name);
      });
      for (std::size_t i = 0; i < on.groups.size(); ++i) on.groups[i]->as = fmt::format("number {}", i);
      renamed.insert(on.rank);
    }
  }
  return renamed;
}

}  // namespace lockstep::ingest
