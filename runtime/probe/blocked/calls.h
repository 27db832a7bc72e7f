#pragma once
// What was found out about a call that took long, and its record.

#include <cstdint>

#include "core/blocked_calls.h"
#include "core/schema_enums.h"
#include "runtime/probe/blocked/watch.h"

namespace lockstep::probe {

// schema::BlockedKind, or that of the descriptor.
inline constexpr std::uint8_t kByDescriptor = 255;

struct BlockedWait {
  BlockedCall call;
  std::uint8_t kind;
  bool timed_out;
  const void* caller;  // Return address.
  Wait wait;
};
void WriteBlocked(const BlockedWait& blocked);

// Which locks are tried first: those whose two functions are of one library. Another preloaded library that follows
// locks, but not tries, would see an unlock without its lock.
void ChooseTries();

}  // namespace lockstep::probe
