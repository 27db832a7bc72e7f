#pragma once
// The origin of a run, as far as advice depends on it: advice must be possible with that tool.

#include <string>
#include <string_view>

#include "merge/timeline/timeline.h"

namespace lockstep::analysis {

struct Source {
  // Format of the traces from which it was imported ("kineto", "nsys"); empty: recorded by `lockstep run`. Only then
  // its flags can be advised.
  std::string imported;
  bool torch = false;  // The job used PyTorch, as its profiler or its hooks show.
};
Source SourceOf(const merge::Timeline& timeline);

// Chooses advice for the job's program: `in_torch` for a job that uses PyTorch; both for one where that is not known
// (traces of Nsight Systems); else `general`.
std::string Advise(const Source& source, std::string_view general, std::string_view in_torch);
// How steps can be marked with the tool that recorded the run.
std::string ToMarkSteps(const Source& source);

}  // namespace lockstep::analysis
