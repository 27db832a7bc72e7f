#pragma once
// Where ranks stand, in words: of a stack only what says something to who wrote the job.

#include <cstdint>
#include <vector>

#include "analysis/words/clause.h"
#include "hang/progress.h"

namespace lockstep::hang {

// "collate, train.py:88"; "clock_nanosleep, libc.so.6".
analysis::Clause SayFrame(const Frame& frame);
// The same as a line below others.
analysis::Clause SayFrameOfStack(const Frame& frame);

// The main thread, or the only one; null: its stack is not known.
const Thread* MainThread(const RankFacts& facts);

// Innermost first: the innermost frame, the library's function that the job's own code has called, and the job's own
// code; of a thread that runs none of that, whatever is innermost. At most `most`.
std::vector<Frame> FramesThatMatter(const Thread& thread, std::size_t most);

// The innermost frame of the job's own code, or the innermost of Python's; null if neither is there.
const Frame* PlaceOf(const RankFacts& facts);

// A line for each stack that several of these ranks have alike: "7 others: MPI_Allreduce <- reduce <- main,
// train.cc:88". `others`: they are told after somebody. What is not known is left out.
std::vector<analysis::Clause> BriefStacks(const Progress& progress, const std::vector<std::int32_t>& ranks,
                                          bool others);

// Of a thread that waits for a lock: who has it and, if that is known, where it is, by at most `most` frames. Who waits
// for a lock does nothing; who has it may.
std::vector<analysis::Clause> HolderOf(const RankFacts& facts, const Thread& thread, std::size_t most);

}  // namespace lockstep::hang
