#include "ingest/rank_files/host_names.h"

#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include "trace/file/strings.h"

namespace lockstep::ingest {
namespace {

std::string OwnName(const schema::RankTables& head) {
  const std::string_view node = trace::MetaValue(head, "node");
  return std::string(node.empty() ? trace::MetaValue(head, "host") : node);
}

std::string Boot(const schema::RankTables& head) { return std::string(trace::MetaValue(head, "boot_id")); }

}  // namespace

HostNames::HostNames(const std::vector<const schema::RankTables*>& heads) {
  std::map<std::string, std::vector<std::string>> boots;  // In the order of their first ranks.
  for (const schema::RankTables* head : heads) {
    const std::string name = OwnName(*head), boot = Boot(*head);
    if (!names_[name].emplace(boot, name).second) continue;
    boots[name].push_back(boot);
  }
  std::set<std::string> taken;
  for (const auto& [name, of_name] : boots) taken.insert(name);
  for (const auto& [name, of_name] : boots) {
    std::map<std::string, std::string>& shown = names_[name];
    // The second is that of a file which does not say its boot.
    if (name.empty() || of_name.size() < 2 || (of_name.size() == 2 && shown.contains(""))) continue;
    std::size_t number = 0;
    for (const std::string& boot : of_name) {
      std::string numbered;
      do numbered = name + "#" + std::to_string(++number);
      while (!taken.insert(numbered).second);
      shown[boot] = std::move(numbered);
    }
  }
}

const std::string& HostNames::Of(const schema::RankTables& head) const {
  static const std::string unknown;
  const auto of_name = names_.find(OwnName(head));
  if (of_name == names_.end()) return unknown;
  const auto shown = of_name->second.find(Boot(head));
  return shown == of_name->second.end() ? unknown : shown->second;
}

}  // namespace lockstep::ingest
