#pragma once
// torch.profiler marks each step by a range of its own name, "ProfilerStep#12".

#include <string_view>

namespace lockstep::analysis {

// Such a range says of what is in it only the step, which is known; and by its number it differs from step to step, so
// that what recurs in every step would have another name each time. The host may be a step ahead of the GPU.
inline bool IsProfilerStep(std::string_view range) { return range.starts_with("ProfilerStep#"); }

}  // namespace lockstep::analysis
