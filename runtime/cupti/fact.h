#pragma once
// Writes a fact (core/fact.h) of the GPU sources into the calling thread's ring.

#include <string.h>

#include "core/ring_writer.h"

namespace lockstep::cupti {

// "name\tkey=value..."; cut at 1 KiB. Dropped and counted if the ring has no space. Thread: any.
inline void EmitFact(const char* text) {
  struct {
    StringRecord record;
    char text[1024];
  } fact{};
  const auto bytes = static_cast<std::uint32_t>(strnlen(text, sizeof fact.text));
  const auto slots = static_cast<std::uint16_t>(1 + (bytes + kSlotBytes - 1) / kSlotBytes);
  fact.record = {{RecordKind::kFact, 0, slots}, 0, bytes, {}};
  memcpy(fact.text, text, bytes);
  if (ring::Page() != nullptr) lockstep_emit_slow(&fact, slots, 1);
}

}  // namespace lockstep::cupti
