#pragma once
// What torch.compile compiles: a range of that name per compilation (runtime/python/_lockstep/pauses.py).

#include <string_view>

namespace lockstep::analysis {

inline constexpr std::string_view kCompilation = "torch.compile";

}  // namespace lockstep::analysis
