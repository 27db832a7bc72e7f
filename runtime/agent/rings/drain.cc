#include "runtime/agent/rings/drain.h"

#include <signal.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace lockstep::agent {
namespace {

constexpr std::uint64_t kBlockSlots = kSpoolBlockBytes / kSlotBytes;
constexpr std::int64_t kRetryNs = 200'000'000;

// A gap is counted by the records it stands for.
bool IsContent(RecordKind kind) { return kind != RecordKind::kPad && kind != RecordKind::kGap; }

bool Gone(std::int64_t pid) { return pid > 0 && ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH; }

}  // namespace

Drain::Drain(const SegmentView& segment, SpoolWriter& spool, const EventClock& clock)
    : segment_(segment), spool_(spool), clock_(clock), rings_(kMaxRings), processes_(kMaxProcesses) {}

bool Drain::Valid(const RingEntry& entry) const {
  if (entry.offset < kArenaOffset || entry.offset % 64 != 0 || !std::has_single_bit(entry.capacity_slots)) return false;
  const std::uint64_t bytes = kRingHeaderBytes + std::uint64_t{entry.capacity_slots} * kSlotBytes;
  return entry.offset <= segment_.bytes && bytes <= segment_.bytes - entry.offset;
}

Drain::Pass Drain::Run() {
  Pass pass;
  const std::uint32_t used = std::min(segment_.header().rings_used.load(std::memory_order_acquire), kMaxRings);
  for (std::uint32_t i = 0; i < used; ++i) DrainRing(i, pass);
  WriteBursts();
  if (!losses_.empty() || !loss_lines_.empty()) WriteLosses();
  return pass;
}

void Drain::DrainRing(std::uint32_t index, Pass& pass) {
  RingEntry& entry = segment_.rings()[index];
  const SlotState state = entry.state.load(std::memory_order_acquire);
  if ((state != SlotState::kActive && state != SlotState::kClosed) || entry.offset == 0) return;
  if (!Valid(entry)) return;
  RingHeader& ring = segment_.ring(entry.offset);
  RingSeen& seen = rings_[index];
  if (!seen.announced || seen.generation != entry.generation) {
    const std::uint32_t process = std::min(entry.process, kMaxProcesses - 1);
    const SpoolThread thread{entry.tid, process, segment_.processes()[process].generation};
    seen.announced = spool_.Append({SpoolKind::kThread, index, entry.generation}, &thread, sizeof thread);
    seen.generation = entry.generation;
  }
  const std::uint64_t head = ring.head.load(std::memory_order_acquire);
  std::uint64_t at = ring.tail.load(std::memory_order_relaxed);
  const std::uint64_t capacity = entry.capacity_slots;
  if (head - at > capacity) {
    // Overwritten by the application: nothing between can be trusted.
    if (head != at) CountLoss(Loss::kUnknownRecord, 1, "a ring's header was overwritten by the application");
    ring.tail.store(head, std::memory_order_release);
    at = head;
  }
  pass.fill = std::max(pass.fill, static_cast<double>(head - at) / static_cast<double>(capacity));
  pass.bytes += (head - at) * kSlotBytes;

  const std::byte* slots = segment_.slots(entry.offset);
  const std::uint64_t mask = capacity - 1;
  while (at < head) {
    // The longest run of whole records that fits a block; at least one record.
    std::uint64_t end = at, records = 0;
    while (end < head) {
      RecordHead record;
      std::memcpy(&record, slots + (end & mask) * kSlotBytes, sizeof record);
      const std::uint64_t length = record.slots;
      if (length == 0 || length > head - end) {
        // Not a record: the application wrote here. The rest of the ring is lost.
        if (end == at) {
          CountLoss(Loss::kUnknownRecord, 1, "a ring's records were overwritten by the application");
          ring.tail.store(head, std::memory_order_release);
          at = end = head;
        }
        break;
      }
      if (end != at && end + length - at > kBlockSlots) break;
      records += IsContent(record.kind);
      end += length;
    }
    if (end == at) break;
    WriteRecords(index, entry, at, end, records);
    ring.tail.store(end, std::memory_order_release);
    at = end;
  }
  if (state == SlotState::kClosed) {
    LeftOpen(index, entry, ring);
    closed_dropped_ += ring.total_dropped;
    seen.announced = false;
    pass.freed += 1;
    entry.state.store(SlotState::kFree, std::memory_order_release);
  }
}

