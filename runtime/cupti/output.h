#pragma once
// Writes records of the flusher thread into its ring: waits for space, because the thread is ours;
// gives names and launch geometries their ids; collects losses and writes them together. One
// thread.

#include <cstdint>

#include "core/gpu_records.h"
#include "core/loss.h"
#include "core/ring_writer.h"
#include "runtime/cupti/table.h"

namespace lockstep::cupti {

class Output {
 public:
  // Writes one whole record. Returns false if there was no space in time, and the record was dropped (counted by the
  // ring).
  template <typename Record>
  bool Write(const Record& record) {
    static_assert(sizeof(Record) % kSlotBytes == 0);
    return WriteSlots(&record, sizeof(Record) / kSlotBytes);
  }
  bool WriteSlots(const void* record, std::uint32_t slots) {
    if (room_ < slots) [[unlikely]]
      Room(slots);
    room_ = room_ < slots ? 0 : room_ - slots;
    records_ += 1;
    return ring::Emit(record, slots);
  }

  // The ring's id of a text that may change or vanish behind its address; 0 for null.
  std::uint32_t Name(const char* text);
  // The ring's id of a geometry; head and id are filled in.
  std::uint32_t Shape(GpuShapeRecord& shape);

  // `count` more of a loss; ticks 0 unknown. `detail` must live as long as the process.
  void Lose(Loss loss, const char* detail, std::uint64_t count, std::uint64_t first_ticks, std::uint64_t last_ticks);
  // Writes the losses collected since.
  void WriteLosses();
  // "name\tkey=value..." (core/fact.h).
  void WriteFact(const char* text);

  // No wait continues beyond the moment in `until_raw_ns` (RawNs), which another thread may set; 0 none.
  void LimitWaits(const std::atomic<std::int64_t>* until_raw_ns) { until_raw_ns_ = until_raw_ns; }
  std::uint64_t records() const { return records_; }

 private:
  struct Lost {
    Loss loss;
    const char* detail;
    std::uint64_t count, first_ticks, last_ticks;
  };
  struct ShapeKey {
    std::int32_t grid[3], block[3];
    std::uint32_t numbers[5];
    bool operator==(const ShapeKey&) const = default;
  };
  static constexpr std::uint32_t kMostLosses = 64;

  void Room(std::uint32_t slots);

  std::uint32_t room_ = 0;                          // Slots of the ring known to be free.
  std::uint64_t stalled_tail_ = ~std::uint64_t{0};  // The reader's position when waiting for it was given up.
  const std::atomic<std::int64_t>* until_raw_ns_ = nullptr;
  std::uint64_t records_ = 0;
  TextTable names_;
  Table<ShapeKey, 4096> shapes_;
  std::uint32_t next_shape_ = 0;
  Lost losses_[kMostLosses];
  std::uint32_t losses_used_ = 0;
};

}  // namespace lockstep::cupti
