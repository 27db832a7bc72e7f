#pragma once
// Moves what the probe wrote - rings, process table, burst rows - into the spool.
// A ring's space is released only after its records are in the file (or counted
// as lost when the file cannot take them). Reads the segment with suspicion: the
// application may have overwritten it.

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/event_clock.h"
#include "core/loss.h"
#include "core/ring_layout.h"
#include "runtime/agent/spool/spool_writer.h"

namespace lockstep::agent {

class Drain {
 public:
  struct Pass {
    double fill = 0;          // Fullest ring found, 0..1.
    std::uint32_t freed = 0;  // Rings whose owners are gone.
  };
  Drain(const SegmentView& segment, SpoolWriter& spool, const EventClock& clock);

  // One look at everything. Thread: the agent's main loop only.
  Pass Run();
  // The application is gone (or about to be): everything, then the counts that
  // only the segment holds. The tables' last state is written too. Returns which losses
  // the spool does not hold, because it could not be written ("RingFull 5"); "" if it holds all.
  std::string RunLast();

  // The first records that would make the spool longer, and all after them, are let go: recording has
  // stopped or is about to.
  void LimitBytes(std::uint64_t bytes) { limit_bytes_ = bytes; }
  // Sees every run of whole records of a ring, before it is in the spool.
  using Observer = std::function<void(std::uint32_t ring, const RingEntry& entry, std::span<const iovec> records)>;
  void Observe(Observer observer) { observer_ = std::move(observer); }
  void CountLoss(Loss loss, std::uint64_t count, std::string detail = {});
  // Records or samples for which the spool had no room.
  void CountUnwritten(std::uint64_t records);
  // Process table entries that changed since they were last written.
  void WriteProcesses(bool all_changes, SpoolRoom room = SpoolRoom::kUsual);
  // Frees rings and process entries whose process is gone without closing them.
  void ReapDead(std::int64_t direct_child);

  // Rings with a living owner, for CPU sampling: f(index, generation, pid, tid).
  void ForEachThread(const std::function<void(std::uint32_t, std::uint32_t, std::int64_t, std::int64_t)>& f) const;
  std::uint64_t lost_records() const { return lost_records_; }
  std::uint64_t dropped_records() const;  // With those that found their ring full, or none.
  std::uint64_t records_bytes() const { return records_bytes_; }
  std::uint64_t records() const { return records_; }
  std::uint32_t processes() const;  // With a place in the table.

 private:
  struct RingSeen {
    std::uint32_t generation = 0;
    bool announced = false;
  };
  struct LossCount {
    std::uint64_t count = 0, first_ticks = 0, last_ticks = 0;
    std::string detail;
  };
  // Of one ring ("ring 3, thread 4711") or, where that is "", of the slot.
  using LossKey = std::pair<Loss, std::string>;
  // False: the entry makes no sense.
  bool Valid(const RingEntry& entry) const;
  void DrainRing(std::uint32_t index, Pass& pass);
  void WriteRecords(std::uint32_t index, const RingEntry& entry, std::uint64_t first, std::uint64_t last,
                    std::uint64_t records);
  LossCount& AddLoss(const LossKey& key, std::uint64_t count, std::uint64_t first_ticks, std::uint64_t last_ticks);
  SpoolThread ThreadOf(const RingEntry& entry) const;
  // Of a run of records that is not written: what later records or readers cannot do without.
  // Gaps are counted for what they stand for; texts, communicators, losses and the like are kept to be written when
  // there is room again (WriteKept), where they were. Returns how many are kept.
  std::uint64_t KeepDefinitions(std::uint32_t index, const RingEntry& entry, std::uint64_t first, std::uint64_t last);
  void WriteKept(SpoolRoom room);
  void LeftOpen(std::uint32_t index, const RingEntry& entry, const RingHeader& ring);
  void WriteBursts();
  bool WriteLosses(SpoolRoom room);  // True: there are none that are not written.

  // Records of one ring that follow each other.
  struct Kept {
    std::uint32_t ring, generation;
    std::uint64_t first_slot, records;
    std::vector<std::byte> bytes;
    std::optional<SpoolThread> thread;  // Its owner, if the spool does not name it yet.
  };

  SegmentView segment_;
  SpoolWriter& spool_;
  EventClock clock_;
  Observer observer_;
  std::vector<RingSeen> rings_;
  std::vector<std::string> processes_;   // Last written bytes per index.
  std::map<LossKey, LossCount> losses_;  // Not yet written.
  std::deque<Kept> kept_;
  std::size_t kept_bytes_ = 0;
  std::uint32_t bursts_written_ = 0;
  std::uint64_t lost_records_ = 0, closed_dropped_ = 0, records_bytes_ = 0, records_ = 0, limit_bytes_ = UINT64_MAX;
  bool over_limit_ = false, limit_counted_ = false;
  std::uint64_t let_go_ = 0;         // Records beyond the limit.
  std::int64_t retry_after_ns_ = 0;  // After a failed write: not again before.
};

}  // namespace lockstep::agent
