#pragma once
// The memory shared by one slot's agent and its application processes: a header,
// a table of processes, a table of rings, then the rings themselves. The agent
// creates the file on tmpfs, allocates (fallocate) and pre-populates it ahead of
// use; the probe maps it. What the application committed survives its kill -9.
//
// Everything is offset-based and trivially copyable; atomics are lock-free.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/event_clock.h"
#include "core/record.h"

namespace lockstep {

inline constexpr std::uint64_t kSegmentMagic = 0x31474553504b434cu;  // "LCKPSEG1"
inline constexpr std::uint32_t kSegmentVersion = 8;
inline constexpr std::uint32_t kMaxProcesses = 256;
inline constexpr std::uint32_t kMaxRings = 4096;
inline constexpr std::uint32_t kMaxRangeDepth = 64;  // Of lockstep.h's ranges, and separately of NVTX's.
inline constexpr std::uint32_t kMaxStringBytes = 4096;

enum class SlotState : std::uint32_t {
  kFree = 0,
  kClaiming = 1,  // Its owner is filling it in.
  kActive = 2,
  kClosed = 3,  // Its owner ended in good order; the agent drains it, then frees it.
};

// The outcome of the agreement among all ranks on clock exchanges over the application's MPI.
enum class AnchorAgreement : std::uint32_t {
  kNone = 0,     // Not asked: no MPI, one rank, or not wanted here.
  kAgreed = 1,   // Every rank's probe said yes.
  kRefused = 2,  // Some rank voted no or did not answer.
  kNoBoard = 3,  // The process has no PMIx over which the ranks could agree.
};

// Large enough for every address of a node: 46 of IPv4, 20 of IPv6.
inline constexpr std::uint32_t kAddressListBytes = 1024;

// Filled in by the probe when MPI starts and read by the agent: the address of the reference rank's clock service, and
// this rank's part in the clock exchanges.
struct ClockMailbox {
  std::atomic<std::uint32_t> state;  // 0 nothing yet, 1 valid, 2 abandoned, 3: core/reference.h
  std::int32_t world_rank, world_size;
  std::int32_t leader;     // Lowest world rank in this rank's clock domain.
  std::int32_t reference;  // World rank of the reference leader (domain of rank 0).
  std::uint32_t domains;   // Distinct clock domains in the job.
  std::atomic<AnchorAgreement> agreement;
  std::uint64_t domain;                       // This rank's.
  std::atomic<std::int64_t> waited_ns;        // In MPI_Init, for ranks that did not answer.
  char reference_address[kAddressListBytes];  // "host:port,host:port": the reference agent's listening addresses.
  std::uint8_t reference_key[32];             // Its SegmentHeader::clock_key; all 0: it was not transmitted.
};

// Rows measured inside the application (clock anchors in MPI_Init, Finalize).
// Single producer per process (guarded by its burst count), read by the agent.
struct BurstRow {
  std::uint32_t burst;
  std::int32_t peer_rank;
  std::uint32_t transport, purpose;  // As in clock_bursts.
  std::int64_t t1, t2, t3, t4;
};
inline constexpr std::uint32_t kMaxProbeBursts = 8192;

struct ProcessEntry {
  std::atomic<SlotState> state;
  std::uint32_t generation;
  std::int64_t pid, parent_pid;
  std::uint64_t begin_ticks;
  std::atomic<std::uint64_t> end_ticks;  // 0 while alive.
  std::atomic<std::int32_t> world_rank;  // -1 unknown.
  std::atomic<std::uint8_t> rank_source, mpi_thread_level, mpi_initialized, mpi_finalized;
  std::atomic<std::uint32_t> mpi_used, lockstep_used;  // Sources that were used at all.
  std::atomic<std::uint64_t> dropped_no_ring;
  std::atomic<std::uint64_t> range_unbalanced, range_too_deep, request_table_full;
  char exe[256];
  std::atomic<std::uint8_t> self_test;    // Of the MPI wrappers: 0 not run, 1 they are the ones called, 2 they are not.
  std::atomic<std::uint8_t> python_hook;  // 0 no Python 1 hook loaded 2 torch seen and wrapped 3 gave up, see losses.
  std::atomic<std::uint32_t> nvtx_used, torch_used;
  std::atomic<std::uint32_t> cupti_used, nccl_used;
  // State of the CUPTI source: 0 CUDA was never initialised 1 recording 2 refused (a fact says why) 3 another profiler
  // uses CUPTI for now.
  std::atomic<std::uint32_t> cupti_state;
  // The agent asks (adds 1) for what CUPTI holds, because the application is about to be killed; the probe
  // answers with the number it has done. Equal: nothing is outstanding.
  std::atomic<std::uint32_t> gpu_flush_wanted, gpu_flush_done;
  std::atomic<std::uint64_t> gpu_flushed_ticks;  // Records that ended before it are in the ring; 0 never.
  std::atomic<std::uint32_t> gpu_count;          // Devices that contexts were made on, at most 4 named:
  std::uint8_t gpu_uuids[4][16];                 // for the agent's NVML samples.
  std::atomic<std::int32_t> world_size;          // Reported with world_rank; 0 unknown.
  // The largest world that the process joined (init_process_group of PyTorch), of equal ones the first: when it asked
  // and was let in, where its ranks met (a hash, 0 unknown), its size (0: it joined none) and its rank there.
  std::atomic<std::uint64_t> joined_begin_ticks, joined_end_ticks, joined_at;
  std::atomic<std::int32_t> joined_size, joined_rank;
  std::atomic<std::uint8_t> gpu_vendor;  // schema::Vendor of the GPUs, told by what records them.
  char reserved[23];
};
static_assert(sizeof(ProcessEntry) == 512);

struct RingEntry {
  std::atomic<SlotState> state;
  std::uint32_t generation;      // Incremented for each owner; together with the index it identifies a thread.
  std::uint32_t process;         // Index of ProcessEntry.
  std::uint32_t capacity_slots;  // Power of two.
  std::uint64_t offset;          // Of the RingHeader in the segment; 0 when no memory is attached yet.
  std::int64_t tid;
};
static_assert(sizeof(RingEntry) == 32);

// SegmentHeader::gpu_options.
inline constexpr std::uint32_t kGpuOff = 1;              // --gpu off: neither CUPTI nor NCCL.
inline constexpr std::uint32_t kGpuMemoryRecords = 2;    // --gpu-memory
inline constexpr std::uint32_t kGpuGraphsWhole = 4;      // --cuda-graphs whole: a record per launch, not per node.
inline constexpr std::uint32_t kNcclKernelChannels = 8;  // --nccl-kernel-channels
inline constexpr std::uint32_t kGpuBuffersShift = 16;    // Bits 16 to 31: MiB that CUPTI's buffers may take at most
                                                         // (--gpu-buffers), 0: the source's default.

struct SegmentHeader {
  std::uint64_t magic;
  std::uint32_t version, header_bytes;
  std::uint64_t segment_bytes;  // Mapped size, the upper limit.
  std::int64_t agent_pid;
  std::uint64_t run_hash;                           // Of the run id.
  std::int32_t slot_rank;                           // Rank from the launcher's environment, -1 unknown.
  std::uint32_t main_ring_slots, other_ring_slots;  // Capacity of a process's first ring, of its other rings.
  ClockMode clock_mode;
  ClockDistortion distortion;
  std::uint64_t clock_domain;
  char agent_address[kAddressListBytes];  // Where this slot's agent listens for clock exchanges, "" if it does not.
  // The run's key (comms/clock/run_key.h): a process that holds it may exchange clocks with this agent; all 0: there is
  // none. Only this user can read the segment (0600).
  std::uint8_t clock_key[32];
  std::uint32_t anchors_wanted;  // What the probe may do over MPI for the clocks: bits in core/reference.h.
  std::uint32_t anchor_timeout_ms;

