#include "merge/clock/comm_graph.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "merge/clock/align.h"
#include "merge/rules/clock.h"
#include "merge/rules/match.h"
#include "merge/saturated.h"

namespace lockstep::merge {

CommGraph::CommGraph(const std::vector<std::vector<const AlignRank*>>& domains) : ties_(domains.size()) {
  std::unordered_map<std::uint64_t, std::uint32_t> dense;
  for (std::size_t d = 0; d < domains.size(); ++d) {
    std::unordered_map<std::uint64_t, std::uint64_t> operations;
    std::uint64_t last = 0;
    std::uint64_t* count = nullptr;
    for (const AlignRank* rank : domains[d])
      for (const AlignCollective& c : rank->collectives) {
        if (count == nullptr || c.comm != last) count = &operations[c.comm], last = c.comm;
        ++*count;
      }
    for (const auto& [id, n] : operations) {
      const std::uint32_t comm = dense.emplace(id, static_cast<std::uint32_t>(dense.size())).first->second;
      if (comm >= members_.size()) members_.resize(comm + 1);
      members_[comm].push_back(static_cast<std::uint32_t>(d));
      ties_[d].push_back({comm, n});
    }
  }
}

std::vector<std::size_t> CommGraph::Components() const {
  std::vector<std::size_t> parent(ties_.size());
  std::iota(parent.begin(), parent.end(), std::size_t{0});
  const auto root = [&](std::size_t d) {
    while (parent[d] != d) d = parent[d] = parent[parent[d]];
    return d;
  };
  for (const auto& members : members_)
    for (const std::uint32_t d : members) {
      const std::size_t a = root(members[0]), b = root(d);
      parent[std::max(a, b)] = std::min(a, b);
    }
  for (std::size_t d = 0; d < parent.size(); ++d) parent[d] = root(d);
  return parent;
}

CommGraph::Mapped::Mapped(const CommGraph& graph, const std::vector<std::int64_t>& errors)
    : graph_(graph), errors_(errors), by_comm_(graph.members_.size()) {
  for (std::size_t comm = 0; comm < by_comm_.size(); ++comm) {
    for (const std::uint32_t d : graph.members_[comm])
      if (errors[d] >= 0) by_comm_[comm].push_back(d);
    std::stable_sort(by_comm_[comm].begin(), by_comm_[comm].end(),
                     [&](std::uint32_t a, std::uint32_t b) { return errors[a] < errors[b]; });
  }
}

std::vector<std::size_t> CommGraph::Mapped::Partners(std::size_t domain, bool all) const {
  // A partner may share several communicators; their operations add up.
  std::vector<std::pair<std::size_t, std::uint64_t>> met;
  for (const Tie& tie : graph_.ties_[domain]) {
    const auto& mapped = by_comm_[tie.comm];
    const std::size_t n = std::min(mapped.size(), all ? rules::kHopPartners : rules::kHopPartnersPerComm);
    for (std::size_t i = 0; i < n; ++i) met.emplace_back(mapped[i], tie.operations);
  }
  std::sort(met.begin(), met.end());
  std::size_t kept = 0;
  for (const auto& [partner, operations] : met) {
    if (kept > 0 && met[kept - 1].first == partner)
      met[kept - 1].second += operations;
    else
      met[kept++] = {partner, operations};
  }
  met.resize(kept);
  const auto cost = [&](const std::pair<std::size_t, std::uint64_t>& p) {
    return Sum(errors_[p.first],
               p.second < rules::kEndSpreadOperations ? rules::kLeaveTogetherNs : rules::kGpuEndErrorNs);
  };
  std::sort(met.begin(), met.end(), [&](const auto& a, const auto& b) {
    const std::int64_t x = cost(a), y = cost(b);
    if (x != y) return x < y;
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  std::vector<std::size_t> partners;
  for (const auto& [partner, operations] : met) partners.push_back(partner);
  return partners;
}

}  // namespace lockstep::merge
