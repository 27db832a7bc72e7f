#pragma once
// Times of NCCL's kernel channels (--nccl-kernel-channels) on the rank clock.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "trace/nccl/decode_nccl.h"

namespace lockstep::trace {

// The GPU's global timer beside the rank clock: NCCL hands over each reading some time after it was taken,
// so a reading's host time minus its value is too large by that delay, and the smallest one near a reading is
// the best known. Within 3 s the two clocks drift apart by less than the delays.
class NcclChannels {
 public:
  struct Reading {
    std::uint64_t timer_ns;
    std::int64_t host_ns;
  };
  // `events` of all kinds, with their ends.
  explicit NcclChannels(std::span<const NcclEventRow> events);

  // From the first channel's begin to the last one's end of what the operation `id` launched; false: none known.
  bool TimesOf(std::uint64_t id, std::int64_t& begin_ns, std::int64_t& end_ns) const;

 private:
  bool ToRankClock(std::uint64_t timer_ns, std::int64_t& ns) const;
  struct Times {
    std::uint64_t first = UINT64_MAX, last = 0;
  };
  std::unordered_map<std::uint64_t, Times> of_;
  std::unordered_map<std::uint64_t, std::int64_t> delay_;  // Smallest host time minus timer, by second of the timer.
};

}  // namespace lockstep::trace