  std::uint32_t gpu_options;                              // kGpu...
  std::atomic<std::uint32_t> agent_gone;                  // The agent closed the segment.
  std::uint32_t clock_agent;                              // 1: --clock agent, which says that no rank uses MPI.
  std::atomic<std::uint64_t> next_free;                   // Bump offset for ring memory.
  std::atomic<std::uint64_t> ready_bytes;                 // [0, ready) is allocated and populated.
  std::atomic<std::uint32_t> rings_used, processes_used;  // High-water marks of the tables.
  std::atomic<std::uint64_t> dropped_no_ring;
  // Which spool these rings belong to: an unpredictable number that the spool has too, and the spool's inode.
  std::uint64_t spool_nonce, spool_inode;
  std::atomic<std::uint64_t> reserved_counters[6];
  WindowSpec window;
  ClockMailbox mailbox;
  std::atomic<std::uint32_t> burst_rows;  // Rows of `bursts` written.
  std::uint32_t call_stacks;              // 1: calls are written with what called them (CallStackRecord).
  std::uint32_t blocked_off;              // 1: time in which threads are blocked is not recorded (--blocked off).
};

// What the call in RingHeader::call_op transfers, and with whom: only these facts tell later in which operation a
// thread was that never returned.
inline constexpr std::uint32_t kOpenCallHandles = 16;
inline constexpr std::uint8_t kOpenCallKnown =
    128;  // In `flags`, above those of MpiRecord; else nothing here is valid.
inline constexpr std::uint8_t kOpenCallReceives = 4;  // In `flags`: `source` and `source_tag` are a receive beside it.
struct OpenCall {
  std::uint8_t flags;    // Of MpiRecord, kMpiUneven and kMpiInterComm only.
  std::uint8_t handles;  // How many of `handle` are valid.
  std::uint16_t dtype;   // DataType
  std::uint32_t count;   // As in MpiRecord, all of these.
  std::uint64_t bytes;   // Completion calls: requests given.
  std::uint32_t comm, seq;
  std::int32_t peer, tag;
  std::int32_t source, source_tag;
  std::uint64_t handle[kOpenCallHandles];  // Completion calls: the first requests that were given.
  std::uint32_t stack;                     // As MpiRecord::start has it.
};

// Queries of MPI that found nothing, at most 20 us apart, not yet written (kPoll in record.h).
inline constexpr std::uint32_t kPollRows = 32, kPollHandles = 32;
struct OpenPolls {
  std::uint64_t calls;  // Of all rows; 0: there are none.
  std::uint64_t first_ticks, last_ticks;
  std::uint32_t rows, handles;  // Used.
  std::uint32_t at;             // The row that was counted last.
  std::uint32_t reserved;
  struct Row {
    std::uint64_t op_and_request;  // As in PollRecord. Request 0 without handles: requests are not told apart.
    std::uint64_t calls, last_ticks, inside_ticks;
    std::uint32_t first_handle, handles;  // Of a query of several requests.
  } row[kPollRows];
  std::uint64_t handle[kPollHandles];
};

// A thread's ring: this header, then capacity_slots slots.
struct RingHeader {
  // The producer's cache line: private to the thread, but kept here so that it survives kill -9.
  alignas(64) std::atomic<std::uint64_t> head;  // Slots committed; release-stored after the record.
  std::uint64_t tail_cache;
  std::uint64_t dropped_records, dropped_first_ticks, dropped_last_ticks;  // Since the last GapRecord.
  std::uint64_t records;     // Committed records; updated at least every 128 slots and at the thread's end.
  std::uint32_t mask;        // capacity_slots - 1
  std::uint32_t clock_mode;  // ClockMode, beside the head for the hot path.

