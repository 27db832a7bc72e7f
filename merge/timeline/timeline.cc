#include "merge/timeline/timeline.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "ingest/rank_files/rank_source.h"
#include "merge/match/message_numbers.h"
#include "merge/timeline/rank_activity.h"
#include "trace/file/strings.h"
#include "trace/file/table_file.h"

namespace lockstep::merge {
namespace fs = std::filesystem;

std::string_view Timeline::Text(std::uint32_t id) const { return trace::TextOf(tables, id); }

std::string_view Timeline::Meta(std::string_view key) const { return trace::MetaValue(tables, key); }

std::int64_t Timeline::MetaNumber(std::string_view key, std::int64_t otherwise) const {
  return trace::MetaNumber(tables, key, otherwise);
}

std::vector<std::int32_t> Timeline::PresentRanks() const {
  std::vector<std::int32_t> present;
  for (std::size_t i = 0; i < tables.ranks.rows(); ++i)
    if (IsPresent(tables.ranks.state[i])) present.push_back(tables.ranks.rank[i]);
  std::sort(present.begin(), present.end());
  return present;
}

std::int64_t Timeline::RankRow(std::int32_t rank) const {
  const auto& ranks = tables.ranks.rank;
  // Mostly all ranks are there.
  if (rank >= 0 && static_cast<std::size_t>(rank) < ranks.size() && ranks[static_cast<std::size_t>(rank)] == rank)
    return rank;
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
  ApplyMessageNumbers(tables.message_numbers, rank, read.tables);
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

}  // namespace lockstep::merge
