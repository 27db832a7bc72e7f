#pragma once
// Reads one rank's events from its file, in order of their begin over all tables, a piece at a time: only a few pieces
// of each table are in memory, however long the run was.

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/interval.h"
#include "core/result.h"
#include "export/common/event.h"
#include "export/common/writer.h"
#include "ingest/rank_files/rank_source.h"
#include "merge/timeline/timeline.h"

namespace lockstep::exporters {

class Stream;  // table_stream.h

// Rows of the timeline that belong to each rank.
class RankIndex {
 public:
  explicit RankIndex(const merge::Timeline& timeline);
  // Rows of collective_ranks and of step_ranks of one rank; empty if it has none.
  const std::vector<std::uint32_t>& Members(std::int32_t rank) const;
  const std::vector<std::uint32_t>& Steps(std::int32_t rank) const;

 private:
  std::unordered_map<std::int32_t, std::vector<std::uint32_t>> members_, steps_;
  std::vector<std::uint32_t> none_;
};

// The events to walk over.
struct Selection {
  Interval window{INT64_MIN, INT64_MAX};                   // Cluster time; events that overlap it are taken whole.
  std::int64_t least_ns = 0;                               // Details shorter than that are left out.
  std::unordered_map<std::uint32_t, std::uint64_t> flows;  // Row of collective_ranks -> number of its arrow.
  std::vector<bool> flow_target;                           // By row of collectives: arrows end at its last arriver.
};

using Counts = std::array<std::uint64_t, kEventKinds>;

// Durations in bins of an eighth of a power of two: exact below 16 ns, to 12 % above.
inline constexpr std::size_t kBins = 62 * 8;
constexpr std::size_t BinOf(std::uint64_t ns) {
  if (ns < 8) return static_cast<std::size_t>(ns);
  const auto power = static_cast<std::size_t>(std::bit_width(ns) - 1);
  return (power - 2) * 8 + (ns >> (power - 3) & 7);
}
// The least duration of a bin.
constexpr std::int64_t FirstOf(std::size_t bin) {
  return bin < 8 ? static_cast<std::int64_t>(bin) : static_cast<std::int64_t>(8 + bin % 8) << (bin / 8 - 1);
}

// The amount of a rank's events, found without walking over them.
struct Extent {
  std::int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;  // Cluster time; first > last: nothing.
  // Details within the window, counted by BinOf their ns.
  std::array<std::uint64_t, kBins> details{};
  std::array<bool, kEventKinds> unordered{};  // Tables that are not in order of time, by kind.
};

// Thread: one at a time; several ranks may be walked at once.
class RankEvents {
 public:
  // kNotFound and the like as Timeline::ReadRankContents.
  static Result<std::unique_ptr<RankEvents>> Open(const merge::Timeline& timeline, const RankIndex& index,
                                                  std::int32_t rank);

  const ExportRank& rank() const { return rank_; }
  Extent Look(const Interval& window);
  // `extent` is the result of Look. `left_out`: the number of details below least_ns. Stops at the first error of `f`.
  Status Walk(const Selection& selection, const Extent& extent, const std::function<Status(const Event&)>& f,
              Counts& left_out);
  // The tables that could not be read, one line each.
  std::vector<std::string> Damaged() const { return reader_->Damaged(); }

 private:
  RankEvents(const merge::Timeline& timeline, const RankIndex& index, std::int32_t rank)
      : timeline_(timeline), index_(index), clock_(timeline.tables.clock, rank) {
    rank_.rank = rank;
  }
  std::string Title() const;
  std::vector<std::unique_ptr<Stream>> Streams(const Extent& extent);
  // By row of this rank's collectives, kNone if not matched: row of collective_ranks.
  std::vector<std::uint32_t> MemberOfRows() const;
  // Adds the result of matching to a collective.
  void PutInstance(std::uint32_t member, const Selection& selection, Event& event) const;

  const merge::Timeline& timeline_;
  const RankIndex& index_;
  merge::ClockMap clock_;
  ExportRank rank_;
  std::unique_ptr<ingest::RankSource> source_;
  schema::RankTables head_;
  std::unique_ptr<ingest::EventReader> reader_;
};

}  // namespace lockstep::exporters
