// What the ranks' hooks said about the run as a whole (core/fact.h).

#include <set>

#include "merge/timeline/assemble.h"

namespace lockstep {

// Ranks of one job agree, or the lowest one is as good as any: each fact is taken from
// the first rank that has it.
void TimelineWriter::Facts(const RunFiles& run) {
  std::set<std::string_view> known;
  bool buckets = false;
  for (const RunRank& rank : run.ranks) {
    const schema::RankTables& head = rank.head;
    std::set<std::string_view> own;
    for (std::size_t i = 0; i < head.meta.rows(); ++i) {
      const std::string_view key = TextOf(head, head.meta.key[i]);
      if (!key.starts_with("fact.") || known.contains(key)) continue;
      Meta(key, TextOf(head, head.meta.value[i]));
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
                                       .parameters = Intern(TextOf(head, of_rank.parameters[i])),
                                       .rebuilt = of_rank.rebuilt[i]});
      buckets = true;
    }
  }
}

}  // namespace lockstep
