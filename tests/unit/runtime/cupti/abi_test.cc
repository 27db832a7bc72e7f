// Our own layouts against the real headers, where they are installed, and the lengths that libcupti says.

#include "runtime/cupti/abi.h"

#include <gtest/gtest.h>

#include "tests/unit/runtime/cupti/decode_fixture.h"

#ifdef LOCKSTEP_CUPTI_HEADERS
#include <cupti.h>

namespace lockstep::cupti {
namespace {

#define SAME(ours, our_field, theirs, their_field) \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field))
#if CUPTI_API_VERSION >= 130500
using TheirKernel = CUpti_ActivityKernel13;
using TheirCopy = CUpti_ActivityMemcpy7;
using TheirMemset = CUpti_ActivityMemset5;
using TheirEvent = CUpti_ActivityCudaEvent3;
using TheirDevice = CUpti_ActivityDevice6;
using TheirContext = CUpti_ActivityContext4;
#elif CUPTI_API_VERSION >= 130000 && CUPTI_API_VERSION < 130200
using TheirKernel = CUpti_ActivityKernel10;
using TheirCopy = CUpti_ActivityMemcpy6;
using TheirMemset = CUpti_ActivityMemset4;
using TheirEvent = CUpti_ActivityCudaEvent2;
using TheirDevice = CUpti_ActivityDevice5;
using TheirContext = CUpti_ActivityContext3;
#elif CUPTI_API_VERSION == 26
using TheirKernel = CUpti_ActivityKernel9;
using TheirCopy = CUpti_ActivityMemcpy6;
using TheirMemset = CUpti_ActivityMemset4;
using TheirEvent = CUpti_ActivityCudaEvent2;
using TheirDevice = CUpti_ActivityDevice5;
using TheirContext = CUpti_ActivityContext3;
#else
#define LOCKSTEP_OTHER_CUPTI
#endif
#ifndef LOCKSTEP_OTHER_CUPTI
using TheirPeer = CUpti_ActivityMemcpyPtoP4;
using TheirSync = CUpti_ActivitySynchronization2;
using TheirOverhead = CUpti_ActivityOverhead3;
using TheirGraph = CUpti_ActivityGraphTrace2;
using TheirDeviceGraph = CUpti_ActivityDeviceGraphTrace;
using TheirMemory = CUpti_ActivityMemory4;
SAME(KernelRecord, registers_per_thread, TheirKernel, registersPerThread);
SAME(KernelRecord, start, TheirKernel, start);
SAME(KernelRecord, end, TheirKernel, end);
SAME(KernelRecord, device, TheirKernel, deviceId);
SAME(KernelRecord, context, TheirKernel, contextId);
SAME(KernelRecord, stream, TheirKernel, streamId);
SAME(KernelRecord, grid, TheirKernel, gridX);
SAME(KernelRecord, block, TheirKernel, blockX);
SAME(KernelRecord, static_shared_bytes, TheirKernel, staticSharedMemory);
SAME(KernelRecord, dynamic_shared_bytes, TheirKernel, dynamicSharedMemory);
SAME(KernelRecord, local_bytes_per_thread, TheirKernel, localMemoryPerThread);
SAME(KernelRecord, correlation, TheirKernel, correlationId);
SAME(KernelRecord, name, TheirKernel, name);
SAME(KernelRecord, graph_node, TheirKernel, graphNodeId);
SAME(KernelRecord, graph, TheirKernel, graphId);
SAME(KernelRecord, cluster, TheirKernel, clusterX);
static_assert(sizeof(KernelRecord) <= sizeof(TheirKernel) || sizeof(TheirKernel) == 208);
SAME(CopyRecord, copy_kind, TheirCopy, copyKind);
SAME(CopyRecord, source_kind, TheirCopy, srcKind);
SAME(CopyRecord, destination_kind, TheirCopy, dstKind);
SAME(CopyRecord, flags, TheirCopy, flags);
SAME(CopyRecord, bytes, TheirCopy, bytes);
SAME(CopyRecord, start, TheirCopy, start);
SAME(CopyRecord, device, TheirCopy, deviceId);
SAME(CopyRecord, stream, TheirCopy, streamId);
SAME(CopyRecord, correlation, TheirCopy, correlationId);
SAME(CopyRecord, graph_node, TheirCopy, graphNodeId);
SAME(CopyRecord, graph, TheirCopy, graphId);
SAME(PeerCopyRecord, source_device, TheirPeer, srcDeviceId);
SAME(PeerCopyRecord, destination_device, TheirPeer, dstDeviceId);
SAME(PeerCopyRecord, correlation, TheirPeer, correlationId);
SAME(PeerCopyRecord, graph_node, TheirPeer, graphNodeId);
SAME(PeerCopyRecord, graph, TheirPeer, graphId);
SAME(MemsetRecord, bytes, TheirMemset, bytes);
SAME(MemsetRecord, start, TheirMemset, start);
SAME(MemsetRecord, correlation, TheirMemset, correlationId);
SAME(MemsetRecord, memory_kind, TheirMemset, memoryKind);
SAME(MemsetRecord, graph_node, TheirMemset, graphNodeId);
SAME(MemsetRecord, graph, TheirMemset, graphId);
SAME(SyncRecord, type, TheirSync, type);
SAME(SyncRecord, start, TheirSync, start);
SAME(SyncRecord, correlation, TheirSync, correlationId);
SAME(SyncRecord, stream, TheirSync, streamId);
SAME(SyncRecord, event, TheirSync, cudaEventId);
SAME(SyncRecord, event_sync, TheirSync, cudaEventSyncId);
SAME(EventRecord, correlation, TheirEvent, correlationId);
SAME(EventRecord, event, TheirEvent, eventId);
SAME(EventRecord, device, TheirEvent, deviceId);
SAME(EventRecord, device_timestamp, TheirEvent, deviceTimestamp);
SAME(EventRecord, event_sync, TheirEvent, cudaEventSyncId);
SAME(ApiRecord, callback, CUpti_ActivityAPI, cbid);
SAME(ApiRecord, thread, CUpti_ActivityAPI, threadId);
SAME(ApiRecord, correlation, CUpti_ActivityAPI, correlationId);
SAME(ApiRecord, result, CUpti_ActivityAPI, returnValue);
SAME(OverheadRecord, overhead, TheirOverhead, overheadKind);
SAME(OverheadRecord, object_kind, TheirOverhead, objectKind);
SAME(OverheadRecord, object, TheirOverhead, objectId);
SAME(OverheadRecord, start, TheirOverhead, start);
SAME(DeviceRecord, memory_bandwidth, TheirDevice, globalMemoryBandwidth);
SAME(DeviceRecord, memory_bytes, TheirDevice, globalMemorySize);
SAME(DeviceRecord, threads_per_warp, TheirDevice, numThreadsPerWarp);
SAME(DeviceRecord, core_clock_khz, TheirDevice, coreClockRate);
SAME(DeviceRecord, multiprocessors, TheirDevice, numMultiprocessors);
SAME(DeviceRecord, max_warps_per_multiprocessor, TheirDevice, maxWarpsPerMultiprocessor);
SAME(DeviceRecord, compute_major, TheirDevice, computeCapabilityMajor);
SAME(DeviceRecord, id, TheirDevice, id);
SAME(DeviceRecord, uuid, TheirDevice, uuid);
SAME(DeviceRecord, name, TheirDevice, name);
SAME(ContextRecord, context, TheirContext, contextId);
SAME(ContextRecord, device, TheirContext, deviceId);
SAME(GraphRecord, start, TheirGraph, start);
SAME(GraphRecord, device, TheirGraph, deviceId);
SAME(GraphRecord, graph, TheirGraph, graphId);
SAME(GraphRecord, stream, TheirGraph, streamId);
SAME(GraphRecord, end, TheirGraph, end);
SAME(GraphRecord, correlation, TheirGraph, correlationId);
SAME(GraphRecord, context, TheirGraph, contextId);
SAME(DeviceGraphRecord, device, TheirDeviceGraph, deviceId);
SAME(DeviceGraphRecord, start, TheirDeviceGraph, start);
SAME(DeviceGraphRecord, end, TheirDeviceGraph, end);
SAME(DeviceGraphRecord, graph, TheirDeviceGraph, graphId);
SAME(DeviceGraphRecord, launcher_graph, TheirDeviceGraph, launcherGraphId);
SAME(DeviceGraphRecord, launch_mode, TheirDeviceGraph, deviceLaunchMode);
SAME(DeviceGraphRecord, context, TheirDeviceGraph, contextId);
SAME(DeviceGraphRecord, stream, TheirDeviceGraph, streamId);
static_assert(sizeof(DeviceGraphRecord) == sizeof(TheirDeviceGraph));
// Read though nothing above names it: an end that moved would be read as a begin.
SAME(CopyRecord, end, TheirCopy, end);
SAME(CopyRecord, context, TheirCopy, contextId);
SAME(PeerCopyRecord, start, TheirPeer, start);
SAME(PeerCopyRecord, end, TheirPeer, end);
SAME(PeerCopyRecord, bytes, TheirPeer, bytes);
SAME(PeerCopyRecord, device, TheirPeer, deviceId);
SAME(PeerCopyRecord, stream, TheirPeer, streamId);
SAME(MemsetRecord, end, TheirMemset, end);
SAME(MemsetRecord, device, TheirMemset, deviceId);
SAME(MemsetRecord, stream, TheirMemset, streamId);
SAME(SyncRecord, end, TheirSync, end);
SAME(SyncRecord, context, TheirSync, contextId);
SAME(EventRecord, context, TheirEvent, contextId);
SAME(EventRecord, stream, TheirEvent, streamId);
SAME(ApiRecord, start, CUpti_ActivityAPI, start);
SAME(ApiRecord, end, CUpti_ActivityAPI, end);
SAME(OverheadRecord, end, TheirOverhead, end);
SAME(MemoryRecord2, correlation, TheirMemory, correlationId);
SAME(MemoryRecord2, bytes, TheirMemory, bytes);
SAME(MemoryRecord2, operation, TheirMemory, memoryOperationType);
SAME(MemoryRecord2, memory_kind, TheirMemory, memoryKind);
SAME(MemoryRecord2, address, TheirMemory, address);
SAME(MemoryRecord2, timestamp, TheirMemory, timestamp);
SAME(MemoryRecord2, device, TheirMemory, deviceId);
SAME(MemoryRecord2, name, TheirMemory, name);
SAME(MemoryRecord2, pool_used_bytes, TheirMemory, memoryPoolConfig.utilizedSize);
#endif
#if CUPTI_API_VERSION >= 130000
SAME(SubscriberParams, name, CUpti_SubscriberParams, subscriberName);
SAME(SubscriberParams, old_name_bytes, CUpti_SubscriberParams, oldSubscriberSize);
#endif
#if CUPTI_API_VERSION >= 130200
SAME(SubscriberParams, allow_multiple_subscribers, CUpti_SubscriberParams, allowMultipleSubscribers);
static_assert(sizeof(SubscriberParams) == sizeof(CUpti_SubscriberParams));
#endif
#undef SAME

#define EQUAL(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
EQUAL(kKindConcurrentKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
EQUAL(kKindMemcpy, CUPTI_ACTIVITY_KIND_MEMCPY);
EQUAL(kKindMemset, CUPTI_ACTIVITY_KIND_MEMSET);
EQUAL(kKindMemcpyPeer, CUPTI_ACTIVITY_KIND_MEMCPY2);
EQUAL(kKindDriver, CUPTI_ACTIVITY_KIND_DRIVER);
EQUAL(kKindRuntime, CUPTI_ACTIVITY_KIND_RUNTIME);
EQUAL(kKindDevice, CUPTI_ACTIVITY_KIND_DEVICE);
EQUAL(kKindContext, CUPTI_ACTIVITY_KIND_CONTEXT);
EQUAL(kKindOverhead, CUPTI_ACTIVITY_KIND_OVERHEAD);
EQUAL(kKindCudaEvent, CUPTI_ACTIVITY_KIND_CUDA_EVENT);
EQUAL(kKindSynchronization, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
EQUAL(kKindMemory2, CUPTI_ACTIVITY_KIND_MEMORY2);
EQUAL(kKindGraphTrace, CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
#if CUPTI_API_VERSION >= 26
EQUAL(kKindDeviceGraphTrace, CUPTI_ACTIVITY_KIND_DEVICE_GRAPH_TRACE);
#endif
EQUAL(kAttributeZeroedOutBuffer, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER);
EQUAL(kAttributeDeviceBufferSize, CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE);
EQUAL(kAttributeDeviceBufferPoolLimit, CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT);
#if CUPTI_API_VERSION >= 21
EQUAL(kAttributePerThreadBuffer, CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER);
#endif
EQUAL(kThreadIdSystem, CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
EQUAL(kFlushForced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
EQUAL(kMaxLimitReached, CUPTI_ERROR_MAX_LIMIT_REACHED);
EQUAL(kInvalidKind, CUPTI_ERROR_INVALID_KIND);
EQUAL(kInsufficientPrivileges, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
EQUAL(kMultipleSubscribers, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
EQUAL(kDomainDriver, CUPTI_CB_DOMAIN_DRIVER_API);
EQUAL(kDomainRuntime, CUPTI_CB_DOMAIN_RUNTIME_API);
#undef EQUAL

TEST_F(DecodeTest, LibraryAndHeadersAgreeOnLengths) {
  if (!Use(0)) GTEST_SKIP() << "no libcupti on this machine";
#ifndef LOCKSTEP_OTHER_CUPTI
  if (api_.version != CUPTI_API_VERSION) GTEST_SKIP() << "headers and library are of different versions";
  EXPECT_EQ(sizes_.bytes[kKindConcurrentKernel], sizeof(TheirKernel));
  EXPECT_EQ(sizes_.bytes[kKindMemcpy], sizeof(TheirCopy));
  EXPECT_EQ(sizes_.bytes[kKindMemcpyPeer], sizeof(TheirPeer));
  EXPECT_EQ(sizes_.bytes[kKindMemset], sizeof(TheirMemset));
  EXPECT_EQ(sizes_.bytes[kKindSynchronization], sizeof(TheirSync));
  EXPECT_EQ(sizes_.bytes[kKindCudaEvent], sizeof(TheirEvent));
  EXPECT_EQ(sizes_.bytes[kKindRuntime], sizeof(CUpti_ActivityAPI));
  EXPECT_EQ(sizes_.bytes[kKindOverhead], sizeof(TheirOverhead));
  EXPECT_EQ(sizes_.bytes[kKindDevice], sizeof(TheirDevice));
  EXPECT_EQ(sizes_.bytes[kKindGraphTrace], sizeof(TheirGraph));
  EXPECT_EQ(sizes_.bytes[kKindDeviceGraphTrace], sizeof(TheirDeviceGraph));
  EXPECT_EQ(sizes_.bytes[kKindMemory2], sizeof(TheirMemory));
#endif
}

}  // namespace
}  // namespace lockstep::cupti
#endif
