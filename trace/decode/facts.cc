// Facts that hooks inside the application report, and samples of memory.

#include <string>

#include "core/data_type_name.h"
#include "core/fact.h"
#include "trace/decode/process_decoder.h"
#include "trace/decode/spool_contents.h"

namespace lockstep::trace {

void ProcessDecoder::OnFact(Thread& thread, std::span<const std::byte> bytes) {
  if ((LoadRecord<StringRecord>(bytes).head.flags & 1) != 0) ++thread.cut_texts;
  const std::string_view line = RecordText(bytes), name = FactName(line);
  if (name.empty()) {
    ++unknown_records_;
  } else if (name == "ddp_bucket") {
    const std::string_view parameters = FactValue(line, "parameters");
    tables_.gradient_buckets.Append({.model = static_cast<std::uint32_t>(Number(FactValue(line, "model"))),
                                     .bucket = static_cast<std::uint32_t>(Number(FactValue(line, "bucket"))),
                                     .bytes = Number(FactValue(line, "bytes")),
                                     .cap_bytes = Number(FactValue(line, "cap")),
                                     .dtype = schema::Code(DataTypeNamed(FactValue(line, "dtype"))),
                                     .parameters = parameters.empty() ? schema::kNone : Intern(parameters),
                                     .rebuilt = FactValue(line, "rebuilt") == "1"});
  } else if (name == "python_isolated") {
    AddLoss(Loss::kPythonIsolated, 1);
  } else if (name == "torch_unhooked") {
    AddLoss(Loss::kTorchUnhooked, 1, FactValue(line, "what"));
  } else if (name == "torch_hook_missing") {
    AddLoss(Loss::kTorchHook, 1, std::string(FactValue(line, "part")) + ": " + std::string(FactValue(line, "why")));
  } else {
    if (name == "mpi_unrecorded")
      AddLoss(Loss::kBackendNotCaptured, 1,
              std::string(FactValue(line, "library")) + ": " +
                  (FactValue(line, "why").empty() ? "this Lockstep has no wrappers for it"
                                                  : std::string(FactValue(line, "why"))));
    const std::uint32_t nth = ++facts_[std::string(name)];
    std::string key = "fact." + std::string(name);
    if (nth > 1) key += "." + std::to_string(nth);
    AddFact(key, FactRest(line));
  }
}

void ProcessDecoder::OnMemory(Thread& thread, const MemoryRecord& record) {
  const std::int64_t ns = thread.clock.Ns(record.ticks);
  thread.life.Cover(ns, ns);
  tables_.gpu_memory.Append({.time_ns = ns,
                             .kind = static_cast<std::uint8_t>(record.head.flags),
                             .device = static_cast<std::uint16_t>(record.device),
                             .address = 0,
                             .bytes = 0,
                             .allocated_bytes = record.allocated_bytes,
                             .reserved_bytes = record.reserved_bytes,
                             .name = schema::kNone});
}

}  // namespace lockstep::trace