void Drain::WriteRecords(std::uint32_t index, const RingEntry& entry, std::uint64_t first, std::uint64_t last,
                         std::uint64_t records) {
  const std::byte* slots = segment_.slots(entry.offset);
  const std::uint64_t capacity = entry.capacity_slots, begin = first & (capacity - 1), count = last - first;
  const std::uint64_t straight = std::min(count, capacity - begin);
  iovec parts[2] = {{const_cast<std::byte*>(slots + begin * kSlotBytes), straight * kSlotBytes},
                    {const_cast<std::byte*>(slots), (count - straight) * kSlotBytes}};
  const std::span<const iovec> payload(parts, count > straight ? 2 : 1);
  if (observer_) observer_(index, entry, payload);
  const SpoolWriter::Key key{SpoolKind::kRecords, index, entry.generation, first};
  over_limit_ = over_limit_ || spool_.bytes() + sizeof(SpoolBlockHeader) + count * kSlotBytes > limit_bytes_;
  if (over_limit_) {
    let_go_ += records;
    return;
  }
  const std::int64_t now_ns = RawNs();
  if (now_ns >= retry_after_ns_ && spool_.Append(key, payload)) {
    records_bytes_ += count * kSlotBytes;
    records_ += records;
    return;
  }
  // The disk is full: the application goes on, the records are counted.
  if (now_ns >= retry_after_ns_) retry_after_ns_ = now_ns + kRetryNs;
  lost_records_ += records;
  CountLoss(Loss::kSpoolWrite, records, std::strerror(spool_.last_error()));
  CountLostGaps(slots, capacity - 1, first, last);
}

void Drain::CountLostGaps(const std::byte* slots, std::uint64_t mask, std::uint64_t first, std::uint64_t last) {
  while (first < last) {
    RecordHead head;
    std::memcpy(&head, slots + (first & mask) * kSlotBytes, sizeof head);
    if (head.kind == RecordKind::kGap) {
      GapRecord gap;
      std::memcpy(&gap, slots + (first & mask) * kSlotBytes, sizeof gap);
      if (gap.records != 0) AddLoss(Loss::kRingFull, gap.records, gap.first_ticks, gap.last_ticks);
    }
    first += head.slots;
  }
}

void Drain::CountLoss(Loss loss, std::uint64_t count, std::string detail) {
  limit_counted_ = limit_counted_ || loss == Loss::kBytesLimit;
  const std::uint64_t now = clock_.Ticks();
  AddLoss(loss, count, now, now);
  if (!detail.empty()) losses_[static_cast<std::uint16_t>(loss)].detail = std::move(detail);
}

void Drain::AddLoss(Loss loss, std::uint64_t count, std::uint64_t first_ticks, std::uint64_t last_ticks) {
  LossCount& entry = losses_[static_cast<std::uint16_t>(loss)];
  entry.first_ticks = entry.count == 0 ? first_ticks : std::min(entry.first_ticks, first_ticks);
  entry.last_ticks = std::max(entry.last_ticks, last_ticks);
  entry.count += count;
}

// What the owner left open, and a gap: the probe writes the GapRecord only with
// its next record.
void Drain::LeftOpen(std::uint32_t index, const RingEntry& entry, const RingHeader& ring) {
  if (ring.range_depth != 0 || ring.watched_depth != 0 || ring.nvtx_depth != 0 || ring.poll_calls != 0 ||
      ring.call_op.load(std::memory_order_relaxed) != 0)
    spool_.Append({SpoolKind::kRing, index, entry.generation}, &ring, kRingHeaderBytes, true);
  if (ring.dropped_records == 0) return;
  loss_lines_.push_back(std::string(Info(Loss::kRingFull).name) + "\t" + std::to_string(ring.dropped_records) + "\t" +
                        std::to_string(ring.dropped_first_ticks) + "\t" + std::to_string(ring.dropped_last_ticks) +
                        "\tring " + std::to_string(index) + ", thread " + std::to_string(entry.tid) + "\n");
}

