#pragma once
// Which of a run's steps are replayed.

#include <cstddef>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

// Rows of steps that are usable, consecutive in number: the longest stretch, its last ones.
std::vector<std::size_t> ChooseSteps(const schema::TlSteps& steps, const ReadRunOptions& options);

}  // namespace lockstep::replay
