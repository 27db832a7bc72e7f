#pragma once
// The binary interface between NVTX 3 (a library of headers compiled into every
// object that uses it) and the tool it injects. Own declarations, so that no CUDA
// toolkit is needed; tests/unit/runtime/probe/nvtx_abi_test.cc compares them with
// the real headers where there are any. As of NVTX 3.2 (CUDA 13.0); modules and ids
// were only ever added.
//
// Each object that compiled the headers has its own function tables. On its first
// call of NVTX it reads NVTX_INJECTION64_PATH, loads that library and calls
// InitializeInjectionNvtx2; on the first call of an extension
// InitializeInjectionNvtxExtension.

#include <cstddef>
#include <cstdint>

namespace lockstep::nvtx {

extern "C" {
using ExportTableFunction = const void* (*)(std::uint32_t table);
using FunctionPointer = void (*)();
}

enum ExportTable : std::uint32_t { kExportCallbacks = 1 };

struct CallbackExports {
  std::size_t struct_bytes;
  int (*module_functions)(std::uint32_t module, FunctionPointer*** table, unsigned* entries);
};

enum Module : std::uint32_t { kModuleCore = 1, kModuleCore2 = 5 };

enum CoreFunction : unsigned {
  kMarkEx = 1,
  kMarkA = 2,
  kMarkW = 3,
  kRangeStartEx = 4,
  kRangeStartA = 5,
  kRangeStartW = 6,
  kRangeEnd = 7,
  kRangePushEx = 8,
  kRangePushA = 9,
  kRangePushW = 10,
  kRangePop = 11,
  kNameCategoryA = 12,
  kNameCategoryW = 13,
  kNameOsThreadA = 14,
  kNameOsThreadW = 15,
  kCoreFunctions = 16,
};

enum Core2Function : unsigned {
  kDomainMarkEx = 1,
  kDomainRangeStartEx = 2,
  kDomainRangeEnd = 3,
  kDomainRangePushEx = 4,
  kDomainRangePop = 5,
  kDomainResourceCreate = 6,
  kDomainResourceDestroy = 7,
  kDomainNameCategoryA = 8,
  kDomainNameCategoryW = 9,
  kDomainRegisterStringA = 10,
  kDomainRegisterStringW = 11,
  kDomainCreateA = 12,
  kDomainCreateW = 13,
  kDomainDestroy = 14,
  kInitialize = 15,
  kCore2Functions = 16,
};

enum MessageType : std::int32_t { kMessageNone = 0, kMessageAscii = 1, kMessageUnicode = 2, kMessageRegistered = 3 };

enum PayloadType : std::int32_t {
  kPayloadNone = 0,
  kPayloadU64 = 1,
  kPayloadI64 = 2,
  kPayloadDouble = 3,
  kPayloadU32 = 4,
  kPayloadI32 = 5,
  kPayloadFloat = 6,
  kPayloadExtension = static_cast<std::int32_t>(0xDFBD0009u),  // `bits`: const PayloadData*, `reserved`: how many.
};

struct EventAttributes {
  std::uint16_t version, bytes;
  std::uint32_t category;
  std::int32_t color_type;
  std::uint32_t color;
  std::int32_t payload_type;
  std::int32_t reserved;
  union {
    std::uint64_t u64;
    std::int64_t i64;
    double f64;
    std::uint32_t u32;
    std::int32_t i32;
    float f32;
    const void* pointer;
  } payload;
  std::int32_t message_type;
  union {
    const char* ascii;
    const wchar_t* unicode;
    const void* registered;
  } message;
};
static_assert(sizeof(EventAttributes) == 48);

// Of nvtxDomainResourceCreate: names for things of the system.
struct ResourceAttributes {
  std::uint16_t version, bytes;
  std::int32_t identifier_type;
  std::uint64_t identifier;
  std::int32_t message_type;
  union {
    const char* ascii;
    const wchar_t* unicode;
    const void* registered;
  } message;
};
inline constexpr std::int32_t kResourceNativeThread = 1 << 16 | 3;

// The result of a push when no tool tracks ranges.
inline constexpr int kNoTracking = -2;

// Extensions.
struct ExtensionSegment {
  std::size_t id, slots;
  std::intptr_t* functions;
};
struct ExtensionModule {
  std::uint16_t nvtx_version, struct_bytes, module, compatibility;
  std::size_t segments_count;
  ExtensionSegment* segments;
  std::intptr_t (*export_function)(std::uint32_t);
  const void* info;
};

inline constexpr std::uint16_t kPayloadModule = 2;
enum PayloadFunction : unsigned {
  kSchemaRegister = 0,
  kEnumRegister = 1,
  kMarkPayload = 2,
  kRangePushPayload = 3,
  kRangePopPayload = 4,
  kRangeStartPayload = 5,
  kRangeEndPayload = 6,
  kDomainIsEnabled = 7,
};

struct PayloadData {
  std::uint64_t schema;
  std::size_t bytes;  // SIZE_MAX: as the schema says.
  const void* data;
};
struct SchemaEntry {
  std::uint64_t flags, type;
  const char *name, *description;
  std::uint64_t array_or_union, offset;
  const void *semantics, *reserved;
};
// Flags of a SchemaEntry: the value is not in the struct itself, or there are several.
inline constexpr std::uint64_t kEntryNotInPlace = 2 | 4 | 8 | (7 << 4);

struct SchemaAttributes {
  std::uint64_t valid;  // Bits of kSchemaHas*.
  const char* name;
  std::uint64_t type, flags;
  const SchemaEntry* entries;
  std::size_t entries_count, static_bytes, pack_align;
  std::uint64_t id;
  void* extension;
};
inline constexpr std::uint64_t kSchemaHasName = 1 << 1, kSchemaHasEntries = 1 << 4, kSchemaHasCount = 1 << 5,
                               kSchemaHasPackAlign = 1 << 7, kSchemaHasId = 1 << 8;
inline constexpr std::uint64_t kFirstDynamicSchema = std::uint64_t{1} << 32;

// SchemaEntry::type; also a PayloadData::schema of its own.
enum EntryType : std::uint64_t {
  kEntryChar = 1,
  kEntryUlonglong = 10,
  kEntryInt8 = 11,
  kEntryUint64 = 18,
  kEntryFloat = 19,
  kEntryDouble = 20,
  kEntrySize = 22,
  kEntryAddress = 23,
  kEntryCstring = 75,
  kEntryRegisteredString = 80,
};

}  // namespace lockstep::nvtx
