#include "comms/nccl/names.h"

#include <string.h>
#include <unistd.h>

namespace lockstep::nccl {
namespace {

// Untouched pages cost nothing.
constinit RingMemory g_memory[kMaxRings] = {};

}  // namespace

CollectiveKind FunctionOf(const char* name) {
  if (name == nullptr) return CollectiveKind::kNone;
  const auto is = [&](const char* text) { return strcmp(name, text) == 0; };
  switch (name[0]) {
    case 'A':
      if (is("AllReduce")) return CollectiveKind::kAllReduce;
      if (is("AllGather") || is("AllGatherV")) return CollectiveKind::kAllGather;
      if (is("AlltoAll") || is("AllToAll") || is("AlltoAllv")) return CollectiveKind::kAllToAll;
      break;
    case 'B':
      if (is("Broadcast") || is("Bcast")) return CollectiveKind::kBroadcast;
      if (is("Barrier")) return CollectiveKind::kBarrier;
      break;
    case 'R':
      if (is("ReduceScatter")) return CollectiveKind::kReduceScatter;
      if (is("Reduce")) return CollectiveKind::kReduce;
      if (is("Recv")) return CollectiveKind::kSendRecv;
      break;
    case 'S':
      if (is("Send") || is("SendRecv")) return CollectiveKind::kSendRecv;
      if (is("Scatter")) return CollectiveKind::kScatter;
      break;
    case 'G':
      if (is("Gather")) return CollectiveKind::kGather;
      break;
    default:
      break;
  }
  return CollectiveKind::kNone;
}

std::uint8_t DirectionOf(const char* name) {
  if (name != nullptr && strcmp(name, "Send") == 0) return 0;
  return name != nullptr && strcmp(name, "Recv") == 0 ? 1 : 2;
}

DataType TypeOf(const char* name) {
  if (name == nullptr) return DataType::kUnknown;
  if (strncmp(name, "nccl", 4) == 0) name += 4;
  const auto is = [&](const char* text) { return strcmp(name, text) == 0; };
  switch (name[0]) {
    case 'F':
      if (is("Float32") || is("Float")) return DataType::kFloat32;
      if (is("Float16")) return DataType::kFloat16;
      if (is("Float64")) return DataType::kFloat64;
      if (is("Float8e4m3")) return DataType::kFloat8e4m3;
      if (is("Float8e5m2")) return DataType::kFloat8e5m2;
      break;
    case 'B':
      if (is("Bfloat16")) return DataType::kBfloat16;
      break;
    case 'I':
      if (is("Int8")) return DataType::kInt8;
      if (is("Int32") || is("Int")) return DataType::kInt32;
      if (is("Int64")) return DataType::kInt64;
      break;
    case 'U':
      if (is("Uint8")) return DataType::kUint8;
      if (is("Uint32")) return DataType::kUint32;
      if (is("Uint64")) return DataType::kUint64;
      break;
    case 'H':
      if (is("Half")) return DataType::kFloat16;
      break;
    case 'D':
      if (is("Double")) return DataType::kFloat64;
      break;
    case 'C':
      if (is("Char")) return DataType::kInt8;
      break;
    default:
      break;
  }
  return DataType::kUnknown;
}

RingMemory& MemoryOf(const RingPage& page) {
  const std::uint32_t index = page.producer.ring_index % kMaxRings;
  const SegmentView view{reinterpret_cast<std::byte*>(lockstep_probe.segment), lockstep_probe.segment_bytes};
  // A forked child's ring may have the number of a ring of the parent. Only generations, which grow, distinguish
  // owners.
  const std::uint64_t owner = std::uint64_t{view.rings()[index].generation} + 1;
  RingMemory& memory = g_memory[index];
  if (memory.owner != owner) [[unlikely]] {
    memset(static_cast<void*>(&memory), 0, sizeof memory);
    memory.owner = owner;
  }
  return memory;
}

std::uint32_t NameId(RingMemory& memory, const char* text) {
  if (text == nullptr) return 0;
  RingMemory::Name& name = memory.names[(reinterpret_cast<std::uintptr_t>(text) * 0x9e3779b97f4a7c15u) >> 60];
  if (name.at == text && strcmp(name.text, text) == 0) [[likely]]
    return name.id;
  const std::uint32_t id = lockstep_intern(text);
  const std::size_t bytes = strnlen(text, sizeof name.text);
  if (id == 0 || bytes == sizeof name.text) return id;
  name.at = text;
  name.id = id;
  memcpy(name.text, text, bytes + 1);
  return id;
}

}  // namespace lockstep::nccl
