#include "merge/timeline/timeline.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "ingest/rank_files/rank_source.h"
#include "merge/match/saturated.h"
#include "merge/timeline/rank_activity.h"
#include "trace/file/strings.h"
#include "trace/file/table_file.h"

namespace lockstep::merge {
namespace fs = std::filesystem;

std::string_view Timeline::Text(std::uint32_t id) const { return trace::TextOf(tables, id); }

std::string_view Timeline::Meta(std::string_view key) const {
  for (std::size_t i = 0; i < tables.meta.rows(); ++i)
    if (Text(tables.meta.key[i]) == key) return Text(tables.meta.value[i]);
  return {};
}

std::int64_t Timeline::RankRow(std::int32_t rank) const {
  const auto& ranks = tables.ranks.rank;
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
  return at != ranks.end() && *at == rank ? at - ranks.begin() : -1;
}

Result<schema::RankTables> Timeline::ReadRank(std::int32_t rank) const {
  LS_TRY(RankContents contents, ReadRankContents(rank));
  return std::move(contents.tables);
}

Result<Timeline::RankContents> Timeline::ReadRankContents(std::int32_t rank) const {
  LS_TRY(const std::unique_ptr<ingest::RankSource> source, OpenRank(*this, rank));
  ingest::ReadTables read = source->ReadAll();
  return RankContents{std::move(read.tables), std::move(read.damaged)};
}

Result<Timeline> OpenTimeline(const std::string& run_dir) {
  LS_TRY(auto tables, trace::ReadTimelineFile((fs::path(run_dir) / "timeline.h5").string()));
  return MakeTimeline(run_dir, std::move(tables));
}

Timeline MakeTimeline(std::string run_dir, schema::TimelineTables tables) {
  Timeline timeline;
  timeline.run_dir = std::move(run_dir);
  timeline.tables = std::move(tables);
  const auto& collective = timeline.tables.collective_ranks.collective;
  timeline.first_member.assign(timeline.tables.collectives.rows() + 1, 0);
  for (const std::uint32_t row : collective)
    if (row < timeline.tables.collectives.rows()) ++timeline.first_member[row + 1];
  for (std::size_t i = 1; i < timeline.first_member.size(); ++i)
    timeline.first_member[i] += timeline.first_member[i - 1];
  return timeline;
}

RankClockMap::RankClockMap(const schema::Clock& clock, std::int32_t rank) {
  for (std::size_t i = 0; i < clock.rows(); ++i)
    if (clock.rank[i] == rank)
      knots_.push_back({clock.local_ns[i], clock.offset_ns[i], clock.base_error_ns[i], clock.slew_ppb[i]});
  std::stable_sort(knots_.begin(), knots_.end(), [](const Knot& a, const Knot& b) { return a.local_ns < b.local_ns; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < knots_.size(); ++i) {
    Knot knot = knots_[i];
    if (kept > 0) {
      const Knot& before = knots_[kept - 1];
      if (knot.local_ns == before.local_ns) continue;
      // Cluster time never runs backwards, whatever the table says.
      knot.offset_ns = std::max(knot.offset_ns, before.local_ns + before.offset_ns + 1 - knot.local_ns);
    }
    knots_[kept++] = knot;
  }
  knots_.resize(kept);
}

namespace {

// Offset change over `distance_ns` at a slope: the product stays far below 2^53,
// so a double is exact to well under a nanosecond.
std::int64_t Along(std::int64_t distance_ns, double slope) {
  return static_cast<std::int64_t>(std::llround(static_cast<double>(distance_ns) * slope));
}

}  // namespace

std::int64_t RankClockMap::ToCluster(std::int64_t local_ns) const {
  if (knots_.empty()) return local_ns;
  if (knots_.size() == 1) return local_ns + knots_[0].offset_ns;
  const auto after = std::upper_bound(knots_.begin() + 1, knots_.end() - 1, local_ns,
                                      [](std::int64_t at, const Knot& knot) { return at < knot.local_ns; });
  const Knot &a = after[-1], &b = *after;
  const double slope = static_cast<double>(b.offset_ns - a.offset_ns) / static_cast<double>(b.local_ns - a.local_ns);
  return local_ns + a.offset_ns + Along(local_ns - a.local_ns, slope);
}

std::int64_t RankClockMap::ToLocal(std::int64_t cluster_ns) const {
  if (knots_.empty()) return cluster_ns;
  if (knots_.size() == 1) return cluster_ns - knots_[0].offset_ns;
  const auto after =
      std::upper_bound(knots_.begin() + 1, knots_.end() - 1, cluster_ns,
                       [](std::int64_t at, const Knot& knot) { return at < knot.local_ns + knot.offset_ns; });
  const Knot &a = after[-1], &b = *after;
  const std::int64_t cluster_a = a.local_ns + a.offset_ns, cluster_b = b.local_ns + b.offset_ns;
  const double slope = static_cast<double>(b.offset_ns - a.offset_ns) / static_cast<double>(cluster_b - cluster_a);
  return cluster_ns - a.offset_ns - Along(cluster_ns - cluster_a, slope);
}

std::int64_t RankClockMap::ErrorNs(std::int64_t local_ns) const {
  if (knots_.empty()) return kForever;
  const auto grown = [local_ns](const Knot& knot, std::int64_t base) {
    const double distance = std::fabs(static_cast<double>(local_ns) - static_cast<double>(knot.local_ns));
    const double growth = distance * 1e-9 * static_cast<double>(knot.slew_ppb);
    if (growth >= 9e18) return kForever;
    return Sum(base, static_cast<std::int64_t>(std::ceil(growth)));
  };
  const auto after = std::lower_bound(knots_.begin(), knots_.end(), local_ns,
                                      [](const Knot& knot, std::int64_t at) { return knot.local_ns < at; });
  if (after == knots_.end()) return grown(knots_.back(), knots_.back().base_error_ns);
  if (after == knots_.begin()) return grown(*after, after->base_error_ns);
  const Knot &a = after[-1], &b = *after;
  const bool left = local_ns - a.local_ns < b.local_ns - local_ns;
  // The base runs linearly from knot to knot; the slew is the nearer knot's.
  const double share = static_cast<double>(local_ns - a.local_ns) / static_cast<double>(b.local_ns - a.local_ns);
  const double base = static_cast<double>(a.base_error_ns) +
                      share * (static_cast<double>(b.base_error_ns) - static_cast<double>(a.base_error_ns));
  return grown(left ? a : b, base >= 9e18 ? kForever : static_cast<std::int64_t>(std::ceil(base)));
}

}  // namespace lockstep::merge
