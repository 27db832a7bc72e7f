// Facts that hooks inside the application report, and samples of memory.

#include "trace/process_decoder.h"

namespace lockstep {

void ProcessDecoder::OnFact(Thread& thread, std::span<const std::byte> bytes) {
  if ((LoadRecord<StringRecord>(bytes).head.flags & 1) != 0) ++thread.cut_texts;
}

void ProcessDecoder::OnMemory(Thread& thread, const MemoryRecord& record) {
  const std::int64_t ns = thread.clock.Ns(record.ticks);
  Touch(thread, ns, ns);
  tables_.gpu_memory.Append({.time_ns = ns,
                             .kind = static_cast<std::uint8_t>(record.head.flags),
                             .device = static_cast<std::uint16_t>(record.device),
                             .address = 0,
                             .bytes = 0,
                             .allocated_bytes = record.allocated_bytes,
                             .reserved_bytes = record.reserved_bytes,
                             .name = schema::kNone});
}

}  // namespace lockstep
