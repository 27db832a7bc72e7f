#pragma once
// Of a run without steps: the rank without which it would be shortest. One replay of all that was recorded says what a
// rank costs, wherever its lateness shows and however often it was late.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "analysis/communication/awaited.h"
#include "analysis/context.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

struct CostliestRank {
  std::size_t position = 0;
  AwaitedTime awaited;  // Of all ranks.
};
// Nothing if none costs `limit_ns` and twice as much as any other, or if the rank works longer by what pieces of work
// differ by chance; and where the run has steps, a rank is named already, or the replay does not hold.
std::optional<CostliestRank> CostliestRankOf(const Context& context, const Analysis& analysis, double limit_ns);

}  // namespace lockstep::analysis