  // The consumer's cache line.
  alignas(64) std::atomic<std::uint64_t> tail;  // Slots that the agent has written to the spool.

  // What the thread is doing now: shows the agent where a killed rank was.
  alignas(64) std::atomic<std::uint64_t> call_begin_ticks;
  std::atomic<std::uint32_t> call_op;  // MpiOp in progress, 0 none.
  std::uint32_t range_depth;
  std::uint64_t total_dropped;
  std::uint32_t next_string;
  // In spools of segments up to version 7: a run of polls of one request. 0 since.
  std::uint32_t old_poll_calls;
  std::uint64_t old_poll_first_ticks, old_poll_last_ticks, old_poll_key;
  std::uint64_t last_cpu_ticks;
  struct OpenRange {
    std::uint64_t begin_ticks;  // 0: pushed while recording was off, never written.
    std::uint32_t name;
    std::uint32_t head;  // The RecordHead of the RangeRecord to come: kind | flags << 8 | slots << 16.
  } ranges[kMaxRangeDepth];
  // Takes the role of range_depth while --range or --step-range examine every range. range_depth itself stays 0 then,
  // which sends every pop from the fast path to the slow path.
  std::uint32_t watched_depth;

  // NVTX ranges of all domains, in order of their pushes. A pop closes the topmost one of its domain, at whatever
  // position.
  std::uint32_t nvtx_depth;
  struct OpenNvtxRange {
    std::uint32_t head, name;  // As the future RangeRecord begins. head 0: it will not be written.
    std::uint64_t begin_ticks;
    std::uint16_t depth, domain;  // As it ends. `depth` is counted within its domain.
    std::int32_t payload;
    std::int64_t wide_payload;  // From here on for the RangeExtra, if head has 2 slots.
    std::uint32_t category;
    std::uint8_t payload_kind;
    std::uint8_t reserved[3];
  } nvtx[kMaxRangeDepth];

