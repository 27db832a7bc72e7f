#pragma once
// Where a run comes from, as far as advice depends on it: what a program cannot do must not be advised.

#include <string>

#include "merge/timeline/timeline.h"

namespace lockstep::analysis {

struct Source {
  // Format of the traces that it was imported from ("kineto", "nsys"); empty: recorded by `lockstep run`, whose flags
  // can be advised for that alone.
  std::string imported;
  bool torch = false;  // The job used PyTorch, as its profiler or its hooks say.
};
Source SourceOf(const merge::Timeline& timeline);

}  // namespace lockstep::analysis
