#include "runtime/agent/rings/drain.h"

#include <signal.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "runtime/agent/rings/segment_entries.h"

namespace lockstep::agent {
namespace {

constexpr std::uint64_t kBlockSlots = kSpoolBlockBytes / kSlotBytes;
constexpr std::int64_t kRetryNs = 200'000'000;

// The limit for records that wait for space on a full disk. The texts of a thread take 192 KiB at the most
// (runtime/probe/strings.cc).
constexpr std::size_t kMostKeptBytes = std::size_t{1} << 20;

// A gap record is counted by the number of records that it represents.
bool IsContent(RecordKind kind) { return kind != RecordKind::kPad && kind != RecordKind::kGap; }

// Other records refer to it, or it represents many others. Such records are few, and keeping them is worth the memory.
bool IsDefinition(RecordKind kind) {
  switch (kind) {
    case RecordKind::kString:
    case RecordKind::kThreadName:
    case RecordKind::kDomain:
    case RecordKind::kCategory:
    case RecordKind::kComm:
    case RecordKind::kNcclComm:
    case RecordKind::kGpuDevice:
    case RecordKind::kGpuShape:
    case RecordKind::kFact:
    case RecordKind::kLoss:
    case RecordKind::kWindow:
      return true;
    default:
      return false;
  }
}

bool AnythingOpen(const RingHeader& ring) {
  return ring.range_depth != 0 || ring.watched_depth != 0 || ring.nvtx_depth != 0 || ring.polls.calls != 0 ||
         ring.call_op.load(std::memory_order_relaxed) != 0;
}

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
  for (std::uint32_t i = 0; i < UsedRings(segment_).size(); ++i) DrainRing(i, pass);
  WriteBursts();
  // Once the size limit was reached, what was kept is written at the end only.
  if (!over_limit_ && RawNs() >= retry_after_ns_) WriteKept(SpoolReserve::kNone);
  WriteLosses(SpoolReserve::kNone);
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
    const SpoolThread thread = ThreadOf(entry);
    seen.announced = spool_.Append({SpoolKind::kThread, index, entry.generation}, &thread, sizeof thread);
    if (seen.generation != entry.generation) seen.open = {};
    seen.generation = entry.generation;
  }
  const std::uint64_t head = ring.head.load(std::memory_order_acquire);
  std::uint64_t at = ring.tail.load(std::memory_order_relaxed);
  const std::uint64_t capacity = entry.capacity_slots;
  if (head - at > capacity) {
    // The application overwrote the ring's header, so nothing between the two positions is valid.
    if (head != at) CountLoss(Loss::kUnknownRecord, 1, "a ring's header was overwritten by the application");
    ring.tail.store(head, std::memory_order_release);
    at = head;
  }
  pass.fill = std::max(pass.fill, static_cast<double>(head - at) / static_cast<double>(capacity));

