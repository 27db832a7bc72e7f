#pragma once
// What the application called the part of its step that an operation of a replay belongs to.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/context.h"
#include "analysis/replayed/replayed_run.h"

namespace lockstep::analysis {

class EnclosingRanges {
 public:
  // Reads the ranges of the few ranks (positions in the replayed run) that have most time here; no others have names.
  EnclosingRanges(const Context& context, const ReplayedRun& replayed, const std::map<std::uint32_t, double>& of_rank);

  // Name of the innermost range of the training thread that most of it lies in, its category where it has none; "" if
  // it lies in none but a profiler's step, or the rank was not read.
  std::string Of(std::uint32_t operation) const;

 private:
  struct Range {
    std::int64_t begin_ns, end_ns;  // Rank clock.
    std::string name;
  };
  static const std::string* At(const std::vector<Range>& list, std::int64_t local_ns);

  const ReplayedRun& replayed_;
  std::map<std::uint32_t, std::vector<Range>> ranges_;               // By begin.
  std::map<std::uint32_t, std::vector<std::int64_t>> step_ends_ns_;  // Rank clock; [step]
};

}  // namespace lockstep::analysis
