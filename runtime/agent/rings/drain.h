#pragma once
// Moves what the probe wrote (rings, process table, burst rows) into the spool. A ring's space is released
// only after its records are in the file, or were counted as lost because the file cannot take them. All
// positions and sizes in the segment are checked before use, because the application may have overwritten
// them.

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
    double fill = 0;          // Fill of the fullest ring, 0..1.
    std::uint32_t freed = 0;  // Rings freed because their owners have ended.
  };
  Drain(const SegmentView& segment, SpoolWriter& spool, const EventClock& clock);

  // Drains every ring and table once. Thread: the agent's main loop only.
  Pass Run();
  // The application has ended, or is about to: drains everything, then writes the counters that only the segment holds
  // and the last state of the tables. Returns the losses that the spool does not hold because it could not be written
  // ("RingFull 5"); "" if it holds all.
  std::string RunLast();

  // The first records that would make the spool longer than this, and all after them, are discarded, because recording
  // has stopped or is about to.
  void LimitBytes(std::uint64_t bytes) { limit_bytes_ = bytes; }
  // Called with every run of whole records of a ring, before it is in the spool.
  using Observer = std::function<void(std::uint32_t ring, const RingEntry& entry, std::span<const iovec> records)>;
  void Observe(Observer observer) { observer_ = std::move(observer); }
  void CountLoss(Loss loss, std::uint64_t count, std::string detail = {});
  // Counts records or samples that did not fit into the spool.
  void CountUnwritten(std::uint64_t records);
  // What threads are inside of, where that has changed since and all that they have recorded is in the spool: other
  // machines see no more of a thread that records nothing.
  void WriteOpen();
  // Process table entries that changed since they were last written.
  void WriteProcesses(bool all_changes, SpoolReserve reserve = SpoolReserve::kNone);
  // Frees the rings and process entries of processes that ended without closing them.
  void ReapDead(std::int64_t direct_child);

  // Rings with a living owner, for CPU sampling: f(index, generation, pid, tid).
  void ForEachThread(const std::function<void(std::uint32_t, std::uint32_t, std::int64_t, std::int64_t)>& f) const;
  std::uint64_t lost_records() const { return lost_records_; }
  std::uint64_t dropped_records() const;  // Includes those that found their ring full, or had no ring.
  std::uint64_t records_bytes() const { return records_bytes_; }
  std::uint64_t records() const { return records_; }
  // Of these, those of runs of calls that asked for operations in vain (MPI_Test).
  std::uint64_t polls() const { return polls_; }
  std::uint64_t blocks() const { return blocks_; }  // Likewise, calls of libc in which a thread was blocked.
  std::uint32_t processes() const;                  // Processes that have an entry in the table.

 private:
  struct RingSeen {
    std::uint32_t generation = 0;
    bool announced = false;
    // What WriteOpen wrote last; head 0: nothing.
    struct Open {
      std::uint64_t head = 0, call_begin_ticks = 0;
      std::uint32_t call_op = 0, ranges = 0;
      friend bool operator==(const Open&, const Open&) = default;
    } open;
  };
  struct LossCount {
    std::uint64_t count = 0, first_ticks = 0, last_ticks = 0;
    std::string detail;
  };
  // A loss of one ring ("ring 3, thread 4711") or, where the text is "", of the slot.
  using LossKey = std::pair<Loss, std::string>;
  // Returns false if the entry's offset or size is impossible.
  bool Valid(const RingEntry& entry) const;
  void DrainRing(std::uint32_t index, Pass& pass);
  void WriteRecords(std::uint32_t index, const RingEntry& entry, std::uint64_t first, std::uint64_t last,
                    std::uint64_t records);
  LossCount& AddLoss(const LossKey& key, std::uint64_t count, std::uint64_t first_ticks, std::uint64_t last_ticks);
  SpoolThread ThreadOf(const RingEntry& entry) const;
  // Keeps, of a run of records that cannot be written, those that later records or readers need. Gaps are counted by
  // the records that they represent; texts, communicators, losses and similar records are kept in order, to be written
  // once the disk has space again (WriteKept). Returns how many are kept.
  std::uint64_t KeepDefinitions(std::uint32_t index, const RingEntry& entry, std::uint64_t first, std::uint64_t last);
  void WriteKept(SpoolReserve reserve);
  void LeftOpen(std::uint32_t index, const RingEntry& entry, const RingHeader& ring);
  void WriteBursts();
  bool WriteLosses(SpoolReserve reserve);  // Returns true if no losses are left to write.

  // Consecutive records of one ring.
  struct Kept {
    std::uint32_t ring, generation;
    std::uint64_t first_slot, records;
    std::vector<std::byte> bytes;
    std::optional<SpoolThread> thread;  // Its owner, if the spool does not contain it yet.
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
  std::uint64_t lost_records_ = 0, closed_dropped_ = 0, records_bytes_ = 0, records_ = 0, polls_ = 0, blocks_ = 0,
                limit_bytes_ = UINT64_MAX;
  bool over_limit_ = false, limit_counted_ = false;
  std::uint64_t let_go_ = 0;         // Records discarded because of the limit.
  std::int64_t retry_after_ns_ = 0;  // After a failed write there is no other attempt before this time.
};

}  // namespace lockstep::agent
