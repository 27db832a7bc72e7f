#pragma once
// Processes that merge one run together (lockstep-merge-mpi). Each reads its share of the ranks' files
// and learns what the others found; each breaks down its own ranks and writes its part of the
// timeline.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::merge {

// All processes call the same functions in the same order.
class MergeTeam {
 public:
  virtual ~MergeTeam() = default;
  virtual unsigned index() const = 0;
  virtual unsigned count() const = 0;
  // Every process's bytes, by index.
  virtual std::vector<std::string> Share(const std::string& bytes) = 0;
};

// Whether item i belongs to this process; without a team all items do.
inline bool IsMine(const MergeTeam* team, std::size_t i) {
  return team == nullptr || i % team->count() == team->index();
}

}  // namespace lockstep::merge
