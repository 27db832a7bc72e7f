#pragma once
// What a run of polls is in a ring: the records that the probe writes when it ends, and the decoder makes of one that
// its process did not end.

#include <algorithm>
#include <cstdint>

#include "core/ring_layout.h"

namespace lockstep {

// write(first, slots) gets each kPoll record with the kCompletion records that belong to it. `polls` may be damaged.
inline constexpr std::uint64_t kMostPollCalls = std::uint64_t{1} << 40;  // Half a day of 40 ns each; more is damage.
template <typename Write>
void WritePolls(const OpenPolls& polls, Write&& write) {
  struct {
    PollRecord poll;
    CompletionRecord pending[kPollRows + kPollHandles];
  } batch;
  const std::uint32_t rows = std::min(polls.rows, kPollRows);
  const auto op_of = [](const OpenPolls::Row& row) { return row.op_and_request & kPollOpMask; };
  double inside_ticks = 0, done_ticks = 0;
  for (std::uint32_t i = 0; i < rows; ++i) inside_ticks += static_cast<double>(polls.row[i].inside_ticks);
  std::uint64_t begin_ticks = polls.first_ticks;
  for (std::uint32_t i = 0; i < rows; ++i) {
    const std::uint64_t op = op_of(polls.row[i]);
    if (std::any_of(polls.row, polls.row + i, [&](const auto& row) { return op_of(row) == op; })) continue;
    std::uint64_t calls = 0;
    std::uint32_t pending = 0;
    std::uint8_t flags = 0;
    const auto add = [&](std::uint64_t request, std::uint64_t last_ticks) {
      if (pending == std::size(batch.pending)) return;
      batch.pending[pending] = {{RecordKind::kCompletion, kCompletionPending, 1}, -1, request, last_ticks, -1, pending};
      ++pending;
    };
    for (std::uint32_t j = i; j < rows; ++j) {
      const OpenPolls::Row& row = polls.row[j];
      if (op_of(row) != op) continue;
      calls += row.calls;
      done_ticks += static_cast<double>(row.inside_ticks);
      if (row.handles == 0 && row.op_and_request == op) flags = kPollUntold;
      if (row.handles == 0 && row.op_and_request != op) add(row.op_and_request >> kPollOpBits, row.last_ticks);
      for (std::uint32_t k = 0; k < row.handles && row.first_handle + k < kPollHandles; ++k)
        add(polls.handle[row.first_handle + k], row.last_ticks);
    }
    const double part = inside_ticks > 0 ? std::min(1.0, done_ticks / inside_ticks) : 1;
    const std::uint64_t end_ticks =
        polls.first_ticks +
        static_cast<std::uint64_t>(
            part * static_cast<double>(std::max(polls.last_ticks, polls.first_ticks) - polls.first_ticks));
    calls = std::min(calls, kMostPollCalls);
    // A run of one request needs no other record.
    const bool single = rows == 1 && polls.row[0].handles == 0;
    if (single) pending = 0;
    for (; calls > UINT32_MAX; calls -= UINT32_MAX) {
      batch.poll = {{RecordKind::kPoll, flags, 1}, UINT32_MAX, begin_ticks, begin_ticks, op};
      write(&batch, 1u);
    }
    batch.poll = {{RecordKind::kPoll, flags, 1},
                  static_cast<std::uint32_t>(calls),
                  begin_ticks,
                  end_ticks,
                  single ? polls.row[0].op_and_request : op};
    write(&batch, 1 + pending);
    begin_ticks = end_ticks;
  }
}

}  // namespace lockstep
