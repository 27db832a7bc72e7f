#include "trace/spool/leftover_rings.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>

#include "core/own_file.h"

namespace lockstep::trace {
namespace {

struct SegmentFile {
  OwnedFd fd;
  std::uint64_t bytes = 0;

  bool Read(std::uint64_t offset, void* out, std::uint64_t count) const {
    return offset <= bytes && count <= bytes - offset && ReadAt(fd.get(), offset, out, count);
  }
};

// Layout structs contain atomics and cannot be assigned; their bytes can be copied into new ones that no other thread
// uses.
template <typename T>
std::unique_ptr<T> CopyOf(const std::byte* bytes) {
  auto copy = std::make_unique<T>();
  std::memcpy(static_cast<void*>(copy.get()), bytes, sizeof(T));
  return copy;
}

// Reads what the ring that `entry` describes holds from slot `spooled_end` on. Returns false if something of it is
// damaged: a ring without a known state is then unusable, another one holds what precedes the damage.
bool ReadRing(const SegmentFile& file, const RingEntry& entry, std::uint64_t spooled_end, LeftoverRing& ring) {
  const std::uint64_t capacity = entry.capacity_slots, slots_offset = entry.offset + kRingHeaderBytes;
  std::vector<std::byte> bytes(kRingHeaderBytes);
  if (entry.offset < kArenaOffset || entry.offset >= file.bytes || !std::has_single_bit(capacity) ||
      slots_offset > file.bytes || capacity > (file.bytes - slots_offset) / kSlotBytes ||
      !file.Read(entry.offset, bytes.data(), bytes.size()))
    return false;
  const auto header = CopyOf<RingHeader>(bytes.data());
  const std::uint64_t head = header->head.load(std::memory_order_relaxed);
  const std::uint64_t tail = header->tail.load(std::memory_order_relaxed);
  if (head < tail || head - tail > capacity) return false;
  ring.state = ParseRingHeader(bytes.data(), bytes.size());
  ring.state.from_segment = true;
  ring.first_slot = std::min(std::max(tail, spooled_end), head);
  ring.slots.resize((head - ring.first_slot) * kSlotBytes);
  // In at most two pieces: up to the end of the ring, then from its beginning.
  for (std::uint64_t slot = ring.first_slot; slot < head;) {
    const std::uint64_t at = slot % capacity, count = std::min(head - slot, capacity - at);
    const std::uint64_t done = (slot - ring.first_slot) * kSlotBytes;
    if (!file.Read(slots_offset + at * kSlotBytes, ring.slots.data() + done, count * kSlotBytes)) {
      ring.slots.resize(done);
      return false;
    }
    slot += count;
  }
  return true;
}

}  // namespace

RingState ParseRingHeader(const std::byte* bytes, std::size_t size) {
  const auto header = CopyOf<RingHeader>(bytes);
  RingState state{.known = true,
                  .dropped_records = header->dropped_records,
                  .dropped_first_ticks = header->dropped_first_ticks,
                  .dropped_last_ticks = header->dropped_last_ticks,
                  .call_begin_ticks = header->call_begin_ticks.load(std::memory_order_relaxed),
                  .call_op = header->call_op.load(std::memory_order_acquire),
                  .open_call = header->open_call,
                  .polls = header->polls};
  if (size < kRingHeaderBytes) {
    state.polls = {};
    state.polls.calls = header->old_poll_calls;
    state.polls.first_ticks = header->old_poll_first_ticks;
    state.polls.last_ticks = header->old_poll_last_ticks;
    state.polls.rows = 1;
    state.polls.row[0] = {header->old_poll_key, header->old_poll_calls, header->old_poll_last_ticks, 0, 0, 0};
  }
  const std::uint32_t depth = std::min(std::max(header->range_depth, header->watched_depth), kMaxRangeDepth);
  for (std::uint32_t i = 0; i < depth; ++i) {
    const RingHeader::OpenRange& open = header->ranges[i];
    if (open.begin_ticks == 0) continue;
    RingState::OpenRange& range = state.ranges.emplace_back();
    range.record = {{RecordKind::kRange, static_cast<std::uint8_t>(open.head >> 8), 1},
                    open.name,
                    open.begin_ticks,
                    0,
                    static_cast<std::uint16_t>(i),
                    0,
                    0};
  }
  const std::uint32_t nvtx_depth = std::min(header->nvtx_depth, kMaxRangeDepth);
  for (std::uint32_t i = 0; i < nvtx_depth; ++i) {
    const RingHeader::OpenNvtxRange& open = header->nvtx[i];
    if (open.head == 0 || open.begin_ticks == 0) continue;
    RingState::OpenRange& range = state.ranges.emplace_back();
    const auto slots = static_cast<std::uint16_t>(open.head >> 16 == 2 ? 2 : 1);
    range.record = {{RecordKind::kRange, static_cast<std::uint8_t>(open.head >> 8), slots},
                    open.name,
                    open.begin_ticks,
                    0,
                    open.depth,
                    open.domain,
                    open.payload};
    range.extra = {open.wide_payload, open.payload_kind, {}, open.category, {}};
  }
  return state;
}

ProcessState ParseProcessEntry(const std::byte* bytes, std::uint32_t index) {
  const auto entry = CopyOf<ProcessEntry>(bytes);
  constexpr auto kRelaxed = std::memory_order_relaxed;
  return {.index = index,
          .generation = entry->generation,
          .pid = entry->pid,
          .parent_pid = entry->parent_pid,
          .begin_ticks = entry->begin_ticks,
          .end_ticks = entry->end_ticks.load(kRelaxed),
          .world_rank = entry->world_rank.load(kRelaxed),
          .rank_source = entry->rank_source.load(kRelaxed),
          .mpi_thread_level = entry->mpi_thread_level.load(kRelaxed),
          .gpu_vendor = entry->gpu_vendor.load(kRelaxed),
          .world_size = entry->world_size.load(kRelaxed),
          .joined_size = entry->joined_size.load(kRelaxed),
          .joined_rank = entry->joined_rank.load(kRelaxed),
          .joined_begin_ticks = entry->joined_begin_ticks.load(kRelaxed),
          .joined_end_ticks = entry->joined_end_ticks.load(kRelaxed),
          .joined_at = entry->joined_at.load(kRelaxed),
          .mpi_used = entry->mpi_used.load(kRelaxed),
          .lockstep_used = entry->lockstep_used.load(kRelaxed),
          .nvtx_used = entry->nvtx_used.load(kRelaxed),
          .torch_used = entry->torch_used.load(kRelaxed),
          .cupti_used = entry->cupti_used.load(kRelaxed),
          .nccl_used = entry->nccl_used.load(kRelaxed),
          .cupti_state = entry->cupti_state.load(kRelaxed),
          .gpu_flush_wanted = entry->gpu_flush_wanted.load(kRelaxed),
          .gpu_flush_done = entry->gpu_flush_done.load(kRelaxed),
          .gpu_flushed_ticks = entry->gpu_flushed_ticks.load(kRelaxed),
          .dropped_no_ring = entry->dropped_no_ring.load(kRelaxed),
          .range_unbalanced = entry->range_unbalanced.load(kRelaxed),
          .range_too_deep = entry->range_too_deep.load(kRelaxed),
          .request_table_full = entry->request_table_full.load(kRelaxed),
          .exe = std::string(entry->exe, ::strnlen(entry->exe, sizeof entry->exe))};
}

Leftover ReadLeftover(const std::string& path, const std::vector<SpooledRing>& spooled) {
  Leftover leftover;
  SegmentFile file{OpenPlain(path, O_RDONLY)};
  struct stat info {};
  if (file.fd.open() && ::fstat(file.fd.get(), &info) == 0) file.bytes = static_cast<std::uint64_t>(info.st_size);
  std::vector<std::byte> bytes(kArenaOffset);
  if (!file.Read(0, bytes.data(), bytes.size())) return leftover;
  const auto header = CopyOf<SegmentHeader>(bytes.data());
  if (header->magic != kSegmentMagic || header->version != kSegmentVersion) return leftover;
  leftover.found = true;
  leftover.agent_pid = header->agent_pid;
  leftover.clock_mode = static_cast<std::uint32_t>(header->clock_mode);
  leftover.dropped_no_ring = header->dropped_no_ring.load(std::memory_order_relaxed);

  const std::uint32_t processes = header->processes_used.load(std::memory_order_relaxed);
  const std::uint32_t rings = header->rings_used.load(std::memory_order_relaxed);
  const std::uint32_t bursts = header->burst_rows.load(std::memory_order_relaxed);
  leftover.damaged = processes > kMaxProcesses || rings > kMaxRings || bursts > kMaxProbeBursts;
  for (std::uint32_t i = 0; i < std::min(processes, kMaxProcesses); ++i) {
    const std::byte* at = bytes.data() + kProcessTableOffset + i * sizeof(ProcessEntry);
    const auto state = CopyOf<ProcessEntry>(at)->state.load(std::memory_order_relaxed);
    if (state == SlotState::kActive || state == SlotState::kClosed)
      leftover.processes.push_back(ParseProcessEntry(at, i));
  }
  leftover.bursts.resize(std::min(bursts, kMaxProbeBursts));
  if (!leftover.bursts.empty())
    std::memcpy(leftover.bursts.data(), bytes.data() + kBurstTableOffset, leftover.bursts.size() * sizeof(BurstRow));

  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> spooled_end;
  for (const SpooledRing& ring : spooled) spooled_end[{ring.ring, ring.generation}] = ring.end_slot;
  for (std::uint32_t i = 0; i < std::min(rings, kMaxRings); ++i) {
    const auto entry = CopyOf<RingEntry>(bytes.data() + kRingTableOffset + i * sizeof(RingEntry));
    const auto state = entry->state.load(std::memory_order_relaxed);
    if ((state != SlotState::kActive && state != SlotState::kClosed) || entry->offset == 0) continue;
    LeftoverRing ring{.ring = i, .generation = entry->generation, .process = entry->process, .tid = entry->tid};
    const auto seen = spooled_end.find({ring.ring, ring.generation});
    leftover.damaged |= !ReadRing(file, *entry, seen == spooled_end.end() ? 0 : seen->second, ring);
    if (ring.state.known) leftover.rings.push_back(std::move(ring));
  }
  return leftover;
}

}  // namespace lockstep::trace
