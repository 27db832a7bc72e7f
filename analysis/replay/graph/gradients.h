#pragma once
// The sizes of a model's gradients, as reported by the program or PyTorch's hooks (core/fact.h).

#include <vector>

#include "analysis/replay/graph/bucket_rule.h"
#include "merge/timeline/timeline.h"

namespace lockstep::replay {

// One list per model, in the order in which gradients become ready.
std::vector<std::vector<Gradient>> GradientsOf(const merge::Timeline& timeline);

// Whether buckets of these sizes can consist of the gradients: each ends with a gradient, and none remains.
bool MakeUp(const std::vector<Gradient>& gradients, const std::vector<std::uint64_t>& bucket_bytes);

}  // namespace lockstep::replay
