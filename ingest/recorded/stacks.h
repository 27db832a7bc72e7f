#pragma once
// The stacks that an agent took while nothing moved.

#include <string_view>

#include "hang/progress.h"

namespace lockstep::recorded {

// `text`: as runtime/agent/hang/hang_stacks.h writes it; "" or anything else adds nothing.
void TakeStacks(std::string_view text, hang::RankFacts& facts);

}  // namespace lockstep::recorded
