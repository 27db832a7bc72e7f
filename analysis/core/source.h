#pragma once
// The origin of a run, as far as advice depends on it: advice must be possible with that tool.

#include <string>

#include "analysis/words/clause.h"
#include "merge/timeline/timeline.h"

namespace lockstep::analysis {

struct Source {
  // Format of the traces from which it was imported ("kineto", "nsys"); empty: recorded by `lockstep run`. Only then
  // its flags can be advised.
  std::string imported;
  bool nsys = false;   // By Nsight Systems.
  bool torch = false;  // The job used PyTorch, as its profiler, its hooks or its kernels show.
  bool other = false;  // It did not, as its kernels show.
};
Source SourceOf(const merge::Timeline& timeline);

// Chooses advice for the job's program: `in_torch` for a job that uses PyTorch; both for one where that is not known
// (traces of Nsight Systems without kernels); else `general`.
Clauses Advise(const Source& source, Word general, Word in_torch);
// How steps can be marked with the tool that recorded the run.
Clause ToMarkSteps(const Source& source);

}  // namespace lockstep::analysis
