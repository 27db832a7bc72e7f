#include "merge/match/collective_losses.h"

#include <algorithm>
#include <string>

#include "core/collective.h"
#include "merge/match/order.h"
#include "merge/rules/match.h"

namespace lockstep::merge {
namespace {

std::string Describe(const MatchedCollectives& matched, std::size_t i) {
  const schema::TlCollectives& c = matched.collectives;
  std::string text(Name(static_cast<CollectiveKind>(c.kind[i])));
  if (c.seq[i] < kAmbiguousSeq) text += " number " + std::to_string(c.seq[i]);
  if (c.start[i] > 0) text += " start " + std::to_string(c.start[i]);
  return text;
}

}  // namespace

void CountMissing(const std::vector<Lack>& lacks, MatchedCollectives& matched) {
  std::string first;
  for (std::size_t i = 0; i < lacks.size(); ++i) {
    const auto [why, rank] = lacks[i];
    if (why == Lack::kNothing || why == Lack::kOpen) continue;  // Open ones were counted when they were numbered.
    if (why == Lack::kCut || why == Lack::kOutside) {
      ++matched.cut;
      matched.outside += why == Lack::kOutside;
      continue;
    }
    if (matched.unmatched++ > 0) continue;
    if (why == Lack::kFitsNowhere)
      first = Describe(matched, i) + " of rank " + std::to_string(matched.members.rank[matched.first_member[i]]) +
              " fits nowhere in the order of the other ranks' operations";
    else
      first = Describe(matched, i) + " has no row on " +
              (why == Lack::kMember ? "some member" : "rank " + std::to_string(rank));
  }
  if (matched.unmatched > 0)
    matched.losses.push_back(MakeLoss(-1, Loss::kUnmatchedCollective, matched.unmatched, "first: " + first));
}

void CountMismatches(const std::vector<MatchRank>& ranks, std::uint64_t doubled, MatchedCollectives& matched) {
  std::string first;
  for (std::size_t i = 0; i < matched.collectives.rows(); ++i) {
    if (!matched.collectives.mismatch[i]) continue;
    if (matched.mismatched++ > 0) continue;
    first = "first: number " + std::to_string(matched.collectives.seq[i]) + " is";
    for (std::size_t m = matched.first_member[i];
         m < matched.first_member[i + 1] && first.size() < rules::kMismatchTextBytes; ++m) {
      const std::int32_t rank = matched.members.rank[m];
      const auto at = std::find_if(ranks.begin(), ranks.end(), [&](const MatchRank& r) { return r.rank == rank; });
      const schema::Collectives& rows = at->tables->collectives;
      const std::uint32_t row = matched.members.row[m];
      first += (m == matched.first_member[i] ? " " : ", ") +
               std::string(Name(static_cast<CollectiveKind>(rows.kind[row]))) + " of " +
               std::to_string(rows.bytes[row]) + " bytes on rank " + std::to_string(rank);
    }
  }
  if (matched.mismatched > 0)
    matched.losses.push_back(MakeLoss(-1, Loss::kCollectiveMismatch, matched.mismatched, first));
  if (doubled > 0)
    matched.losses.push_back(MakeLoss(-1, Loss::kCollectiveMismatch, doubled, "rows with the key of an earlier row"));
  matched.mismatched += doubled;
}

}  // namespace lockstep::merge
