#pragma once
// Where a run comes from, as far as advice depends on it: what a program cannot do must not be advised.

#include <string>
#include <string_view>

#include "merge/timeline/timeline.h"

namespace lockstep::analysis {

struct Source {
  // Format of the traces that it was imported from ("kineto", "nsys"); empty: recorded by `lockstep run`, whose flags
  // can be advised for that alone.
  std::string imported;
  bool torch = false;  // The job used PyTorch, as its profiler or its hooks say.
};
Source SourceOf(const merge::Timeline& timeline);

// What to do, in words that the job's program has: `in_torch` of a job that uses PyTorch; of one of which that is not
// known (traces of Nsight Systems) both; else `general`.
std::string Advise(const Source& source, std::string_view general, std::string_view in_torch);
// How steps are marked, by what recorded the run.
std::string ToMarkSteps(const Source& source);

}  // namespace lockstep::analysis
