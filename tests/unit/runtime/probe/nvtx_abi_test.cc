// Our own declarations of NVTX's binary interface against the real headers.

#include <gtest/gtest.h>

#ifdef LOCKSTEP_REAL_NVTX
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include "runtime/probe/nvtx_abi.h"

namespace lockstep::probe {
namespace {

#define LS_SAME(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs))
#define LS_SAME_FIELD(Ours, our, Theirs, their)          \
  LS_SAME(offsetof(Ours, our), offsetof(Theirs, their)); \
  LS_SAME(sizeof(static_cast<Ours*>(nullptr)->our), sizeof(static_cast<Theirs*>(nullptr)->their))

LS_SAME(nvtx::kExportCallbacks, NVTX_ETID_CALLBACKS);
LS_SAME(sizeof(nvtx::CallbackExports), sizeof(NvtxExportTableCallbacks));
LS_SAME_FIELD(nvtx::CallbackExports, struct_bytes, NvtxExportTableCallbacks, struct_size);
LS_SAME_FIELD(nvtx::CallbackExports, module_functions, NvtxExportTableCallbacks, GetModuleFunctionTable);
LS_SAME(nvtx::kModuleCore, NVTX_CB_MODULE_CORE);
LS_SAME(nvtx::kModuleCore2, NVTX_CB_MODULE_CORE2);

LS_SAME(nvtx::kMarkEx, NVTX_CBID_CORE_MarkEx);
LS_SAME(nvtx::kMarkA, NVTX_CBID_CORE_MarkA);
LS_SAME(nvtx::kMarkW, NVTX_CBID_CORE_MarkW);
LS_SAME(nvtx::kRangeStartEx, NVTX_CBID_CORE_RangeStartEx);
LS_SAME(nvtx::kRangeStartA, NVTX_CBID_CORE_RangeStartA);
LS_SAME(nvtx::kRangeStartW, NVTX_CBID_CORE_RangeStartW);
LS_SAME(nvtx::kRangeEnd, NVTX_CBID_CORE_RangeEnd);
LS_SAME(nvtx::kRangePushEx, NVTX_CBID_CORE_RangePushEx);
LS_SAME(nvtx::kRangePushA, NVTX_CBID_CORE_RangePushA);
LS_SAME(nvtx::kRangePushW, NVTX_CBID_CORE_RangePushW);
LS_SAME(nvtx::kRangePop, NVTX_CBID_CORE_RangePop);
LS_SAME(nvtx::kNameCategoryA, NVTX_CBID_CORE_NameCategoryA);
LS_SAME(nvtx::kNameCategoryW, NVTX_CBID_CORE_NameCategoryW);
LS_SAME(nvtx::kNameOsThreadA, NVTX_CBID_CORE_NameOsThreadA);
LS_SAME(nvtx::kNameOsThreadW, NVTX_CBID_CORE_NameOsThreadW);
LS_SAME(nvtx::kCoreFunctions, NVTX_CBID_CORE_SIZE);
LS_SAME(nvtx::kDomainMarkEx, NVTX_CBID_CORE2_DomainMarkEx);
LS_SAME(nvtx::kDomainRangeStartEx, NVTX_CBID_CORE2_DomainRangeStartEx);
LS_SAME(nvtx::kDomainRangeEnd, NVTX_CBID_CORE2_DomainRangeEnd);
LS_SAME(nvtx::kDomainRangePushEx, NVTX_CBID_CORE2_DomainRangePushEx);
LS_SAME(nvtx::kDomainRangePop, NVTX_CBID_CORE2_DomainRangePop);
LS_SAME(nvtx::kDomainResourceCreate, NVTX_CBID_CORE2_DomainResourceCreate);
LS_SAME(nvtx::kDomainResourceDestroy, NVTX_CBID_CORE2_DomainResourceDestroy);
LS_SAME(nvtx::kDomainNameCategoryA, NVTX_CBID_CORE2_DomainNameCategoryA);
LS_SAME(nvtx::kDomainNameCategoryW, NVTX_CBID_CORE2_DomainNameCategoryW);
LS_SAME(nvtx::kDomainRegisterStringA, NVTX_CBID_CORE2_DomainRegisterStringA);
LS_SAME(nvtx::kDomainRegisterStringW, NVTX_CBID_CORE2_DomainRegisterStringW);
LS_SAME(nvtx::kDomainCreateA, NVTX_CBID_CORE2_DomainCreateA);
LS_SAME(nvtx::kDomainCreateW, NVTX_CBID_CORE2_DomainCreateW);
LS_SAME(nvtx::kDomainDestroy, NVTX_CBID_CORE2_DomainDestroy);
LS_SAME(nvtx::kInitialize, NVTX_CBID_CORE2_Initialize);
LS_SAME(nvtx::kCore2Functions, NVTX_CBID_CORE2_SIZE);

LS_SAME(sizeof(nvtx::EventAttributes), sizeof(nvtxEventAttributes_t));
LS_SAME_FIELD(nvtx::EventAttributes, version, nvtxEventAttributes_t, version);
LS_SAME_FIELD(nvtx::EventAttributes, bytes, nvtxEventAttributes_t, size);
LS_SAME_FIELD(nvtx::EventAttributes, category, nvtxEventAttributes_t, category);
LS_SAME_FIELD(nvtx::EventAttributes, color, nvtxEventAttributes_t, color);
LS_SAME_FIELD(nvtx::EventAttributes, payload_type, nvtxEventAttributes_t, payloadType);
LS_SAME_FIELD(nvtx::EventAttributes, reserved, nvtxEventAttributes_t, reserved0);
LS_SAME_FIELD(nvtx::EventAttributes, payload, nvtxEventAttributes_t, payload);
LS_SAME_FIELD(nvtx::EventAttributes, message_type, nvtxEventAttributes_t, messageType);
LS_SAME_FIELD(nvtx::EventAttributes, message, nvtxEventAttributes_t, message);
LS_SAME(nvtx::kMessageAscii, NVTX_MESSAGE_TYPE_ASCII);
LS_SAME(nvtx::kMessageUnicode, NVTX_MESSAGE_TYPE_UNICODE);
LS_SAME(nvtx::kMessageRegistered, NVTX_MESSAGE_TYPE_REGISTERED);
LS_SAME(nvtx::kPayloadU64, NVTX_PAYLOAD_TYPE_UNSIGNED_INT64);
LS_SAME(nvtx::kPayloadI64, NVTX_PAYLOAD_TYPE_INT64);
LS_SAME(nvtx::kPayloadDouble, NVTX_PAYLOAD_TYPE_DOUBLE);
LS_SAME(nvtx::kPayloadU32, NVTX_PAYLOAD_TYPE_UNSIGNED_INT32);
LS_SAME(nvtx::kPayloadI32, NVTX_PAYLOAD_TYPE_INT32);
LS_SAME(nvtx::kPayloadFloat, NVTX_PAYLOAD_TYPE_FLOAT);
LS_SAME(nvtx::kPayloadExtension, NVTX_PAYLOAD_TYPE_EXT);
LS_SAME(nvtx::kNoTracking, NVTX_NO_PUSH_POP_TRACKING);

LS_SAME(sizeof(nvtx::ResourceAttributes), sizeof(nvtxResourceAttributes_t));
LS_SAME_FIELD(nvtx::ResourceAttributes, bytes, nvtxResourceAttributes_t, size);
LS_SAME_FIELD(nvtx::ResourceAttributes, identifier_type, nvtxResourceAttributes_t, identifierType);
LS_SAME_FIELD(nvtx::ResourceAttributes, identifier, nvtxResourceAttributes_t, identifier);
LS_SAME_FIELD(nvtx::ResourceAttributes, message_type, nvtxResourceAttributes_t, messageType);
LS_SAME_FIELD(nvtx::ResourceAttributes, message, nvtxResourceAttributes_t, message);
LS_SAME(nvtx::kResourceNativeThread, NVTX_RESOURCE_TYPE_GENERIC_THREAD_NATIVE);
LS_SAME(sizeof(nvtx::ExtensionModule), sizeof(nvtxExtModuleInfo_t));
LS_SAME_FIELD(nvtx::ExtensionModule, module, nvtxExtModuleInfo_t, moduleId);
LS_SAME_FIELD(nvtx::ExtensionModule, struct_bytes, nvtxExtModuleInfo_t, structSize);
LS_SAME_FIELD(nvtx::ExtensionModule, segments_count, nvtxExtModuleInfo_t, segmentsCount);
LS_SAME_FIELD(nvtx::ExtensionModule, segments, nvtxExtModuleInfo_t, segments);
LS_SAME(sizeof(nvtx::ExtensionSegment), sizeof(nvtxExtModuleSegment_t));
LS_SAME_FIELD(nvtx::ExtensionSegment, slots, nvtxExtModuleSegment_t, slotCount);
LS_SAME_FIELD(nvtx::ExtensionSegment, functions, nvtxExtModuleSegment_t, functionSlots);
LS_SAME(nvtx::kPayloadModule, NVTX_EXT_PAYLOAD_MODULEID);
LS_SAME(nvtx::kSchemaRegister, NVTX3EXT_CBID_nvtxPayloadSchemaRegister);
LS_SAME(nvtx::kEnumRegister, NVTX3EXT_CBID_nvtxPayloadEnumRegister);
LS_SAME(nvtx::kMarkPayload, NVTX3EXT_CBID_nvtxMarkPayload);
LS_SAME(nvtx::kRangePushPayload, NVTX3EXT_CBID_nvtxRangePushPayload);
LS_SAME(nvtx::kRangePopPayload, NVTX3EXT_CBID_nvtxRangePopPayload);
LS_SAME(nvtx::kRangeStartPayload, NVTX3EXT_CBID_nvtxRangeStartPayload);
LS_SAME(nvtx::kRangeEndPayload, NVTX3EXT_CBID_nvtxRangeEndPayload);
LS_SAME(nvtx::kDomainIsEnabled, NVTX3EXT_CBID_nvtxDomainIsEnabled);
LS_SAME(sizeof(nvtx::PayloadData), sizeof(nvtxPayloadData_t));
LS_SAME_FIELD(nvtx::PayloadData, schema, nvtxPayloadData_t, schemaId);
LS_SAME_FIELD(nvtx::PayloadData, bytes, nvtxPayloadData_t, size);
LS_SAME_FIELD(nvtx::PayloadData, data, nvtxPayloadData_t, payload);
LS_SAME(sizeof(nvtx::SchemaEntry), sizeof(nvtxPayloadSchemaEntry_t));
LS_SAME_FIELD(nvtx::SchemaEntry, flags, nvtxPayloadSchemaEntry_t, flags);
LS_SAME_FIELD(nvtx::SchemaEntry, type, nvtxPayloadSchemaEntry_t, type);
LS_SAME_FIELD(nvtx::SchemaEntry, offset, nvtxPayloadSchemaEntry_t, offset);
LS_SAME(sizeof(nvtx::SchemaAttributes), sizeof(nvtxPayloadSchemaAttr_t));
LS_SAME_FIELD(nvtx::SchemaAttributes, valid, nvtxPayloadSchemaAttr_t, fieldMask);
LS_SAME_FIELD(nvtx::SchemaAttributes, name, nvtxPayloadSchemaAttr_t, name);
LS_SAME_FIELD(nvtx::SchemaAttributes, entries, nvtxPayloadSchemaAttr_t, entries);
LS_SAME_FIELD(nvtx::SchemaAttributes, entries_count, nvtxPayloadSchemaAttr_t, numEntries);
LS_SAME_FIELD(nvtx::SchemaAttributes, pack_align, nvtxPayloadSchemaAttr_t, packAlign);
LS_SAME_FIELD(nvtx::SchemaAttributes, id, nvtxPayloadSchemaAttr_t, schemaId);
LS_SAME(nvtx::kSchemaHasName, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME);
LS_SAME(nvtx::kSchemaHasEntries, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES);
LS_SAME(nvtx::kSchemaHasCount, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES);
LS_SAME(nvtx::kSchemaHasPackAlign, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ALIGNMENT);
LS_SAME(nvtx::kSchemaHasId, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID);
LS_SAME(nvtx::kFirstDynamicSchema, NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START);
LS_SAME(nvtx::kEntryChar, NVTX_PAYLOAD_ENTRY_TYPE_CHAR);
LS_SAME(nvtx::kEntryUlonglong, NVTX_PAYLOAD_ENTRY_TYPE_ULONGLONG);
LS_SAME(nvtx::kEntryInt8, NVTX_PAYLOAD_ENTRY_TYPE_INT8);
LS_SAME(nvtx::kEntryUint64, NVTX_PAYLOAD_ENTRY_TYPE_UINT64);
LS_SAME(nvtx::kEntryFloat, NVTX_PAYLOAD_ENTRY_TYPE_FLOAT);
LS_SAME(nvtx::kEntryDouble, NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE);
LS_SAME(nvtx::kEntrySize, NVTX_PAYLOAD_ENTRY_TYPE_SIZE);
LS_SAME(nvtx::kEntryAddress, NVTX_PAYLOAD_ENTRY_TYPE_ADDRESS);
LS_SAME(nvtx::kEntryCstring, NVTX_PAYLOAD_ENTRY_TYPE_CSTRING);
LS_SAME(nvtx::kEntryRegisteredString, NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE);
LS_SAME(nvtx::kEntryNotInPlace, NVTX_PAYLOAD_ENTRY_FLAG_POINTER | NVTX_PAYLOAD_ENTRY_FLAG_OFFSET_FROM_BASE |
                                    NVTX_PAYLOAD_ENTRY_FLAG_OFFSET_FROM_HERE | NVTX_PAYLOAD_ENTRY_FLAG_IS_ARRAY |
                                    NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_LENGTH_PAYLOAD_INDEX);

// The assertions above are the test: this says that they were compiled.
TEST(NvtxAbi, IsThatOfTheRealHeaders) { SUCCEED() << "NVTX version " << NVTX_VERSION; }

}  // namespace
}  // namespace lockstep::probe
#else
TEST(NvtxAbi, IsThatOfTheRealHeaders) { GTEST_SKIP() << "no nvtx3 headers on this machine"; }
#endif
