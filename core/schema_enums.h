#pragma once
// The enumerations of Lockstep's files: codes, names and what the docs say of them, once. A column of role kEnum names
// one of these; code says `schema::Work::kCommunication` and never the number. Codes are unscoped within a struct, so
// that they go into columns and records, which are plain integers, without a cast.

#include <cstdint>
#include <iterator>
#include <type_traits>

#include "core/collective.h"
#include "core/column.h"
#include "core/window.h"

namespace lockstep {

enum class MpiOp : std::uint16_t;  // core/mpi_ops.h

namespace schema {

// The number of a scoped enumerator, as a column holds it.
template <typename E>
requires(std::is_enum_v<E> && !std::is_convertible_v<E, int>) constexpr auto Code(E value) {
  return static_cast<std::underlying_type_t<E>>(value);
}

#define LS_ENUM_VALUE_(value, code, name) value = code,
#define LS_ENUM_NAME_(value, code, name) {code, name},
#define LS_SCHEMA_ENUM_(Name, type, VALUES)                                                              \
  struct Name {                                                                                          \
    enum Value : type { VALUES(LS_ENUM_VALUE_) };                                                        \
    static constexpr EnumValue kValues[] = {VALUES(LS_ENUM_NAME_)};                                      \
    static constexpr EnumInfo kInfo{#Name, kValues, sizeof kValues / sizeof kValues[0], TypeOf<type>()}; \
  };

// Where a rank in the job came from.
#define LS_RANK_SOURCE_(V)  \
  V(kNone, 0, "none")       \
  V(kMpi, 1, "mpi")         \
  V(kEnvironment, 2, "env") \
  V(kNccl, 3, "nccl")       \
  V(kSlot, 4, "slot")       \
  V(kGroup, 5, "group")
LS_SCHEMA_ENUM_(RankSource, std::uint8_t, LS_RANK_SOURCE_)
#undef LS_RANK_SOURCE_

#define LS_PROCESS_END_(V)  \
  V(kUnknown, 0, "unknown") \
  V(kExit, 1, "exit")       \
  V(kSignal, 2, "signal")   \
  V(kRunning, 3, "still running when recording stopped")
LS_SCHEMA_ENUM_(ProcessEnd, std::uint8_t, LS_PROCESS_END_)
#undef LS_PROCESS_END_

#define LS_MPI_THREAD_LEVEL_(V)   \
  V(kSingle, 0, "single")         \
  V(kFunneled, 1, "funneled")     \
  V(kSerialized, 2, "serialized") \
  V(kMultiple, 3, "multiple")     \
  V(kNoMpi, 255, "no MPI")
LS_SCHEMA_ENUM_(MpiThreadLevel, std::uint8_t, LS_MPI_THREAD_LEVEL_)
#undef LS_MPI_THREAD_LEVEL_

#define LS_COMM_KIND_(V)             \
  V(kIntra, 0, "intra-communicator") \
  V(kInter, 1, "inter-communicator") \
  V(kSelf, 2, "self")                \
  V(kNccl, 3, "nccl")                \
  V(kTorchGroup, 4, "torch group")   \
  V(kWindow, 5, "window of one-sided MPI")
LS_SCHEMA_ENUM_(CommKind, std::uint8_t, LS_COMM_KIND_)
#undef LS_COMM_KIND_

#define LS_COMM_IDENTITY_(V)                                                                \
  V(kCounted, 0, "counted by the library: global_id and seq mean the same on every member") \
  V(kNamed, 1, "group named by an imported trace, seq is the order within this file")       \
  V(kGuessed, 2, "group guessed from an imported trace, seq as in 1")
LS_SCHEMA_ENUM_(CommIdentity, std::uint8_t, LS_COMM_IDENTITY_)
#undef LS_COMM_IDENTITY_

#define LS_CALL_OUTCOME_(V)                    \
  V(kCompleted, 0, "completed")                \
  V(kNothingCompleted, 1, "nothing completed") \
  V(kError, 2, "error")                        \
  V(kNotReturned, 3, "had not returned at the last sign of life")
LS_SCHEMA_ENUM_(CallOutcome, std::uint8_t, LS_CALL_OUTCOME_)
#undef LS_CALL_OUTCOME_

#define LS_REDUCTION_(V)         \
  V(kNone, 0, "none or unknown") \
  V(kSum, 1, "sum")              \
  V(kProduct, 2, "product")      \
  V(kMaximum, 3, "maximum")      \
  V(kMinimum, 4, "minimum")      \
  V(kAverage, 5, "average")      \
  V(kOwn, 6, "user's own")
LS_SCHEMA_ENUM_(Reduction, std::uint8_t, LS_REDUCTION_)
#undef LS_REDUCTION_

#define LS_DIRECTION_(V) \
  V(kSend, 0, "send")    \
  V(kReceive, 1, "receive")
LS_SCHEMA_ENUM_(Direction, std::uint8_t, LS_DIRECTION_)
#undef LS_DIRECTION_

#define LS_REQUEST_OUTCOME_(V)             \
  V(kCompleted, 0, "completed")            \
  V(kCancelled, 1, "cancelled")            \
  V(kError, 2, "error")                    \
  V(kNeverCompleted, 3, "never completed") \
  V(kFreed, 4, "freed")
LS_SCHEMA_ENUM_(RequestOutcome, std::uint8_t, LS_REQUEST_OUTCOME_)
#undef LS_REQUEST_OUTCOME_

#define LS_RANGE_SOURCE_(V)        \
  V(kLockstep, 0, "lockstep.h")    \
  V(kNvtx, 1, "nvtx")              \
  V(kTorch, 2, "torch")            \
  V(kCpuOp, 3, "cpu op")           \
  V(kPython, 4, "python function") \
  V(kSystemCall, 5, "system call")
LS_SCHEMA_ENUM_(RangeSource, std::uint8_t, LS_RANGE_SOURCE_)
#undef LS_RANGE_SOURCE_

#define LS_RANGE_KIND_(V)      \
  V(kPushPop, 0, "push/pop")   \
  V(kStartEnd, 1, "start/end") \
  V(kMark, 2, "mark")
LS_SCHEMA_ENUM_(RangeKind, std::uint8_t, LS_RANGE_KIND_)
#undef LS_RANGE_KIND_

#define LS_PAYLOAD_KIND_(V) \
  V(kNone, 0, "none")       \
  V(kInteger, 1, "integer") \
  V(kDouble, 2, "double")   \
  V(kSequence, 3, "autograd sequence number")
LS_SCHEMA_ENUM_(PayloadKind, std::uint8_t, LS_PAYLOAD_KIND_)
#undef LS_PAYLOAD_KIND_

// What a range of the application is for.
#define LS_CATEGORY_(V)                 \
  V(kNone, 0, "none")                   \
  V(kInput, 1, "input")                 \
  V(kForward, 2, "forward")             \
  V(kBackward, 3, "backward")           \
  V(kOptimizer, 4, "optimizer")         \
  V(kCommunication, 5, "communication") \
  V(kCheckpoint, 6, "checkpoint")
LS_SCHEMA_ENUM_(Category, std::uint8_t, LS_CATEGORY_)
#undef LS_CATEGORY_

// What a thread was blocked in.
#define LS_BLOCKED_KIND_(V)              \
  V(kOther, 0, "other")                  \
  V(kSleep, 1, "sleep")                  \
  V(kLock, 2, "lock")                    \
  V(kCondition, 3, "condition variable") \
  V(kSemaphore, 4, "semaphore")          \
  V(kPython, 5, "Python's lock (GIL)")   \
  V(kJoin, 6, "end of a thread")         \
  V(kChild, 7, "end of a process")       \
  V(kFile, 8, "file")                    \
  V(kSocket, 9, "socket or pipe")
LS_SCHEMA_ENUM_(BlockedKind, std::uint8_t, LS_BLOCKED_KIND_)
#undef LS_BLOCKED_KIND_

#define LS_WORK_(V)                     \
  V(kCompute, 0, "compute")             \
  V(kCommunication, 1, "communication") \
  V(kSyncKernel, 2, "sync pseudo-kernel")
LS_SCHEMA_ENUM_(Work, std::uint8_t, LS_WORK_)
#undef LS_WORK_

#define LS_WORK_RULE_(V)                               \
  V(kDefault, 0, "default")                            \
  V(kLaunched, 1, "launched by a recorded collective") \
  V(kByName, 2, "name list")
LS_SCHEMA_ENUM_(WorkRule, std::uint8_t, LS_WORK_RULE_)
#undef LS_WORK_RULE_

#define LS_VENDOR_(V)       \
  V(kUnknown, 0, "unknown") \
  V(kNvidia, 1, "nvidia")   \
  V(kAmd, 2, "amd")
LS_SCHEMA_ENUM_(Vendor, std::uint8_t, LS_VENDOR_)
#undef LS_VENDOR_

#define LS_COPY_KIND_(V)                    \
  V(kUnknown, 0, "unknown")                 \
  V(kHostToDevice, 1, "host to device")     \
  V(kDeviceToHost, 2, "device to host")     \
  V(kDeviceToDevice, 3, "device to device") \
  V(kPeer, 4, "peer")                       \
  V(kHostToHost, 5, "host to host")         \
  V(kMemset, 6, "memset")
LS_SCHEMA_ENUM_(CopyKind, std::uint8_t, LS_COPY_KIND_)
#undef LS_COPY_KIND_

#define LS_HOST_MEMORY_(V)          \
  V(kUnknown, 0, "unknown or none") \
  V(kPageable, 1, "pageable")       \
  V(kPinned, 2, "pinned")           \
  V(kManaged, 3, "managed")
LS_SCHEMA_ENUM_(HostMemory, std::uint8_t, LS_HOST_MEMORY_)
#undef LS_HOST_MEMORY_

#define LS_SYNC_KIND_(V)                 \
  V(kUnknown, 0, "unknown")              \
  V(kEvent, 1, "event")                  \
  V(kStreamWait, 2, "stream wait event") \
  V(kStream, 3, "stream")                \
  V(kContext, 4, "context")              \
  V(kEventRecord, 5, "event record")
LS_SCHEMA_ENUM_(SyncKind, std::uint8_t, LS_SYNC_KIND_)
#undef LS_SYNC_KIND_

#define LS_API_KIND_(V)              \
  V(kOther, 0, "other")              \
  V(kLaunch, 1, "launch")            \
  V(kCopy, 2, "copy")                \
  V(kSync, 3, "sync")                \
  V(kGraphLaunch, 4, "graph launch") \
  V(kMemory, 5, "memory")            \
  V(kEvent, 6, "event")
LS_SCHEMA_ENUM_(ApiKind, std::uint8_t, LS_API_KIND_)
#undef LS_API_KIND_

#define LS_MEMORY_KIND_(V)    \
  V(kUnknown, 0, "unknown")   \
  V(kAllocate, 1, "allocate") \
  V(kFree, 2, "free")         \
  V(kSample, 3, "sample")     \
  V(kPeak, 4, "peak since the last one")
LS_SCHEMA_ENUM_(MemoryKind, std::uint8_t, LS_MEMORY_KIND_)
#undef LS_MEMORY_KIND_

#define LS_OVERHEAD_KIND_(V)                      \
  V(kOther, 0, "other")                           \
  V(kCompiler, 1, "compiler")                     \
  V(kBufferFlush, 2, "buffer flush")              \
  V(kInstrumentation, 3, "instrumentation")       \
  V(kResources, 4, "resources")                   \
  V(kLazyLoading, 5, "lazy loading")              \
  V(kCommandBufferFull, 6, "command buffer full") \
  V(kActivityBuffer, 7, "activity buffer request")
LS_SCHEMA_ENUM_(OverheadKind, std::uint8_t, LS_OVERHEAD_KIND_)
#undef LS_OVERHEAD_KIND_

// What marked a step.
#define LS_STEP_SOURCE_(V)            \
  V(kMark, 0, "lockstep_step")        \
  V(kRange, 1, "step range")          \
  V(kTorch, 2, "torch hook")          \
  V(kProfilerStep, 3, "ProfilerStep") \
  V(kSignature, 4, "signature")
LS_SCHEMA_ENUM_(StepSource, std::uint8_t, LS_STEP_SOURCE_)
#undef LS_STEP_SOURCE_

// Of clock exchanges.
#define LS_TRANSPORT_(V)                          \
  V(kUnknown, 0, "unknown")                       \
  V(kMpiApplication, 1, "mpi in the application") \
  V(kTcpAgents, 2, "tcp between agents")          \
  V(kMpiAgents, 3, "mpi between agents")
LS_SCHEMA_ENUM_(Transport, std::uint8_t, LS_TRANSPORT_)
#undef LS_TRANSPORT_

// Of clock exchanges.
#define LS_PURPOSE_(V)    \
  V(kOffset, 0, "offset") \
  V(kCheck, 1, "check within one clock domain")
LS_SCHEMA_ENUM_(Purpose, std::uint8_t, LS_PURPOSE_)
#undef LS_PURPOSE_

// How a clock was related to the others'.
#define LS_CLOCK_METHOD_(V)        \
  V(kReference, 0, "reference")    \
  V(kSameDomain, 1, "same domain") \
  V(kBursts, 2, "bursts")          \
  V(kCorridors, 3, "corridors")    \
  V(kNone, 4, "none")              \
  V(kWallClock, 5, "wall clock")
LS_SCHEMA_ENUM_(ClockMethod, std::uint8_t, LS_CLOCK_METHOD_)
#undef LS_CLOCK_METHOD_

#define LS_RANK_STATE_(V)                           \
  V(kComplete, 0, "complete")                       \
  V(kRecovered, 1, "recovered from spool or rings") \
  V(kCutShort, 2, "cut short")                      \
  V(kMissing, 3, "missing")                         \
  V(kLeftOut, 4, "left out (--ranks)")
LS_SCHEMA_ENUM_(RankState, std::uint8_t, LS_RANK_STATE_)
#undef LS_RANK_STATE_

// Category, and one that is no range's.
#define LS_PHASE_(V)                    \
  V(kNone, 0, "none")                   \
  V(kInput, 1, "input")                 \
  V(kForward, 2, "forward")             \
  V(kBackward, 3, "backward")           \
  V(kOptimizer, 4, "optimizer")         \
  V(kCommunication, 5, "communication") \
  V(kCheckpoint, 6, "checkpoint")       \
  V(kTorchUnrecorded, 128, "in communication of torch.distributed that no source records, also counted in its category")
LS_SCHEMA_ENUM_(Phase, std::uint8_t, LS_PHASE_)
#undef LS_PHASE_

#undef LS_SCHEMA_ENUM_
#undef LS_ENUM_NAME_
#undef LS_ENUM_VALUE_

// Enumerations that core/ has for more than files.
// p2p.seq: the first number of a partitioned message; below it are those of all others.
inline constexpr std::uint64_t kPartitionedSeq = std::uint64_t{1} << 32;

inline constexpr EnumValue kModes[] = {{Code(CollectiveMode::kBlocking), "blocking"},
                                       {Code(CollectiveMode::kNonBlocking), "non-blocking"},
                                       {Code(CollectiveMode::kPersistent), "persistent"},
                                       {Code(CollectiveMode::kGpu), "gpu kernel"}};
inline constexpr EnumInfo kModeInfo{"CollectiveMode", kModes, std::size(kModes)};
template <>
inline constexpr const EnumInfo& kEnumInfo<CollectiveMode> = kModeInfo;
inline constexpr EnumValue kCauses[] = {{Code(WindowCause::kRunBegin), "run"},
                                        {Code(WindowCause::kSteps), "steps"},
                                        {Code(WindowCause::kSchedule), "schedule"},
                                        {Code(WindowCause::kRange), "range"},
                                        {Code(WindowCause::kTimer), "timer"},
                                        {Code(WindowCause::kManual), "lockstep_start or lockstep_stop"},
                                        {Code(WindowCause::kTrigger), "trigger"},
                                        {Code(WindowCause::kSizeLimit), "size limit"},
                                        {Code(WindowCause::kRunEnd), "end of the run or the process"}};
inline constexpr EnumInfo kCauseInfo{"WindowCause", kCauses, std::size(kCauses)};
template <>
inline constexpr const EnumInfo& kEnumInfo<WindowCause> = kCauseInfo;
// These are listed below the tables, or in core/mpi_ops.def.
inline constexpr EnumInfo kCollectiveInfo{"CollectiveKind"};
template <>
inline constexpr const EnumInfo& kEnumInfo<CollectiveKind> = kCollectiveInfo;
inline constexpr EnumInfo kDataTypeInfo{"DataType", nullptr, 0, ColumnType::kU16};
template <>
inline constexpr const EnumInfo& kEnumInfo<DataType> = kDataTypeInfo;
inline constexpr EnumInfo kMpiOpInfo{"see core/mpi_ops.def", nullptr, 0, ColumnType::kU16};
template <>
inline constexpr const EnumInfo& kEnumInfo<MpiOp> = kMpiOpInfo;

}  // namespace schema
}  // namespace lockstep
