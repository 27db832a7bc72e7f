#pragma once
// The cold half of the probe: claiming a process entry and rings, writing when the
// fast path of core/ring_writer.h does not apply. Only runtime/probe includes it.

#include "core/errno_keeper.h"
#include "core/ring_writer.h"

namespace lockstep::probe {

// The thread's ring of its own while it is being written the slow path; gives the
// fast path back (or parks it) at the end. `page` null: drop, already counted.
class SlowWriter {
 public:
  explicit SlowWriter(std::uint32_t records_at_stake);
  ~SlowWriter();
  SlowWriter(const SlowWriter&) = delete;
  SlowWriter& operator=(const SlowWriter&) = delete;

  RingPage* page() const { return page_; }

  // Writes one or more whole records, given in two parts (the second may be empty; it is padded with zeros to whole
  // slots). Pending polls and gaps are written first. Returns false if there is no space; the records are counted.
  bool Append(const void* first, std::uint32_t first_slots, const void* second, std::uint32_t second_bytes,
              std::uint32_t records);
  bool Append(const void* records, std::uint32_t slots, std::uint32_t count) {
    return Append(records, slots, nullptr, 0, count);
  }
  // Thread's id of the text; 0 if it could not be written. strings.cc
  std::uint32_t Intern(const char* text);
  // The same text at the same address need not be looked up again. strings.cc
  void RememberName(const char* text, std::uint32_t id);
  // Writes the run of polls collected so far.
  void FlushPolls();
  // The same, and a gap with no record after it, which would not be written otherwise.
  void Finish();

 private:
  RingPage* page_;
};

// While it exists, records of this thread's signal handlers are dropped, because they would change what is being read.
// ring.cc
class Closed {
 public:
  Closed();
  ~Closed();
  Closed(const Closed&) = delete;
  Closed& operator=(const Closed&) = delete;

 private:
  RingPage* const before_;
};

// A range's RecordHead as it lies in memory.
constexpr std::uint32_t RangeHead(std::uint32_t flags) {
  return static_cast<std::uint32_t>(RecordKind::kRange) | flags << 8 | 1u << 16;
}

// Rings. ring.cc
RingPage* ClaimRing();       // New or recycled; null if there is none.
void Rearm(RingPage& page);  // Opens the fast path if everything allows it, else parks the ring.
void Park(RingPage& page);
void CloseRing(RingPage& page);  // The thread's end: pending records are written, and the agent may recycle the ring.
void ForgetRings();              // In a forked child.
RingPage* OwnRing();             // The thread's ring if it has one; does not claim.
void CountNoRing(std::uint32_t records);

// strings.cc
void FreeStrings(void* pool);
std::uint32_t FindText(RingPage& page,
                       const char* text);  // The thread's id if it has one, else 0. Not for signal handlers.

// Where the number of the thread's stack of this hash (not 0) is; the number is 0 if it is new. Null: there is no
// memory.
std::uint32_t* CallStackNumber(RingPage& page, std::uint64_t hash);

// Number of the frames of Python that the calling thread is in (CallStackRecord), written to its ring if new. 0: none,
// or not known. Allocates nothing, and looks for no interpreter. call_stacks.cc
std::uint32_t PythonStack(RingPage& page);

// What a tick lasts, for lockstep_probe.sample_ticks; learned from calls with the present ticks. source_support.cc
void LearnRate(std::uint64_t ticks);

// Process. process.cc
ProcessEntry* ClaimedProcess();  // Null if not claimed yet.
void MarkLockstepUsed();
void EnsureLoaded();  // The constructor's work, if an earlier constructor of the application needs it.
// Whether it is in a read-only segment of the executable: such a text cannot change and is never unmapped.
bool IsConstantText(const char* text);
// Makes sure that these pages of the segment are there: a store to a hole of a full tmpfs raises SIGBUS in the
// application. Through the mapping, where the kernel can (Linux 5.14): a descriptor, be it for a moment, might be the
// last one that another thread needs.
bool AllocateInSegment(std::uint64_t offset, std::uint64_t bytes);
void ResetSteps();  // steps.cc

}  // namespace lockstep::probe
