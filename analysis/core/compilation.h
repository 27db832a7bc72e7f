#pragma once
// What torch.compile compiles: a range of that name per compilation (runtime/python/_lockstep/pauses.py).

#include <string_view>

namespace lockstep::analysis {

inline constexpr std::string_view kCompilation = "torch.compile";
inline constexpr const char* kCompileLess =
    "each new shape is compiled again: mark the dimensions that change (torch._dynamo.mark_dynamic, "
    "torch.compile(dynamic=True)), or pad inputs to few shapes";

}  // namespace lockstep::analysis
