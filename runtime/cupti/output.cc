#include "runtime/cupti/output.h"

#include <string.h>
#include <time.h>

#include <algorithm>

#include "runtime/cupti/fact.h"

namespace lockstep::cupti {
namespace {

// A running agent empties rings within its timer's 100 ms, unless its disk stalls.
constexpr std::int64_t kStallNs = 2'000'000'000;
constexpr std::uint32_t kSpareSlots = 8;  // Gap records that the ring adds by itself.
constexpr std::uint32_t kTextSlots = 1 + kMaxStringBytes / kSlotBytes;

std::uint32_t FreeSlots(const RingPage& page) {
  const std::uint64_t capacity = std::uint64_t{page.header.mask} + 1;
  const std::uint64_t used =
      page.header.head.load(std::memory_order_relaxed) - page.header.tail.load(std::memory_order_acquire);
  return used + kSpareSlots >= capacity ? 0 : static_cast<std::uint32_t>(capacity - used - kSpareSlots);
}

}  // namespace

void Output::Room(std::uint32_t slots) {
  RingPage* page = ring::Page();
  if (page == nullptr) {
    // No space becomes free: what is written is counted as lost. Not tested again for each record.
    room_ = 1024;
    return;
  }
  room_ = FreeSlots(*page);
  if (room_ >= slots) return;
  std::uint64_t tail = page->header.tail.load(std::memory_order_acquire);
  if (tail == stalled_tail_) return;
  const SegmentHeader& segment = *lockstep_probe.segment;
  std::int64_t moved_ns = RawNs();
  while (room_ < slots && segment.agent_gone.load(std::memory_order_relaxed) == 0) {
    const std::int64_t until = until_raw_ns_ != nullptr ? until_raw_ns_->load(std::memory_order_relaxed) : 0;
    if (until != 0 && RawNs() > until) return;
    const timespec wait{0, 500'000};
    nanosleep(&wait, nullptr);
    const std::int64_t now = RawNs();
    const std::uint64_t seen = page->header.tail.load(std::memory_order_acquire);
    if (seen != tail) moved_ns = now;
    tail = seen;
    room_ = FreeSlots(*page);
    if (now - moved_ns > kStallNs) {
      stalled_tail_ = tail;  // No agent reads: records are dropped and counted until one does.
      return;
    }
  }
}

std::uint32_t Output::Name(const char* text) {
  if (text == nullptr) return 0;
  if (const std::uint32_t id = names_.Find(text); id != 0) return id;
  if (ring::Page() == nullptr) return 0;
  if (room_ < kTextSlots) Room(kTextSlots);
  const std::uint32_t id = lockstep_intern(text);
  room_ = 0;
  if (id != 0) names_.Remember(text, id);
  return id;
}

std::uint32_t Output::Shape(GpuShapeRecord& shape) {
  ShapeKey key{};
  std::copy_n(shape.grid, 3, key.grid);
  std::copy_n(shape.block, 3, key.block);
  key.numbers[0] = shape.registers_per_thread;
  key.numbers[1] = shape.static_shared_bytes;
  key.numbers[2] = shape.dynamic_shared_bytes;
  key.numbers[3] = shape.cluster_size;
  key.numbers[4] = shape.local_bytes_per_thread;
  std::uint32_t* id = shapes_.Find(key);
  if (id != nullptr && *id != 0) return *id;
  shape.head = {RecordKind::kGpuShape, 0, 2};
  shape.id = ++next_shape_;
  if (id != nullptr) *id = shape.id;
  Write(shape);
  return shape.id;
}

void Output::Lose(Loss loss, const char* detail, std::uint64_t count, std::uint64_t first_ticks,
                  std::uint64_t last_ticks) {
  if (count == 0) return;
  Lost* same = nullptr;
  for (std::uint32_t i = 0; i < losses_used_ && same == nullptr; ++i)
    if (losses_[i].loss == loss && losses_[i].detail == detail) same = &losses_[i];
  if (same == nullptr) {
    if (losses_used_ == kMostLosses) WriteLosses();
    if (losses_used_ == kMostLosses) return;
    same = &losses_[losses_used_++];
    *same = {loss, detail, 0, first_ticks, last_ticks};
  }
  same->count += count;
  if (first_ticks != 0 && (same->first_ticks == 0 || first_ticks < same->first_ticks)) same->first_ticks = first_ticks;
  same->last_ticks = std::max(same->last_ticks, last_ticks);
}

void Output::WriteLosses() {
  std::uint32_t left = 0;
  for (std::uint32_t i = 0; i < losses_used_; ++i) {
    const Lost& lost = losses_[i];
    LossRecord record{};
    record.head = {RecordKind::kLoss, 0, 2};
    record.name = Name(Info(lost.loss).name.data());  // Literals: they end with a 0.
    record.detail = Name(lost.detail);
    record.count = lost.count;
    record.first_ticks = lost.first_ticks;
    record.last_ticks = lost.last_ticks;
    // The ring has no space: the losses are written next time, with those that come until then. Writing is not even
    // tried, because the ring would count each attempt as a lost record.
    if (room_ < record.head.slots) Room(record.head.slots);
    if (record.name == 0 || room_ < record.head.slots || !Write(record)) losses_[left++] = lost;
  }
  losses_used_ = left;
}

void Output::WriteFact(const char* text) {
  if (ring::Page() != nullptr && room_ < kTextSlots) Room(kTextSlots);
  EmitFact(text);
  room_ = 0;
}

}  // namespace lockstep::cupti
