#include "hang/sinks.h"

#include <algorithm>

namespace lockstep::hang {
namespace {

constexpr std::uint32_t kUnseen = UINT32_MAX;

// Tarjan's strongly connected components, without recursion: a job may have more ranks than a stack has room for.
class Components {
 public:
  explicit Components(const Waits& waits) : ranks_(static_cast<std::uint32_t>(waits.ranks.size())) {
    edges_.resize(ranks_ + waits.waits.size());
    for (std::uint32_t rank = 0; rank < ranks_; ++rank)
      if (!Gone(waits.ranks[rank].state))
        for (const std::uint32_t w : waits.of_rank[rank]) edges_[rank].push_back(ranks_ + w);
    for (std::uint32_t w = 0; w < waits.waits.size(); ++w) {
      const Wait& wait = waits.waits[w];
      if (wait.end != Wait::End::kPasses) continue;
      std::vector<std::uint32_t>& to = edges_[ranks_ + w];
      to.insert(to.end(), wait.missing.begin(), wait.missing.end());
      to.insert(to.end(), wait.lagging.begin(), wait.lagging.end());
      for (const std::uint32_t other : wait.behind) to.push_back(ranks_ + other);
    }
    index_.assign(edges_.size(), kUnseen);
    low_.resize(edges_.size());
    component_.assign(edges_.size(), kUnseen);
  }

  std::vector<std::vector<std::uint32_t>> Sinks() {
    // From the waits: a rank for which nobody waits is not to blame.
    for (std::uint32_t node = ranks_; node < edges_.size(); ++node)
      if (index_[node] == kUnseen) Search(node);
    std::vector<std::vector<std::uint32_t>> sinks;
    for (std::size_t c = 0; c < components_.size(); ++c) {
      const bool leaves = std::any_of(components_[c].begin(), components_[c].end(), [&](std::uint32_t node) {
        return std::any_of(edges_[node].begin(), edges_[node].end(),
                           [&](std::uint32_t to) { return component_[to] != c; });
      });
      if (leaves) continue;
      std::sort(components_[c].begin(), components_[c].end());
      sinks.push_back(components_[c]);
    }
    std::sort(sinks.begin(), sinks.end());
    return sinks;
  }

 private:
  struct Step {
    std::uint32_t node;
    std::size_t next;  // Edge.
  };

  void Visit(std::uint32_t node) {
    index_[node] = low_[node] = count_++;
    stack_.push_back(node);
    path_.push_back({node, 0});
  }

  void Search(std::uint32_t from) {
    Visit(from);
    while (!path_.empty()) {
      const std::uint32_t node = path_.back().node;
      if (path_.back().next < edges_[node].size()) {
        const std::uint32_t to = edges_[node][path_.back().next++];
        if (index_[to] == kUnseen) {
          Visit(to);
        } else if (component_[to] == kUnseen) {
          low_[node] = std::min(low_[node], index_[to]);
        }
        continue;
      }
      path_.pop_back();
      if (!path_.empty()) low_[path_.back().node] = std::min(low_[path_.back().node], low_[node]);
      if (low_[node] == index_[node]) Close(node);
    }
  }

  void Close(std::uint32_t node) {
    components_.emplace_back();
    std::uint32_t member = kUnseen;
    do {
      member = stack_.back();
      stack_.pop_back();
      component_[member] = static_cast<std::uint32_t>(components_.size() - 1);
      components_.back().push_back(member);
    } while (member != node);
  }

  std::uint32_t ranks_, count_ = 0;
  std::vector<std::vector<std::uint32_t>> edges_, components_;
  std::vector<std::uint32_t> index_, low_, component_, stack_;
  std::vector<Step> path_;
};

}  // namespace

std::vector<std::vector<std::uint32_t>> FindSinks(const Waits& waits) { return Components(waits).Sinks(); }

}  // namespace lockstep::hang
