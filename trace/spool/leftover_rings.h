#pragma once
// Reads what an agent that died left in its shared segment: records that are not in the spool yet, and what each thread
// was doing. The file may be cut or damaged.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/ring_layout.h"

namespace lockstep::trace {

// A plain copy of a RingHeader's facts about its owner.
struct RingState {
  bool known = false;
  bool from_segment = false;  // False: from a kRing block, whose open gap is counted already.
  std::uint64_t dropped_records = 0, dropped_first_ticks = 0, dropped_last_ticks = 0;
  std::uint64_t call_begin_ticks = 0;
  std::uint32_t call_op = 0;
  OpenCall open_call{};  // Of call_op, if its flags say that it is known.
  OpenPolls polls{};
  // The unfinished record of an open range; end_ticks 0.
  struct OpenRange {
    RangeRecord record;
    RangeExtra extra;  // If the record has 2 slots.
  };
  std::vector<OpenRange> ranges;  // Of each source outermost first. Without those pushed while recording was off.
};
// `bytes` holds `size` of them, kOldRingHeaderBytes or kRingHeaderBytes.
RingState ParseRingHeader(const std::byte* bytes, std::size_t size);

// ProcessEntry without its atomics.
struct ProcessState {
  std::uint32_t index = 0, generation = 0;
  std::int64_t pid = 0, parent_pid = 0;
  std::uint64_t begin_ticks = 0, end_ticks = 0;
  std::int32_t world_rank = -1;
  std::uint8_t rank_source = 0, mpi_thread_level = 255, gpu_vendor = 0;
  std::int32_t world_size = 0, joined_size = 0, joined_rank = 0;
  std::uint64_t joined_begin_ticks = 0, joined_end_ticks = 0, joined_at = 0;
  std::uint32_t mpi_used = 0, lockstep_used = 0, nvtx_used = 0, torch_used = 0, cupti_used = 0, nccl_used = 0;
  std::uint32_t cupti_state = 0, gpu_flush_wanted = 0, gpu_flush_done = 0;
  std::uint64_t gpu_flushed_ticks = 0;
  std::uint64_t dropped_no_ring = 0, range_unbalanced = 0, range_too_deep = 0, request_table_full = 0;
  std::string exe;
};
// `bytes` holds sizeof(ProcessEntry).
ProcessState ParseProcessEntry(const std::byte* bytes, std::uint32_t index);

struct LeftoverRing {
  std::uint32_t ring = 0, generation = 0, process = 0;
  std::int64_t tid = 0;
  RingState state;
  std::uint64_t first_slot = 0;  // Of `slots`.
  std::vector<std::byte> slots;  // [first_slot, head), in order.
};

struct Leftover {
  bool found = false;    // The file is there and is a segment.
  bool damaged = false;  // Some of its values are out of bounds.
  std::int64_t agent_pid = 0;
  std::uint32_t clock_mode = 0;
  std::uint64_t dropped_no_ring = 0;
  std::vector<ProcessState> processes;
  std::vector<LeftoverRing> rings;
  std::vector<BurstRow> bursts;
};

// `spooled` names, per (ring, generation), the slot behind the last one in the
// spool: nothing before it is read again. Absent or foreign file: found = false.
// Read with pread, not mapped: a read fault on a hole of tmpfs would allocate
// memory, and raise SIGBUS where there is none.
struct SpooledRing {
  std::uint32_t ring, generation;
  std::uint64_t end_slot;
};
Leftover ReadLeftover(const std::string& path, const std::vector<SpooledRing>& spooled);

}  // namespace lockstep::trace
