#include "merge/clock/domains.h"

#include <algorithm>
#include <map>
#include <string>

#include "merge/rules/clock.h"

namespace lockstep::merge {
namespace {

// Ranks whose check against a rank of the same domain failed.
std::vector<std::int32_t> OddRanks(const std::vector<const AlignRank*>& ranks) {
  std::vector<std::int32_t> odd;
  for (const AlignRank* rank : ranks) {
    if (rank->bursts == nullptr) continue;
    for (std::size_t i = 0; i < rank->bursts->rows(); ++i) {
      const auto row = rank->bursts->Get(i);
      if (row.purpose != schema::Purpose::kCheck) continue;
      const OffsetBounds bounds = BoundsOfOwn(row.send_ns, row.peer_receive_ns, row.peer_send_ns, row.receive_ns);
      if (bounds.low_ns <= rules::kSameClockNs && bounds.high_ns >= -rules::kSameClockNs) continue;
      odd.push_back(rank->rank);
      break;
    }
  }
  return odd;
}

}  // namespace

std::pair<std::vector<Domain>, std::vector<std::int32_t>> MakeDomains(const std::vector<const AlignRank*>& ranks) {
  std::vector<Domain> domains;
  std::vector<std::int32_t> odd_ranks = OddRanks(ranks);
  std::map<std::string, std::size_t> index;
  for (const AlignRank* rank : ranks) {
    const bool odd = std::binary_search(odd_ranks.begin(), odd_ranks.end(), rank->rank);
    const std::string name = rank->domain.empty() || odd ? "rank " + std::to_string(rank->rank) : rank->domain;
    const auto [at, fresh] = index.try_emplace(name, domains.size());
    if (fresh) domains.emplace_back();
    Domain& domain = domains[at->second];
    domain.ranks.push_back(rank);
    domain.imported &= rank->imported;
    if (rank->begin_ns == 0 && rank->end_ns == 0) continue;
    if (domain.begin_ns > domain.end_ns) {
      domain.begin_ns = rank->begin_ns;
      domain.end_ns = rank->end_ns;
    }
    domain.begin_ns = std::min(domain.begin_ns, rank->begin_ns);
    domain.end_ns = std::max(domain.end_ns, rank->end_ns);
  }
  return {std::move(domains), std::move(odd_ranks)};
}

}  // namespace lockstep::merge
