#pragma once
// What the agent found out about stacks, as rows.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/schema.h"
#include "core/spool_layout.h"
#include "trace/decode/process_decoder.h"
#include "trace/decode/spool_contents.h"
#include "trace/decode/tick_converter.h"

namespace lockstep::trace {

// Makes rows of one process's table `stacks` out of the tree of frames in its slot's spool, each once. The frames must
// outlive it.
class StackRows {
 public:
  StackRows(ProcessDecoder& decoder, schema::Stacks& stacks, std::span<const SpoolFrame> frames);
  // Of a frame and, before it, of those that called it. kNone: not all of them are known.
  std::uint32_t RowOf(std::uint32_t number);

 private:
  ProcessDecoder& decoder_;
  schema::Stacks& stacks_;
  std::unordered_map<std::uint32_t, const SpoolFrame*> frames_;
  std::unordered_map<std::uint32_t, std::uint32_t> rows_;
};

// Rows by the number of a CallStackRecord of this process; those that are not known are left out.
std::unordered_map<std::uint32_t, std::uint32_t> CallStackRows(StackRows& rows, const SpoolKey& process,
                                                               std::span<const SpoolCallStack> call_stacks);

// Adds the samples of one process's threads. Returns how many were left out because their stack is not there.
std::uint64_t AddStackSamples(StackRows& rows, schema::RankTables& tables, const TickMap& map,
                              std::span<const SpoolStackSample> samples);

}  // namespace lockstep::trace
