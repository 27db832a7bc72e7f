#pragma once
// What a record needs of the thread that wrote it.

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/schema.h"
#include "trace/decode/tick_converter.h"

namespace lockstep::trace {

struct RecordContext {
  std::uint32_t thread;  // Row of threads.
  TickConverter& clock;
  const std::vector<std::uint32_t>& strings;  // The thread's id -> row of strings.

  std::uint32_t Text(std::uint32_t id) const { return id != 0 && id < strings.size() ? strings[id] : schema::kNone; }
};

template <typename Record>
Record LoadRecord(std::span<const std::byte> bytes) {
  Record record;
  std::memcpy(&record, bytes.data(), sizeof record);
  return record;
}

}  // namespace lockstep::trace
