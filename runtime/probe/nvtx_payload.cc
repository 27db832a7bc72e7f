// NVTX's payload extension: ranges and marks that carry a struct, described by a schema that was registered before. One
// number of it is kept, the first.
//
// NCCL's payloads are known and read completely: nvtx_nccl.cc.

#include <string.h>

#include "core/hash.h"
#include "runtime/probe/nvtx.h"
#include "runtime/probe/ring.h"

namespace lockstep::probe {
namespace {

// Bytes of a number of the type, 0 if it is none; bit 7: signed, bit 6: floating point.
constexpr std::uint32_t kSigned = 0x80, kFloating = 0x40, kBytesMask = 0x3f;
std::uint32_t NumberType(std::uint64_t type) {
  static constexpr std::uint8_t kIntegers[] = {sizeof(char) | kSigned,
                                               sizeof(char),
                                               sizeof(short) | kSigned,
                                               sizeof(short),
                                               sizeof(int) | kSigned,
                                               sizeof(int),
                                               8 | kSigned,
                                               sizeof(unsigned long),
                                               8 | kSigned,
                                               sizeof(unsigned long long),
                                               1 | kSigned,
                                               1,
                                               2 | kSigned,
                                               2,
                                               4 | kSigned,
                                               4,
                                               8 | kSigned,
                                               8};
  static_assert(sizeof kIntegers == nvtx::kEntryUint64 && sizeof(long) == 8);
  if (type >= nvtx::kEntryChar && type <= nvtx::kEntryUint64) return kIntegers[type - 1];
  if (type == nvtx::kEntryFloat) return 4 | kFloating;
  if (type == nvtx::kEntryDouble) return 8 | kFloating;
  if (type == nvtx::kEntrySize || type == nvtx::kEntryAddress) return 8;
  return 0;
}

// Bytes that an entry takes in the struct, 0 unknown.
std::uint32_t BytesOf(const nvtx::SchemaEntry& entry) {
  if ((entry.flags & 2) != 0) return sizeof(void*);
  if ((entry.flags & nvtx::kEntryNotInPlace) != 0) return 0;
  if (entry.type >= nvtx::kEntryCstring && entry.type <= nvtx::kEntryRegisteredString) return sizeof(void*);
  return NumberType(entry.type) & kBytesMask;
}

// NvtxName::value of a schema: 1 << 31 | offset << 8 | NumberType of its number, 0 none.
constexpr std::uint32_t kHasNumber = 1u << 31;
std::uint32_t FindNumber(const nvtx::SchemaAttributes& schema) {
  if ((schema.valid & nvtx::kSchemaHasEntries) == 0 || schema.entries == nullptr) return 0;
  const std::size_t count = (schema.valid & nvtx::kSchemaHasCount) != 0 ? schema.entries_count : 0;
  const std::uint64_t pack = (schema.valid & nvtx::kSchemaHasPackAlign) != 0 ? schema.pack_align : 0;
  std::uint32_t floating = 0;
  std::uint64_t at = 0;
  bool known = true;  // Whether `at` is valid: after an entry of unknown size only explicit offsets are.
  for (std::size_t i = 0; i < count && i < 256; ++i) {
    const nvtx::SchemaEntry& entry = schema.entries[i];
    const std::uint32_t bytes = BytesOf(entry);
    if (entry.offset != 0) {
      at = entry.offset;
      known = true;
    } else if (known && bytes != 0) {
      const std::uint64_t align = pack != 0 && pack < bytes ? pack : bytes;
      at = (at + align - 1) / align * align;
    }
    const std::uint32_t number = (entry.flags & nvtx::kEntryNotInPlace) != 0 ? 0 : NumberType(entry.type);
    if (known && number != 0 && at < (1u << 22)) {
      const std::uint32_t value = kHasNumber | static_cast<std::uint32_t>(at) << 8 | number;
      if ((number & kFloating) == 0) return value;
      if (floating == 0) floating = value;
    }
    known = known && bytes != 0;
    at += bytes;
  }
  return floating;
}

std::uint64_t SchemaKey(const NvtxName* domain, std::uint64_t schema) {
  Hash64 hash;
  hash.Add(DomainNumber(domain));
  hash.Add(schema);
  return hash.value();
}

NvtxPayload NumberAt(const nvtx::PayloadData& payload, std::uint32_t offset, std::uint32_t type) {
  const std::uint32_t bytes = type & kBytesMask;
  if (payload.data == nullptr || (payload.bytes != SIZE_MAX && payload.bytes < offset + bytes)) return {};
  const char* from = static_cast<const char*>(payload.data) + offset;
  if ((type & kFloating) != 0) {
    double number = 0;
    float narrow = 0;
    memcpy(bytes == 4 ? static_cast<void*>(&narrow) : &number, from, bytes);
    if (bytes == 4) number = static_cast<double>(narrow);
    NvtxPayload result{0, 2};
    memcpy(&result.value, &number, sizeof number);
    return result;
  }
  std::uint64_t bits = 0;
  memcpy(&bits, from, bytes);  // Little-endian.
  if ((type & kSigned) != 0 && bytes < 8 && (bits >> (8 * bytes - 1)) != 0) bits |= ~std::uint64_t{0} << (8 * bytes);
  return {static_cast<std::int64_t>(bits), 1};
}

NvtxEvent PayloadEvent(const NvtxName* domain, const nvtx::PayloadData* data, std::size_t count) {
  NvtxEvent event;
  event.text = PayloadText(domain, data, count);
  event.payload = ReadPayload(domain, data, count);
  event.nccl = ReadNccl(domain, data, count);
  return event;
}

// What NVTX calls.
std::uint64_t SchemaRegister(NvtxName* domain, const nvtx::SchemaAttributes* schema) {
  static constinit std::atomic<std::uint64_t> dynamic{nvtx::kFirstDynamicSchema};
  if (schema == nullptr) return 0;
  const bool own = (schema->valid & nvtx::kSchemaHasId) != 0 && schema->id != 0;
  const std::uint64_t id = own ? schema->id : dynamic.fetch_add(1, std::memory_order_relaxed);
  const char* name = (schema->valid & nvtx::kSchemaHasName) != 0 ? schema->name : nullptr;
  NvtxNameOf(NvtxTable::kSchemas, SchemaKey(domain, id), name, FindNumber(*schema));
  return id;
}
std::uint64_t EnumRegister(NvtxName*, const void*) {
  static constinit std::atomic<std::uint64_t> next{nvtx::kFirstDynamicSchema << 1};
  return next.fetch_add(1, std::memory_order_relaxed);
}
void MarkPayload(NvtxName* domain, const nvtx::PayloadData* data, std::size_t count) {
  NvtxMark(domain, PayloadEvent(domain, data, count));
}
int PushPayload(NvtxName* domain, const nvtx::PayloadData* data, std::size_t count) {
  return NvtxPush(domain, PayloadEvent(domain, data, count));
}
int PopPayload(NvtxName* domain, const nvtx::PayloadData* data, std::size_t count) {
  LearnNccl(domain, data, count);
  return NvtxPop(domain);
}
std::uint64_t StartPayload(NvtxName* domain, const nvtx::PayloadData* data, std::size_t count) {
  return NvtxStart(domain, PayloadEvent(domain, data, count));
}
void EndPayload(NvtxName*, std::uint64_t id, const nvtx::PayloadData*, std::size_t) { NvtxEnd(id); }
std::uint8_t IsEnabled(NvtxName*) { return 1; }

}  // namespace

NvtxPayload ReadPayload(const NvtxName* domain, const nvtx::PayloadData* data, std::size_t count) {
  if (data == nullptr) return {};
  for (std::size_t i = 0; i < count; ++i) {
    if (const std::uint32_t type = NumberType(data[i].schema); type != 0) return NumberAt(data[i], 0, type);
    const NvtxName* schema = FindNvtxName(NvtxTable::kSchemas, SchemaKey(domain, data[i].schema));
    if (schema == nullptr || (schema->value & kHasNumber) == 0) continue;
    return NumberAt(data[i], (schema->value & ~kHasNumber) >> 8, schema->value & 0xff);
  }
  return {};
}

const char* PayloadText(const NvtxName* domain, const nvtx::PayloadData* data, std::size_t count) {
  for (std::size_t i = 0; data != nullptr && i < count; ++i) {
    const NvtxName* schema = FindNvtxName(NvtxTable::kSchemas, SchemaKey(domain, data[i].schema));
    if (schema != nullptr && schema->bytes != 0) return schema->text();
  }
  return "payload";
}

bool InjectPayload(const nvtx::ExtensionModule& module) {
  if (module.module != nvtx::kPayloadModule || module.struct_bytes < sizeof module || module.segments == nullptr ||
      module.segments_count == 0)
    return false;
  const nvtx::ExtensionSegment& segment = module.segments[0];
  const auto set = [&](unsigned id, auto* function) {
    if (id < segment.slots) segment.functions[id] = reinterpret_cast<std::intptr_t>(function);
  };
  set(nvtx::kSchemaRegister, SchemaRegister);
  set(nvtx::kEnumRegister, EnumRegister);
  set(nvtx::kMarkPayload, MarkPayload);
  set(nvtx::kRangePushPayload, PushPayload);
  set(nvtx::kRangePopPayload, PopPayload);
  set(nvtx::kRangeStartPayload, StartPayload);
  set(nvtx::kRangeEndPayload, EndPayload);
  set(nvtx::kDomainIsEnabled, IsEnabled);
  return true;
}

}  // namespace lockstep::probe
