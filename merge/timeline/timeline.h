#pragma once
// The merged run as analysis and exporters see it: the tables of timeline.h5 in memory, indexed, plus access to the
// ranks' own tables.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/schema.h"
#include "merge/clock/clock_map.h"

namespace lockstep::merge {

// Whether a file of a rank in this state was read: else it is missing, or was left out by --ranks.
constexpr bool IsPresent(std::uint8_t state) { return state < schema::RankState::kMissing; }

struct Timeline {
  std::string run_dir;  // Directory of manifest.json.
  schema::TimelineTables tables;

  // Text of a row of `strings`.
  std::string_view Text(std::uint32_t id) const;
  // Value of a meta key, "" if absent. Keys: see docs/trace-format.md.
  std::string_view Meta(std::string_view key) const;
  // The same as a number; `otherwise` if it is none.
  std::int64_t MetaNumber(std::string_view key, std::int64_t otherwise) const;
  // collective_ranks rows of instance i are [FirstMember(i), FirstMember(i + 1)); sorted by rank.
  std::size_t FirstMember(std::size_t collective) const { return first_member[collective]; }
  // Ranks of which a file was read, ascending.
  std::vector<std::int32_t> PresentRanks() const;
  // Row of `ranks` for a world rank, -1 if absent.
  std::int64_t RankRow(std::int32_t rank) const;
  // Tables of one rank's file (read on each call; large).
  Result<schema::RankTables> ReadRank(std::int32_t rank) const;
  // The same, with a message for each table that is damaged.
  struct RankContents {
    schema::RankTables tables;
    std::vector<std::string> damaged;
  };
  Result<RankContents> ReadRankContents(std::int32_t rank) const;

  std::vector<std::size_t> first_member;  // Size collectives + 1.
  std::string seen_files;                 // For Changed() of merge.h; "" of a timeline that no merge has opened.
};

// kNotFound if RUN/timeline.h5 is absent, kMalformed if it breaks its format.
Result<Timeline> OpenTimeline(const std::string& run_dir);
// Builds the index over tables made in memory.
Timeline MakeTimeline(std::string run_dir, schema::TimelineTables tables);

}  // namespace lockstep::merge
