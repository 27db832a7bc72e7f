#pragma once
// One rank's events and the windows in which a table counts them.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/tables/engine/table.h"
#include "merge/timeline/p2p_partners.h"

namespace lockstep::tables {

// The data that the views of all ranks share, made once per table.
class ViewIndex {
 public:
  explicit ViewIndex(const merge::Timeline& timeline);
  void SetPartners(merge::P2pPartners partners) { partners_ = std::move(partners); }
  void FindCharges(unsigned jobs) { charges_.emplace(timeline_, jobs); }

  const merge::Timeline& timeline() const { return timeline_; }
  std::span<const std::uint32_t> MembersOf(std::int32_t rank) const;
  // Rows of step_ranks of a rank, by index.
  std::span<const std::uint32_t> StepsOf(std::int32_t rank) const;
  // Null: not known. Lives as long as this.
  const merge::RankP2pPartners* PartnersOf(std::int32_t rank) const;
  const merge::Charges* charges() const { return charges_ ? &*charges_ : nullptr; }

 private:
  struct Rows {
    std::vector<std::uint32_t> rows;
    std::vector<std::size_t> first;  // Per row of timeline.tables.ranks, and the end.
    std::span<const std::uint32_t> Of(std::int64_t rank_row) const;
  };
  Rows ByRank(const std::vector<std::int32_t>& rank) const;

  const merge::Timeline& timeline_;
  Rows members_, steps_;
  merge::P2pPartners partners_;
  std::optional<merge::Charges> charges_;
};

// Takes the tables. Without the steps that `options` ask for `windows` is empty.
gpu::RankView MakeRankView(const ViewIndex& index, std::int32_t rank, schema::RankTables tables,
                           const TableOptions& options);

}  // namespace lockstep::tables