  const std::byte* slots = segment_.slots(entry.offset);
  const std::uint64_t mask = capacity - 1;
  bool of_polls = false;  // The requests of a run of polls follow it.
  while (at < head) {
    // The longest run of whole records that fits a block; at least one record.
    std::uint64_t end = at, records = 0, polls = 0, blocks = 0;
    while (end < head) {
      RecordHead record;
      std::memcpy(&record, slots + (end & mask) * kSlotBytes, sizeof record);
      const std::uint64_t length = record.slots;
      if (length == 0 || length > head - end) {
        // This is not a record: the application wrote into the ring. The rest of the ring is lost.
        if (end == at) {
          CountLoss(Loss::kUnknownRecord, 1, "a ring's records were overwritten by the application");
          ring.tail.store(head, std::memory_order_release);
          at = end = head;
        }
        break;
      }
      if (end != at && end + length - at > kBlockSlots) break;
      records += IsContent(record.kind);
      of_polls = record.kind == RecordKind::kPoll || (of_polls && record.kind == RecordKind::kCompletion);
      polls += of_polls;
      blocks += record.kind == RecordKind::kBlocked;
      end += length;
    }
    if (end == at) break;
    const std::uint64_t before = records_;
    WriteRecords(index, entry, at, end, records);
    if (records_ != before) polls_ += polls, blocks_ += blocks;
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

SpoolThread Drain::ThreadOf(const RingEntry& entry) const {
  const std::uint32_t process = std::min(entry.process, kMaxProcesses - 1);
  return {entry.tid, process, segment_.processes()[process].generation};
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
    let_go_ += records - KeepDefinitions(index, entry, first, last);
    return;
  }
  const std::int64_t now_ns = RawNs();
  if (now_ns >= retry_after_ns_ && spool_.Append(key, payload)) {
    records_bytes_ += count * kSlotBytes;
    records_ += records;
    return;
  }
  // The disk is full. The application goes on, and the records are counted as lost.
  if (now_ns >= retry_after_ns_) retry_after_ns_ = now_ns + kRetryNs;
  CountUnwritten(records - KeepDefinitions(index, entry, first, last));
}

void Drain::CountUnwritten(std::uint64_t records) {
  lost_records_ += records;
  if (records != 0) CountLoss(Loss::kSpoolWrite, records, std::strerror(spool_.last_error()));
}

std::uint64_t Drain::KeepDefinitions(std::uint32_t index, const RingEntry& entry, std::uint64_t first,
                                     std::uint64_t last) {
  const std::byte* slots = segment_.slots(entry.offset);
  const std::uint64_t mask = entry.capacity_slots - 1;
  std::uint64_t kept = 0;
  RecordHead head;
  for (std::uint64_t next = 0; first < last; first = next) {
    const auto slot = [&](std::uint64_t at) { return slots + (at & mask) * kSlotBytes; };
    std::memcpy(&head, slot(first), sizeof head);
    if (head.slots == 0 || head.slots > last - first) break;  // Overwritten after it was counted.
    next = first + head.slots;
    if (head.kind == RecordKind::kGap) {
      GapRecord gap;
      std::memcpy(&gap, slot(first), sizeof gap);
      if (gap.records != 0) AddLoss({Loss::kRingFull, ""}, gap.records, gap.first_ticks, gap.last_ticks);
    }
    const std::size_t bytes = std::size_t{head.slots} * kSlotBytes;
    if (!IsDefinition(head.kind) || kept_bytes_ + bytes > kMostKeptBytes) continue;
    Kept* run = kept_.empty() ? nullptr : &kept_.back();
    if (run == nullptr || run->ring != index || run->generation != entry.generation ||
        run->first_slot + run->bytes.size() / kSlotBytes != first)
      run = &kept_.emplace_back(Kept{index, entry.generation, first, 0, {}, {}});
    if (!rings_[index].announced) run->thread = ThreadOf(entry);
    for (std::uint64_t at = first; at < next; ++at)
      run->bytes.insert(run->bytes.end(), slot(at), slot(at) + kSlotBytes);
    run->records += 1;
    kept_bytes_ += bytes;
    ++kept;
  }
  return kept;
}

void Drain::WriteKept(SpoolReserve reserve) {
  for (; !kept_.empty(); kept_.pop_front()) {
    Kept& run = kept_.front();
    if (run.thread &&
        !spool_.Append({SpoolKind::kThread, run.ring, run.generation}, &*run.thread, sizeof *run.thread, reserve))
      return;
    run.thread.reset();
    const SpoolWriter::Key key{SpoolKind::kRecords, run.ring, run.generation, run.first_slot};
    if (!spool_.Append(key, run.bytes, reserve)) return;
    records_bytes_ += run.bytes.size();
    records_ += run.records;
    kept_bytes_ -= run.bytes.size();
  }
}

void Drain::CountLoss(Loss loss, std::uint64_t count, std::string detail) {
  limit_counted_ = limit_counted_ || loss == Loss::kBytesLimit;
  const std::uint64_t now = clock_.Ticks();
  LossCount& entry = AddLoss({loss, ""}, count, now, now);
  if (!detail.empty()) entry.detail = std::move(detail);
}

Drain::LossCount& Drain::AddLoss(const LossKey& key, std::uint64_t count, std::uint64_t first_ticks,
                                 std::uint64_t last_ticks) {
  LossCount& entry = losses_[key];
  entry.first_ticks = entry.count == 0 ? first_ticks : std::min(entry.first_ticks, first_ticks);
  entry.last_ticks = std::max(entry.last_ticks, last_ticks);
  entry.count += count;
  return entry;
}

void Drain::WriteOpen() {
  if (over_limit_) return;
  for (std::uint32_t i = 0; i < UsedRings(segment_).size(); ++i) {
    const RingEntry& entry = segment_.rings()[i];
    RingSeen& seen = rings_[i];
    if (entry.state.load(std::memory_order_acquire) != SlotState::kActive || !Valid(entry) || !seen.announced ||
        seen.generation != entry.generation)
      continue;
    const RingHeader& ring = segment_.ring(entry.offset);
    const std::uint64_t head = ring.head.load(std::memory_order_acquire);
    if (head == 0 || ring.tail.load(std::memory_order_relaxed) != head || !AnythingOpen(ring)) continue;
    const RingSeen::Open open{head, ring.call_begin_ticks.load(std::memory_order_relaxed),
                              ring.call_op.load(std::memory_order_relaxed),
                              ring.range_depth + ring.watched_depth + ring.nvtx_depth};
    if (open != seen.open && spool_.Append({SpoolKind::kRing, i, entry.generation, head}, &ring, kRingHeaderBytes))
      seen.open = open;
  }
}

// Saves the ring's header if ranges, calls or polls were open at the end, and writes the pending gap: the probe writes
// a GapRecord only together with its next record.
void Drain::LeftOpen(std::uint32_t index, const RingEntry& entry, const RingHeader& ring) {
  // What was written while it went on is replaced.
  if (std::exchange(rings_[index].open, {}).head != 0 || AnythingOpen(ring))
    if (!spool_.Append({SpoolKind::kRing, index, entry.generation}, &ring, kRingHeaderBytes, SpoolReserve::kHalf))
      CountUnwritten(1);
  if (ring.dropped_records != 0)
    AddLoss({Loss::kRingFull, "ring " + std::to_string(index) + ", thread " + std::to_string(entry.tid)},
            ring.dropped_records, ring.dropped_first_ticks, ring.dropped_last_ticks);
}

void Drain::WriteBursts() {
  const std::uint32_t rows = std::min(segment_.header().burst_rows.load(std::memory_order_acquire), kMaxProbeBursts);
  constexpr std::uint32_t kRowsPerBlock = kSpoolBlockBytes / sizeof(BurstRow);
  while (bursts_written_ < rows) {
    const std::uint32_t count = std::min(rows - bursts_written_, kRowsPerBlock);
    if (!spool_.Append({SpoolKind::kBursts}, segment_.bursts() + bursts_written_, count * sizeof(BurstRow),
                       SpoolReserve::kHalf))
      return;
    bursts_written_ += count;
  }
}

void Drain::WriteProcesses(bool all_changes, SpoolReserve reserve) {
  const std::span<ProcessEntry> used = UsedProcesses(segment_);
  for (std::uint32_t i = 0; i < used.size(); ++i) {
    ProcessEntry& entry = used[i];
    const SlotState state = entry.state.load(std::memory_order_acquire);
    if (state != SlotState::kActive && state != SlotState::kClosed) continue;
    std::string bytes(reinterpret_cast<const char*>(&entry), sizeof entry);
    std::string& last = processes_[i];
    // The counters change all the time and can wait; a change of identity or state is written at once.
    const auto same_at = [&](std::size_t offset, std::size_t size) {
      return last.size() == bytes.size() && std::memcmp(last.data() + offset, bytes.data() + offset, size) == 0;
    };
    const bool same = all_changes ? last == bytes
                                  : same_at(0, offsetof(ProcessEntry, begin_ticks)) &&
                                        same_at(offsetof(ProcessEntry, world_rank), sizeof entry.world_rank) &&
                                        same_at(offsetof(ProcessEntry, joined_size), sizeof entry.joined_size);
    // The entry also holds the process's counters, so the entry of a process that has ended is kept until it is
    // written.
    const SpoolReserve needed = state == SlotState::kClosed ? std::max(reserve, SpoolReserve::kHalf) : reserve;
    const bool written = same || spool_.Append({SpoolKind::kProcess, i, entry.generation}, bytes, needed);
    if (written && !same) last = std::move(bytes);
    if (state == SlotState::kClosed && written) {
      // The rings are freed before the entry, because their kThread blocks refer to this generation.
      const std::span<RingEntry> rings = UsedRings(segment_);
      const bool rings_left = std::any_of(rings.begin(), rings.end(), [&](const RingEntry& ring) {
        return ring.process == i && ring.state.load(std::memory_order_acquire) != SlotState::kFree;
      });
      if (!rings_left && reserve != SpoolReserve::kAll) entry.state.store(SlotState::kFree, std::memory_order_release);
    }
  }
}

void Drain::ReapDead(std::int64_t direct_child) {
  const std::span<ProcessEntry> used = UsedProcesses(segment_);
  for (std::uint32_t i = 0; i < used.size(); ++i) {
    ProcessEntry& entry = used[i];
    const SlotState state = entry.state.load(std::memory_order_acquire);
    if (state != SlotState::kActive && state != SlotState::kClosed) continue;
    if (entry.pid == direct_child || !Gone(entry.pid)) continue;
    for (RingEntry& ring : UsedRings(segment_)) {
      if (ring.process == i && ring.state.load(std::memory_order_acquire) == SlotState::kActive)
        ring.state.store(SlotState::kClosed, std::memory_order_release);
    }
    if (state == SlotState::kActive) entry.state.store(SlotState::kClosed, std::memory_order_release);
  }
}

void Drain::ForEachThread(
    const std::function<void(std::uint32_t, std::uint32_t, std::int64_t, std::int64_t)>& f) const {
  const std::span<RingEntry> used = UsedRings(segment_);
  for (std::uint32_t i = 0; i < used.size(); ++i) {
    const RingEntry& entry = used[i];
    if (entry.state.load(std::memory_order_acquire) != SlotState::kActive || entry.offset == 0) continue;
    f(i, entry.generation, segment_.processes()[std::min(entry.process, kMaxProcesses - 1)].pid, entry.tid);
  }
}

std::uint64_t Drain::dropped_records() const {
  std::uint64_t count = lost_records_ + closed_dropped_ + segment_.header().dropped_no_ring.load();
  for (const RingEntry& entry : UsedRings(segment_)) {
    if (entry.state.load(std::memory_order_acquire) == SlotState::kActive && Valid(entry))
      count += segment_.ring(entry.offset).total_dropped;
  }
  return count;
}

std::uint32_t Drain::processes() const {
  std::uint32_t count = 0;
  for (const ProcessEntry& entry : UsedProcesses(segment_))
    count += entry.state.load(std::memory_order_relaxed) != SlotState::kFree;
  return count;
}

bool Drain::WriteLosses(SpoolReserve reserve) {
  if (losses_.empty()) return true;
  // A disk that is full now will be full at the next tick, too, so one line covers the whole time.
  if (reserve == SpoolReserve::kNone && losses_.contains({Loss::kSpoolWrite, ""}) && RawNs() < retry_after_ns_)
    return false;
  std::string text;
  for (const auto& [key, entry] : losses_)
    text += std::string(Info(key.first).name) + "\t" + std::to_string(entry.count) + "\t" +
            std::to_string(entry.first_ticks) + "\t" + std::to_string(entry.last_ticks) + "\t" +
            (key.second.empty() ? entry.detail : key.second) + "\n";
  if (!spool_.Append({SpoolKind::kLoss}, text, reserve)) return false;
  losses_.clear();
  return true;
}

std::string Drain::RunLast() {
  Run();
  WriteProcesses(true, SpoolReserve::kAll);
  const std::span<RingEntry> used = UsedRings(segment_);
  for (std::uint32_t i = 0; i < used.size(); ++i) {
    const RingEntry& entry = used[i];
    if (entry.state.load(std::memory_order_acquire) == SlotState::kActive && entry.offset != 0 && Valid(entry))
      LeftOpen(i, entry, segment_.ring(entry.offset));
  }
  WriteKept(SpoolReserve::kHalf);
  std::uint64_t unwritten = 0;
  for (const Kept& run : kept_) unwritten += run.records;
  CountUnwritten(unwritten);
  kept_.clear();
  if (const std::uint64_t dropped = segment_.header().dropped_no_ring.load(); dropped > 0)
    CountLoss(Loss::kNoRing, dropped, "in processes that did not fit into the process table");
  // The limit was reached between the last tick and the end.
  if (let_go_ > 0 && !limit_counted_)
    CountLoss(Loss::kBytesLimit, 1, "at the end: " + std::to_string(let_go_) + " records not kept");
  std::string failed;
  if (!WriteLosses(SpoolReserve::kAll))
    for (const auto& [key, entry] : losses_)
      failed += (failed.empty() ? "" : ", ") + std::string(Info(key.first).name) + " " + std::to_string(entry.count);
  return failed;
}

}  // namespace lockstep::agent
