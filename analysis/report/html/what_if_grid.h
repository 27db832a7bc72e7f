#pragma once
// Predicts the length of a step if several things were different at once: replays every combination of the sliders'
// positions.

#include "analysis/context.h"
#include "analysis/core/model.h"
#include "analysis/report/html/packed.h"

namespace lockstep::report {

// {"skipped": why} where nothing can be replayed. {"replayed_step_ns","self_error","axes":{"bandwidth":[..., null:
// free], "cap_mb":[null: as it is,...],"without":[[],[ranks]]},"points": packed columns, bandwidth slowest, without
// fastest; unknown: not answered}. How many combinations depends on the size of the job, not on the time it takes.
PageJson WhatIfGridOf(const analysis::Context& context, const analysis::Analysis& analysis);

}  // namespace lockstep::report
