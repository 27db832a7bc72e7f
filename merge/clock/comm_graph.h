#pragma once
// Finds which domains can be related through collectives: domains are tied by the
// communicators on which they have common operations. Fitting one domain after another along
// these ties makes a spanning tree; errors add up along it, so the path with the smallest
// error is taken.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::merge {

struct AlignRank;

class CommGraph {
 public:
  // `domains`: the ranks of each domain.
  explicit CommGraph(const std::vector<std::vector<const AlignRank*>>& domains);

  // Number of the component each domain is in: the lowest domain of it.
  std::vector<std::size_t> Components() const;

  // Per communicator the mapped members that are worth comparing with. `errors`: of each domain's map, negative if it
  // has none yet.
  class Mapped {
   public:
    Mapped(const CommGraph& graph, const std::vector<std::int64_t>& errors);
    // Best first; a few per communicator, or with `all` every one of them. Empty: nothing in common.
    std::vector<std::size_t> Partners(std::size_t domain, bool all) const;

   private:
    const CommGraph& graph_;
    const std::vector<std::int64_t>& errors_;
    std::vector<std::vector<std::uint32_t>> by_comm_;  // Mapped members by error.
  };

 private:
  struct Tie {
    std::uint32_t comm;
    std::uint64_t operations;
  };
  std::vector<std::vector<Tie>> ties_;               // Per domain.
  std::vector<std::vector<std::uint32_t>> members_;  // Per communicator, by domain.
};

}  // namespace lockstep::merge
