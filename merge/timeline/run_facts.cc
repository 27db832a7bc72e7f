// Facts of the ranks' hooks about the run as a whole (core/fact.h), and whether the ranks were recorded with the same
// settings.

#include <map>
#include <set>
#include <string>

#include "merge/timeline/assemble.h"

namespace lockstep::merge {

// Ranks of one job agree; if not, none is better than the lowest: each fact is taken from the first rank that has it.
void TimelineWriter::Facts(const RunFiles& run) {
  std::set<std::string_view> known;
  bool buckets = false;
  for (const RunRank& rank : run.ranks) {
    const schema::RankTables& head = rank.head;
    std::set<std::string_view> own;
    for (std::size_t i = 0; i < head.meta.rows(); ++i) {
      const std::string_view key = trace::TextOf(head, head.meta.key[i]);
      if (!key.starts_with("fact.") || known.contains(key)) continue;
      Meta(key, trace::TextOf(head, head.meta.value[i]));
      own.insert(key);
    }
    known.merge(own);
    if (buckets) continue;
    const schema::GradientBuckets& of_rank = head.gradient_buckets;
    for (std::size_t i = 0; i < of_rank.rows(); ++i) {
      tables_.gradient_buckets.Append({.rank = rank.rank,
                                       .model = of_rank.model[i],
                                       .bucket = of_rank.bucket[i],
                                       .bytes = of_rank.bytes[i],
                                       .cap_bytes = of_rank.cap_bytes[i],
                                       .dtype = of_rank.dtype[i],
                                       .parameters = Intern(trace::TextOf(head, of_rank.parameters[i])),
                                       .rebuilt = of_rank.rebuilt[i]});
      buckets = true;
    }
  }
}

void TimelineWriter::Settings(const RunFiles& run) {
  // The location of a rank's files, and what rank 0 alone makes of them, may differ.
  const std::set<std::string_view> own = {"after", "live", "metrics", "output", "spool_dir"};
  std::map<std::string_view, std::map<std::string_view, std::vector<std::int32_t>>> ranks_by_value;
  std::vector<std::int32_t> all;
  const auto take = [&](const RunRank& rank) {
    std::string_view options = ingest::MetaValue(rank.head, "options");
    if (options.empty()) return;
    all.push_back(rank.rank);
    while (!options.empty()) {
      const std::string_view field = options.substr(0, options.find(';'));
      options.remove_prefix(std::min(field.size() + 1, options.size()));
      const std::size_t equals = std::min(field.find('='), field.size());
      const std::string_view name = field.substr(0, equals);
      if (!own.contains(name))
        ranks_by_value[name][field.substr(std::min(equals + 1, field.size()))].push_back(rank.rank);
    }
  };
  for (const RunRank& rank : run.ranks) take(rank);
  for (const RunRank& rank : run.left_out) take(rank);
  std::string text;
  for (auto& [name, values] : ranks_by_value) {
    std::size_t given = 0;
    for (const auto& [value, ranks] : values) given += ranks.size();
    if (values.size() == 1 && given == all.size()) continue;
    text += (text.empty() ? "--" : ", --") + std::string(name);
    for (const auto& [value, ranks] : values) {
      text += (&value == &values.begin()->first ? " " : " and ") + std::string(value) + " (" +
              (ranks.size() == 1 ? "rank " + std::to_string(ranks[0])
                                 : std::to_string(ranks.size()) + " ranks, " + std::to_string(ranks[0]) + " first") +
              ")";
    }
    if (given < all.size()) text += " and not given (" + std::to_string(all.size() - given) + " of the ranks)";
  }
  if (!text.empty()) Meta("settings_differ", text);
}

}  // namespace lockstep::merge
