#pragma once
// What the probe writes into a thread's ring: records of one or more 32-byte
// slots, fixed layouts, ticks of the event clock. The agent copies them as they
// are into the spool; trace/decode turns them into tables. The layouts are a
// contract between versions of probe and decoder: kSegmentVersion in ring_layout.h.

#include <cstdint>
#include <type_traits>

#include "core/window.h"

namespace lockstep {

inline constexpr std::uint32_t kSlotBytes = 32;

enum class RecordKind : std::uint8_t {
  kPad = 0,             // Skip `slots` slots.
  kRange = 1,           // RangeRecord
  kMpi = 2,             // MpiRecord
  kCompletion = 3,      // CompletionRecord, follows the kMpi record of its Wait or Test
  kPoll = 4,            // PollRecord: a run of unsuccessful tests or probes
  kString = 5,          // StringRecord + text
  kComm = 6,            // CommRecord + members
  kStep = 7,            // StepRecord
  kCpu = 8,             // CpuRecord
  kGap = 9,             // GapRecord: records lost here
  kThreadName = 10,     // StringRecord + text: name of the thread, or of the thread with the tid `id` if that is not 0
  kMark = 11,           // RangeRecord with begin == end.
  kRangeStartEnd = 12,  // RangeRecord of a start/end range, written when it ended
  kWindow = 13,         // WindowRecord: recording went on or off
  kDomain = 14,         // StringRecord + text: a range domain's name; `id` is the process's number of it, from 1
  kFact = 15,           // StringRecord + text, id 0: "name\tkey=value\tkey=value", see core/fact.h
  kMemory = 16,         // MemoryRecord
  kRangeStart = 17,     // RangeRecord of a start/end range that began; end_ticks is its id
  kRangeEnd = 18,       // RangeRecord: end_ticks is when it ended, begin_ticks its id; maybe another thread's
  kCategory = 19,       // StringRecord + text: an NVTX category's name; `id` is the category, reserved[0] the domain
  kLoss = 20,           // LossRecord
  kCallStack = 21,      // CallStackRecord + where a call came from
  kBlocked = 22,        // BlockedRecord
  // From 32 on: core/gpu_records.h.
  kGpuKernel = 32,
  kGpuShape = 33,
  kGpuCopy = 34,
  kGpuSync = 35,
  kGpuApi = 36,
  kGpuDevice = 37,
  kGpuOverhead = 38,
  kGpuMemory = 39,
  kNcclBegin = 48,
  kNcclEnd = 49,
  kNcclCall = 50,
  kNcclComm = 51,
  // core/torch_records.h.
  kTorchBegin = 56,
  kTorchEnd = 57,
};

// Every record begins with these four bytes.
struct RecordHead {
  RecordKind kind;
  std::uint8_t flags;
  std::uint16_t slots;  // Whole record, this slot included; never 0.
};

struct RangeRecord {   // 1 slot, or 2 with a RangeExtra behind it
  RecordHead head;     // flags: RangeSource | category << 4
  std::uint32_t name;  // Thread's string id.
  std::uint64_t begin_ticks, end_ticks;
  std::uint16_t depth;   // Nesting depth, 0 outermost.
  std::uint16_t domain;  // Process's number of the domain (kDomain), 0 the default one.
  std::int32_t payload;  // 0 none, or in the RangeExtra.
};

// Start/end ranges may end on another thread than they started on, and any number
// may be open at once: each end is a record of its own, paired by the decoder. Ids
// are unique in a process. Without its start an end means nothing (the start was
// lost, or came before recording); kRangeForgotten marks an end while recording was
// off, which is written so that its start does not look open for ever.
inline constexpr std::uint16_t kRangeForgotten = 1;  // In `depth` of a kRangeEnd.

// In the name of an operator (source 3): the shapes of its inputs follow.
inline constexpr char kShapesFollow = '\x1f';

// What few ranges have. `payload` is the number's bits as `payload_kind` says.
struct RangeExtra {  // 1 slot, the second of a RangeRecord
  std::int64_t payload;
  std::uint8_t payload_kind;  // As in the table ranges.
  std::uint8_t reserved[3];
  std::uint32_t category;  // NVTX category id, 0 none.
  std::uint64_t reserved2[2];
};

// How MPI calls are written
//
// Every call is one kMpi record. Some are followed at once, in the same ring and
// committed together with it (all or none), by kCompletion records that belong
// to it. The decoder visits the records of all threads of a process in order of
// begin_ticks and pairs posts and completions as a multiset by handle, oldest
// post first; handles need not be unique.
//
//   post (Isend, Irecv, Iallreduce, ..., Comm_idup)  kMpi with request = the handle it returned.
//   Wait*, Test* that completed something   kMpi (bytes = requests given), then one kCompletion per request
//                     completed; MPI_REQUEST_NULL is not written. Testsome and Waitsome may add one
//                     with kCompletionPending per request that was given and is still incomplete.
//   Test*, Iprobe, Improbe, Request_get_status that found nothing   a run of them, at most 20 us apart, is
//                     coalesced into one kPoll record per op, which follow one another: the run's time is
//                     divided as the time inside the calls was. One handle: it is in op_and_request.
//                     Several: request 0, then one kCompletion with kCompletionPending per handle that was
//                     seen to be incomplete, with the ticks of the last look in `bytes` (Testall does not
//                     say which is, so it adds none). kPollUntold: there were others. Of those the run
//                     bounds no end from below: counted only. RingHeader::polls: the run not yet written.
//   *_init            kMpi with request = the persistent handle; collectives: seq = the number taken.
//                     Written also while recording is off, with kMpiUnrecorded.
//   Start, Startall   kMpi, then one kCompletion with kCompletionStarted per handle, in array order;
//                     its `bytes` is the n-th start of that handle, from 1, if the probe counts
//                     them, else 0 and the decoder counts. While recording is off: kMpiUnrecorded.
//   Request_free      kMpi with request = the handle. While recording is off: kMpiUnrecorded.
//   Recv, Mrecv       kMpi as given (peer and tag may be -2), then one kCompletion with
//                     kCompletionStatus: source, tag, bytes received; request 0.
//   Mrecv, Imrecv     seq and start: low and high half of the ticks at which the matched probe returned,
//                     0 unknown: that, and not the receive, decides which message it is.
//   Sendrecv*         kMpi describes the send; one kCompletion with kCompletionStatus the receive.
//   Isendrecv*        kMpi describes the send; one kCompletion with kCompletionPending the receive as it was asked for,
//                     and kCompletionStatus if the status will describe what was received.
//   Pready*           kMpi with request = the handle of the partitioned send.
//   MPI_PROC_NULL     peer = -1: no message, no row of p2p.

// Flags of MpiRecord.
inline constexpr std::uint8_t kMpiUneven = 1, kMpiError = 2, kMpiNothingCompleted = 4, kMpiInterComm = 8;
// Of an operation with kMpiError: MPI refused its arguments. Nothing was sent or posted, and it took no number.
inline constexpr std::uint8_t kMpiRefused = kMpiError | kMpiNothingCompleted;
// 32 and 64 are in core/uneven.h. Written while recording is off, because identities depend on it: no row.
inline constexpr std::uint8_t kMpiUnrecorded = 16;

struct MpiRecord {  // 2 slots
  RecordHead head;
  std::uint16_t op;     // MpiOp
  std::uint16_t dtype;  // DataType
  std::uint64_t begin_ticks, end_ticks;
  std::uint64_t request;  // Handle of a post or init, 0 none. Handles are not unique.
  std::uint64_t bytes;    // See core/mpi_ops.def.
  std::uint32_t count;    // Elements, saturated.
  std::uint32_t comm;     // Process-wide communicator number, kNoComm.
  std::int32_t peer;      // Destination, source or root; -1 none, -2 any.
  std::int32_t tag;       // -1 none, -2 any.
  std::uint32_t seq;      // Collectives: number on comm. Sends: number of (comm, peer, tag) is the decoder's work.
  std::uint32_t start;    // Mrecv, Imrecv: see above; else the CallStackRecord of what called it, 0 none.
};
inline constexpr std::uint32_t kNoComm = 0xffffffffu;

// Flags of CompletionRecord: cancelled; completed with an error; source, tag and
// bytes are the status's; known to be incomplete still; started, not completed.
inline constexpr std::uint8_t kCompletionCancelled = 1, kCompletionError = 2, kCompletionStatus = 4,
                              kCompletionPending = 8, kCompletionStarted = 16;

struct CompletionRecord {  // 1 slot
  RecordHead head;
  std::int32_t source;
  std::uint64_t request;  // As given, copied before the call.
  std::uint64_t bytes;    // Received, if the status says.
  std::int32_t tag;
  std::uint32_t index;  // Position in the caller's array.
};

inline constexpr std::uint32_t kPollOpBits = 12;
inline constexpr std::uint64_t kPollOpMask = (1u << kPollOpBits) - 1;
inline constexpr std::uint8_t kPollUntold = 1;  // Flag: other requests were asked for, which do not follow.
struct PollRecord {                             // 1 slot; op in flags would not fit: see op
  RecordHead head;
  std::uint32_t calls;
  std::uint64_t first_ticks, last_ticks;  // First entry, last return.
  std::uint64_t op_and_request;           // op in the low kPollOpBits, request handle above (0 when several).
};

struct StringRecord {  // 1 slot + ceil(bytes / 32) slots of UTF-8
  RecordHead head;     // flags: 1 the text was cut
  std::uint32_t id;    // Per thread, from 1. 0 is "no string".
  std::uint32_t bytes;
  std::uint32_t reserved[5];
};

struct CommRecord {  // 2 slots + ceil(4 * explicit_members / 32) slots of int32 world ranks
  RecordHead head;  // flags: kComms.kind; bit 7: unidentified; bit 6: freed (only comm and ticks valid); bit 5: renamed
                    // (name only)
  std::uint32_t comm;
  std::uint64_t global_id, parent_id, ticks;
  std::uint32_t size;
  std::int32_t rank;
  std::int32_t first_world_rank, stride;  // stride 0: explicit members follow.
  std::uint32_t explicit_members;
  std::uint32_t name;  // Thread's string id, 0 none.
  std::uint64_t reserved;
};

struct StepRecord {  // 1 slot; flags: source as in steps.source; bit 7: end of the last step, no new one begins
  RecordHead head;
  // CPU time of the process's other threads, us modulo 2^32; 0 not read. What those that run have used since the last
  // tick of the kernel is not in it (thread_group_cputime, Linux 6.18: 1 to 10 ms).
  std::uint32_t others_cpu_us;
  std::int64_t index;  // Step that begins here; the previous one ends.
  std::uint64_t ticks;
  std::int64_t cpu_ns;  // CLOCK_THREAD_CPUTIME_ID, -1 not read.
};

struct CpuRecord {  // 1 slot
  RecordHead head;
  std::uint32_t reserved;
  std::uint64_t ticks;
  std::int64_t cpu_ns;
  std::int64_t run_delay_ns;  // -1 not read.
};

// The capture window (core/window.h). Written by the thread that switched.
struct WindowRecord {  // 1 slot; flags: 1 on, 0 off
  RecordHead head;
  WindowCause cause;
  std::uint8_t cut;  // Off: 1 before the window was complete.
  std::uint16_t reserved;
  std::uint64_t ticks;
  std::int64_t step;  // On: the first step in it; off: the first step after it; -1 no live steps.
  std::uint64_t reserved2;
};

struct MemoryRecord {  // 1 slot; flags: kind as in gpu_memory
  RecordHead head;
  std::uint32_t device;  // 65535: the host.
  std::uint64_t ticks, allocated_bytes, reserved_bytes;
};

// What a source could not record, or found doubtful: a row of losses. Additive.
struct LossRecord {  // 2 slots
  RecordHead head;
  std::uint32_t name;    // Thread's string id: the name in core/loss.def.
  std::uint32_t detail;  // Thread's string id, 0 none.
  std::uint32_t reserved;
  std::uint64_t count;
  std::uint64_t first_ticks, last_ticks;  // 0 unknown.
  std::uint64_t reserved2[3];
};

// What called a collective or a message (--stacks calls): written once for each stack that a thread calls from, before
// the first call's record. Behind it: return addresses, innermost first, 8 bytes each; then lines of UTF-8
// "mark\tline\tfunction\tfile\n" for the frames of Python, innermost first, with the mark "l" for the outermost of a
// call of the interpreter's loop.
struct CallStackRecord {  // 1 slot + ceil((8 * addresses + text_bytes) / 32)
  RecordHead head;
  std::uint32_t number;  // Process-wide, from 1. One stack may have several, of several threads.
  std::uint32_t addresses, text_bytes;
  std::uint64_t reserved[2];
};

// A call of libc in which a watched thread was blocked, written when it had returned.
struct BlockedRecord {     // 2 slots
  RecordHead head;         // flags: schema::BlockedKind; bit 7: it ended by its own time limit.
  std::uint16_t function;  // BlockedCall of core/blocked_calls.h
  std::uint16_t reserved;
  std::uint64_t begin_ticks, end_ticks;
  std::uint64_t object;        // Address of the lock, descriptor; 0 none.
  std::uint64_t woken_ticks;   // When another thread of the process signalled the object; 0: not seen.
  std::int64_t others_cpu_ns;  // CPU time of the process's other threads meanwhile; -1 not read.
  std::uint32_t waker_tid;     // Of the thread that signalled, 0 not seen.
  std::uint32_t module;        // Thread's string id: the library that called, 0 unknown.
  std::uint32_t detail;        // Thread's string id: path of the file, name of the peer; 0 none.
  std::uint32_t stack;         // CallStackRecord, 0 none.
};
inline constexpr std::uint8_t kBlockedTimedOut = 128;

struct GapRecord {  // 1 slot. records == 0: nothing was lost, recording was off in between.
  RecordHead head;
  std::uint32_t reserved;
  std::uint64_t first_ticks, last_ticks, records;
};

static_assert(sizeof(RecordHead) == 4);
static_assert(sizeof(RangeRecord) == kSlotBytes && sizeof(CompletionRecord) == kSlotBytes);
static_assert(sizeof(PollRecord) == kSlotBytes && sizeof(StringRecord) == kSlotBytes);
static_assert(sizeof(StepRecord) == kSlotBytes && sizeof(CpuRecord) == kSlotBytes && sizeof(GapRecord) == kSlotBytes);
static_assert(sizeof(CallStackRecord) == kSlotBytes && sizeof(BlockedRecord) == 2 * kSlotBytes);
static_assert(sizeof(RangeExtra) == kSlotBytes && sizeof(WindowRecord) == kSlotBytes);
static_assert(sizeof(MemoryRecord) == kSlotBytes && sizeof(LossRecord) == 2 * kSlotBytes);
static_assert(sizeof(MpiRecord) == 2 * kSlotBytes && sizeof(CommRecord) == 2 * kSlotBytes);
static_assert(std::is_trivially_copyable_v<MpiRecord>);

}  // namespace lockstep
