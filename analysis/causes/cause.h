#pragma once
// A cause that a rank's own events show. Each has one file; the list is in causes.cc.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/causes/cost.h"
#include "analysis/causes/rank_events.h"
#include "analysis/context.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

class Cause {
 public:
  virtual ~Cause() = default;
  virtual void Prepare(std::size_t ranks) = 0;
  // Keeps what it needs of a rank, whose events are freed afterwards. A rank that recorded much comes a block at a
  // time, in order. Called concurrently for different i.
  virtual void Examine(std::size_t i, const RankEvents& events) = 0;
  // After that, once per rank: all of gpu_memory, the tables that a merge keeps, all stretches; perhaps no other
  // events. `device`: the rank's busiest, 0 of CPU ranks.
  virtual void ExamineMemory(std::size_t, const RankEvents&, std::uint16_t /*device*/) {}
  // Called after all ranks have been examined, in the order of the list.
  virtual void Report(const Context& context, Analysis& analysis) = 0;
};

// Evidence has Add(Evidence&&): joins what the next block of the same rank shows.
template <typename Evidence>
class CauseOf : public Cause {
 public:
  void Prepare(std::size_t ranks) override { found_.resize(ranks); }
  void Examine(std::size_t i, const RankEvents& events) override {
    std::optional<Evidence> evidence = EvidenceOf(events);
    if (!found_[i])
      found_[i] = std::move(evidence);
    else if (evidence)
      found_[i]->Add(std::move(*evidence));
  }

 protected:
  // Returns nothing if the rank contains no evidence either way.
  virtual std::optional<Evidence> EvidenceOf(const RankEvents& events) const = 0;
  std::optional<Evidence>& FoundOn(std::size_t i) { return found_[i]; }
  std::vector<const Evidence*> found() const {
    std::vector<const Evidence*> all;
    for (const auto& one : found_)
      if (one) all.push_back(&*one);
    return all;
  }

 private:
  std::vector<std::optional<Evidence>> found_;
};

// Adds sums by key.
template <typename Key, typename Sum>
void AddSums(std::map<Key, Sum>& to, const std::map<Key, Sum>& more) {
  for (const auto& [key, sum] : more) to[key] += sum;
}

#define LS_CAUSE(name) std::unique_ptr<Cause> Make##name();
#include "analysis/words/causes.inc"  // By CMake from rows LS_CAUSE of analysis/words/.
#undef LS_CAUSE

}  // namespace lockstep::analysis