  // Written before call_op is set, in cache lines of its own: a waiting thread touches no other.
  alignas(64) OpenCall open_call;

  alignas(64) OpenPolls polls;
};
inline constexpr std::uint32_t kRingHeaderBytes = 12288;
inline constexpr std::uint32_t kOldRingHeaderBytes = 8192;  // Up to version 7, without `polls`.
static_assert(sizeof(RingHeader) <= kRingHeaderBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<SlotState>::is_always_lock_free);

// Fixed offsets in the segment.
inline constexpr std::uint64_t kProcessTableOffset = 4096;
inline constexpr std::uint64_t kRingTableOffset = kProcessTableOffset + sizeof(ProcessEntry) * kMaxProcesses;
inline constexpr std::uint64_t kBurstTableOffset = kRingTableOffset + sizeof(RingEntry) * kMaxRings;
inline constexpr std::uint64_t kWindowTableOffset =
    (kBurstTableOffset + sizeof(BurstRow) * kMaxProbeBursts + 4095) / 4096 * 4096;
// A window for each entry of the process table, then the slot's.
inline constexpr std::uint64_t kArenaOffset =
    (kWindowTableOffset + sizeof(ProcessWindow) * (kMaxProcesses + 1) + 4095) / 4096 * 4096;
static_assert(sizeof(SegmentHeader) <= kProcessTableOffset);

// Typed views into a mapped segment.
struct SegmentView {
  std::byte* base = nullptr;
  std::uint64_t bytes = 0;
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base); }
  ProcessEntry* processes() const { return reinterpret_cast<ProcessEntry*>(base + kProcessTableOffset); }
  ProcessWindow* windows() const { return reinterpret_cast<ProcessWindow*>(base + kWindowTableOffset); }
  ProcessWindow& slot_window() const { return windows()[kMaxProcesses]; }
  RingEntry* rings() const { return reinterpret_cast<RingEntry*>(base + kRingTableOffset); }
  BurstRow* bursts() const { return reinterpret_cast<BurstRow*>(base + kBurstTableOffset); }
  RingHeader& ring(std::uint64_t offset) const { return *reinterpret_cast<RingHeader*>(base + offset); }
  std::byte* slots(std::uint64_t offset) const { return base + offset + kRingHeaderBytes; }
};

// Whether the job is being recorded: any of the processes that decide for themselves, else any process, else (there is
// none yet) what the first one will begin with.
inline bool AnyRecording(const SegmentView& view) {
  bool decided = false, deciding_on = false, any = false, on = false;
  const std::uint32_t used = view.header().processes_used.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < used && i < kMaxProcesses; ++i) {
    if (view.processes()[i].state.load(std::memory_order_relaxed) != SlotState::kActive) continue;
    const std::uint64_t state = view.windows()[i].state.load(std::memory_order_relaxed);
    const bool decides = (state & kWindowDecides) != 0, is_on = (state & kWindowOn) != 0;
    decided |= decides;
    deciding_on |= decides && is_on;
    any = true;
    on |= is_on;
  }
  if (decided) return deciding_on;
  return any ? on : (view.slot_window().state.load(std::memory_order_relaxed) & kWindowOn) != 0;
}

}  // namespace lockstep
