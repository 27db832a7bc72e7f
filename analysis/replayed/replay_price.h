#pragma once
// What a step gains without one of the host's own causes, by replay.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/context.h"
#include "analysis/replay/questions/what_if.h"

namespace lockstep::analysis {

struct ReplayPrice {
  std::int64_t gain_ns = 0;                                       // Per step: mean of the paired differences.
  std::optional<std::pair<std::int64_t, std::int64_t>> interval;  // 95 %; none of few steps.
  std::int64_t steps = 0;                                         // That were compared.
};

// Without the time in ranges of `category` (ranges.category) on the training threads, of each rank and step no more
// than the rank in the middle has of it: what one rank has beyond that is that rank's lateness, and priced there. CPU
// ranks only: nothing where nothing can be replayed or the replay's times cannot be laid over the recorded ones.
std::optional<replay::Question> WithoutRanges(const Context& context, std::uint8_t category);
std::optional<ReplayPrice> PriceWithoutRanges(const Context& context, std::uint8_t category);

// If these ranks had no more input in any step than the others have (lower median). CPU ranks only, as above.
std::optional<replay::Question> WithoutMoreInput(const Context& context, const std::vector<std::int32_t>& ranks);

// If no host thread waited for its GPU: syncs and blocking copies return at once. GPU ranks.
std::optional<replay::Question> WithoutSyncs(const Context& context);
std::optional<ReplayPrice> PriceWithoutSyncs(const Context& context);

}  // namespace lockstep::analysis