void Drain::WriteBursts() {
  const std::uint32_t rows = std::min(segment_.header().burst_rows.load(std::memory_order_acquire), kMaxProbeBursts);
  constexpr std::uint32_t kRowsPerBlock = kSpoolBlockBytes / sizeof(BurstRow);
  while (bursts_written_ < rows) {
    const std::uint32_t count = std::min(rows - bursts_written_, kRowsPerBlock);
    if (!spool_.Append({SpoolKind::kBursts}, segment_.bursts() + bursts_written_, count * sizeof(BurstRow), true))
      return;
    bursts_written_ += count;
  }
}

void Drain::WriteProcesses(bool all_changes, bool last_words) {
  const std::uint32_t used = std::min(segment_.header().processes_used.load(std::memory_order_acquire), kMaxProcesses);
  for (std::uint32_t i = 0; i < used; ++i) {
    ProcessEntry& entry = segment_.processes()[i];
    const SlotState state = entry.state.load(std::memory_order_acquire);
    if (state != SlotState::kActive && state != SlotState::kClosed) continue;
    std::string bytes(reinterpret_cast<const char*>(&entry), sizeof entry);
    std::string& last = processes_[i];
    // Counters change all the time; identity and state are worth a block at once.
    const auto same_at = [&](std::size_t offset, std::size_t size) {
      return last.size() == bytes.size() && std::memcmp(last.data() + offset, bytes.data() + offset, size) == 0;
    };
    const bool same = all_changes ? last == bytes
                                  : same_at(0, offsetof(ProcessEntry, begin_ticks)) &&
                                        same_at(offsetof(ProcessEntry, world_rank), sizeof entry.world_rank);
    if (!same && spool_.Append({SpoolKind::kProcess, i, entry.generation}, bytes, last_words)) last = std::move(bytes);
    if (state == SlotState::kClosed && processes_[i].size() == sizeof entry) {
      // Its rings come first: their kThread blocks name this generation.
      bool rings_left = false;
      const std::uint32_t rings = std::min(segment_.header().rings_used.load(std::memory_order_acquire), kMaxRings);
      for (std::uint32_t r = 0; r < rings && !rings_left; ++r) {
        const RingEntry& ring = segment_.rings()[r];
        rings_left = ring.process == i && ring.state.load(std::memory_order_acquire) != SlotState::kFree;
      }
      if (!rings_left && !last_words) entry.state.store(SlotState::kFree, std::memory_order_release);
    }
  }
}

void Drain::ReapDead(std::int64_t direct_child) {
  const std::uint32_t used = std::min(segment_.header().processes_used.load(std::memory_order_acquire), kMaxProcesses);
  for (std::uint32_t i = 0; i < used; ++i) {
    ProcessEntry& entry = segment_.processes()[i];
    const SlotState state = entry.state.load(std::memory_order_acquire);
    if (state != SlotState::kActive && state != SlotState::kClosed) continue;
    if (entry.pid == direct_child || !Gone(entry.pid)) continue;
    const std::uint32_t rings = std::min(segment_.header().rings_used.load(std::memory_order_acquire), kMaxRings);
    for (std::uint32_t r = 0; r < rings; ++r) {
      RingEntry& ring = segment_.rings()[r];
      if (ring.process == i && ring.state.load(std::memory_order_acquire) == SlotState::kActive)
        ring.state.store(SlotState::kClosed, std::memory_order_release);
    }
    if (state == SlotState::kActive) entry.state.store(SlotState::kClosed, std::memory_order_release);
  }
}

