#pragma once
// The agent's samples of stacks, as rows.

#include <cstdint>
#include <span>
#include <vector>

#include "core/schema.h"
#include "core/spool_layout.h"
#include "trace/decode/process_decoder.h"
#include "trace/decode/spool_contents.h"
#include "trace/decode/tick_converter.h"

namespace lockstep::trace {

// Adds the samples of one process's threads, and of `frames` (of the whole slot) what they need. Returns how many were
// left out because their stack is not there.
std::uint64_t AddStackSamples(ProcessDecoder& decoder, schema::RankTables& tables, const TickMap& map,
                              std::span<const SpoolFrame> frames, std::span<const SpoolStackSample> samples);

}  // namespace lockstep::trace
