#pragma once
// Examines a rank's events a block of steps at a time, so that memory does not grow with what it recorded.

#include <cstdint>
#include <functional>

#include "analysis/causes/rank_events.h"

namespace lockstep::analysis {

struct RankExaminer {
  std::function<void(const RankEvents& events)> events;  // For each block, in order.
  // Once, after that: as Cause::ExamineMemory.
  std::function<void(const RankEvents& events, std::uint16_t device)> memory;
};

// A rank of at most `block_rows` rows is one block and read as a whole. So is one whose events cannot be told apart by
// steps: a run without steps, a rank with kernels on several devices, windows without known ends. A step is never
// divided. Whatever the blocks are, the causes find the same: a block is read with an eighth of its length, and two
// steps, more on both sides, and what lasts into it; and it has kernels, operators, forward passes and waits of streams
// if the rank has. Only whether a range encloses the model's run
// (analysis/gpu/model_ranges.h) is decided for each block by what is in it. Does nothing if the rank cannot be read.
void ExamineRank(const Context& context, const tables::ViewIndex& index, std::int32_t rank, std::uint64_t block_rows,
                 const RankExaminer& examiner);

}  // namespace lockstep::analysis