void Drain::ForEachThread(
    const std::function<void(std::uint32_t, std::uint32_t, std::int64_t, std::int64_t)>& f) const {
  const std::uint32_t used = std::min(segment_.header().rings_used.load(std::memory_order_acquire), kMaxRings);
  for (std::uint32_t i = 0; i < used; ++i) {
    const RingEntry& entry = segment_.rings()[i];
    if (entry.state.load(std::memory_order_acquire) != SlotState::kActive || entry.offset == 0) continue;
    f(i, entry.generation, segment_.processes()[std::min(entry.process, kMaxProcesses - 1)].pid, entry.tid);
  }
}

std::uint64_t Drain::dropped_records() const {
  std::uint64_t count = lost_records_ + closed_dropped_ + segment_.header().dropped_no_ring.load();
  const std::uint32_t used = std::min(segment_.header().rings_used.load(std::memory_order_acquire), kMaxRings);
  for (std::uint32_t i = 0; i < used; ++i) {
    const RingEntry& entry = segment_.rings()[i];
    if (entry.state.load(std::memory_order_acquire) == SlotState::kActive && Valid(entry))
      count += segment_.ring(entry.offset).total_dropped;
  }
  return count;
}

bool Drain::any_process() const { return segment_.header().processes_used.load(std::memory_order_acquire) > 0; }

std::uint32_t Drain::processes() const {
  const std::uint32_t used = std::min(segment_.header().processes_used.load(std::memory_order_acquire), kMaxProcesses);
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < used; ++i)
    count += segment_.processes()[i].state.load(std::memory_order_relaxed) != SlotState::kFree;
  return count;
}

bool Drain::mpi_initialized() const {
  const std::uint32_t used = std::min(segment_.header().processes_used.load(std::memory_order_acquire), kMaxProcesses);
  for (std::uint32_t i = 0; i < used; ++i)
    if (segment_.processes()[i].mpi_initialized.load(std::memory_order_relaxed) != 0) return true;
  return false;
}

std::string Drain::LossText() const {
  std::string text;
  for (const auto& [loss, entry] : losses_)
    text += std::string(Info(static_cast<Loss>(loss)).name) + "\t" + std::to_string(entry.count) + "\t" +
            std::to_string(entry.first_ticks) + "\t" + std::to_string(entry.last_ticks) + "\t" + entry.detail + "\n";
  for (const std::string& line : loss_lines_) text += line;
  return text;
}

void Drain::WriteLosses() {
  const std::string text = LossText();
  if (text.empty()) return;
  // A disk that is full now will be at the next tick: one line for the whole time is
  // enough, and the reserve is for the end.
  const bool disk_trouble = losses_.contains(static_cast<std::uint16_t>(Loss::kSpoolWrite));
  if (disk_trouble && RawNs() < retry_after_ns_) return;
  if (spool_.Append({SpoolKind::kLoss}, text)) {
    losses_.clear();
    loss_lines_.clear();
  }
}

void Drain::RunLast() {
  Run();
  WriteProcesses(true, true);
  const std::uint32_t used = std::min(segment_.header().rings_used.load(std::memory_order_acquire), kMaxRings);
  for (std::uint32_t i = 0; i < used; ++i) {
    const RingEntry& entry = segment_.rings()[i];
    if (entry.state.load(std::memory_order_acquire) == SlotState::kActive && entry.offset != 0 && Valid(entry))
      LeftOpen(i, entry, segment_.ring(entry.offset));
  }
  if (const std::uint64_t dropped = segment_.header().dropped_no_ring.load(); dropped > 0)
    CountLoss(Loss::kNoRing, dropped, "in processes that did not fit into the process table");
  // Reached between the last look and the end.
  if (let_go_ > 0 && !limit_counted_)
    CountLoss(Loss::kBytesLimit, 1, "at the end: " + std::to_string(let_go_) + " records not kept");
  if (const std::string text = LossText(); !text.empty()) spool_.Append({SpoolKind::kLoss}, text, true);
  losses_.clear();
  loss_lines_.clear();
}

}  // namespace lockstep::agent
