#include "trace/decode/decode_stacks.h"

#include "trace/decode/sort_rows.h"

namespace lockstep::trace {

using schema::kNone;

StackRows::StackRows(ProcessDecoder& decoder, schema::Stacks& stacks, std::span<const SpoolFrame> frames)
    : decoder_(decoder), stacks_(stacks) {
  for (const SpoolFrame& frame : frames) frames_.emplace(frame.number, &frame);
}

std::uint32_t StackRows::RowOf(std::uint32_t number) {
  std::vector<const SpoolFrame*> missing;
  std::uint32_t row = kNone;
  while (number != 0) {
    if (const auto known = rows_.find(number); known != rows_.end()) {
      row = known->second;
      break;
    }
    const auto frame = frames_.find(number);
    // A caller has the lower number: damage must not make a ring of them.
    if (frame == frames_.end() || frame->second->parent >= number) return kNone;
    missing.push_back(frame->second);
    number = frame->second->parent;
  }
  for (; !missing.empty(); missing.pop_back()) {
    const SpoolFrame& frame = *missing.back();
    stacks_.Append({.parent = row,
                    .function = decoder_.Intern(frame.function),
                    .file = frame.file.empty() ? kNone : decoder_.Intern(frame.file),
                    .line = frame.line,
                    .python = frame.python,
                    .library = frame.library});
    row = static_cast<std::uint32_t>(stacks_.rows() - 1);
    rows_.emplace(frame.number, row);
  }
  return row;
}

std::unordered_map<std::uint32_t, std::uint32_t> CallStackRows(StackRows& rows, const SpoolKey& process,
                                                               std::span<const SpoolCallStack> call_stacks) {
  std::unordered_map<std::uint32_t, std::uint32_t> by_number;
  for (const SpoolCallStack& each : call_stacks) {
    if (SpoolKey(each.process, each.process_generation) != process) continue;
    if (const std::uint32_t row = rows.RowOf(each.stack); row != kNone) by_number[each.number] = row;
  }
  return by_number;
}

std::uint64_t AddStackSamples(StackRows& rows, schema::RankTables& tables, const TickMap& map,
                              std::span<const SpoolStackSample> samples) {
  TickConverter clock(map);
  std::unordered_map<std::int64_t, std::uint32_t> threads;
  for (std::size_t i = 0; i < tables.threads.rows(); ++i)
    threads.emplace(tables.threads.tid[i], tables.threads.thread[i]);
  std::uint64_t unknown = 0;
  for (const SpoolStackSample& sample : samples) {
    const std::uint32_t stack = rows.RowOf(sample.stack);
    if (stack == kNone && sample.stack != 0) {
      ++unknown;
      continue;
    }
    const auto thread = threads.find(sample.tid);
    tables.samples.Append({.time_ns = clock.Ns(sample.ticks),
                           .thread = thread == threads.end() ? kNone : thread->second,
                           .stack = stack,
                           .stopped_ns = sample.stopped_ns});
  }
  SortRows(tables.samples, tables.samples.time_ns);
  return unknown;
}

}  // namespace lockstep::trace
