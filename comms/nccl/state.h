#pragma once
// What both halves of the NCCL source know: communicators, and what the call in progress
// on this thread has to do with the plugin.
//
//   plugin.cc       NCCL's profiler plugin: ncclProfiler_v4, _v5, _v6
//   chain.cc        another plugin beside ours, which the user had set
//   mask.cc         which events NCCL gives us, following the capture window
//   calls.cc        the interposed operations
//   creation.cc     the interposed communicator functions
//   real.cc         where the functions behind ours are
//   names.cc        NCCL's names as numbers
//   handles.h       which communicator an ncclComm_t is
//
// A communicator has a number of the process, under which records name it. The plugin is
// gets commId, rank and size when it is made; interposition sees the ncclComm_t. The two
// are one where the plugin's init ran inside the creating call on the same thread, or was
// the only one of that rank and size, or an operation's API event came within the
// interposed call of that operation, which proves it.
//
// Nothing here is ever freed, and no pointer that NCCL holds is one: contexts and events
// are numbers with a generation, because NCCL uses both after their end.

#include <atomic>
#include <cstdint>

#include "core/errno_keeper.h"
#include "core/gpu_records.h"
#include "core/ring_writer.h"

namespace lockstep::nccl {

// This process is not profiled, or its GPUs are not.
inline bool Inert() {
  const SegmentHeader* segment = lockstep_probe.segment;
  return segment == nullptr || (segment->gpu_options & kGpuOff) != 0;
}

// ProcessEntry::nccl_used. runtime/probe/nvtx_nccl.cc records NCCL's ranges as calls only if neither of the first two.
inline constexpr std::uint32_t kUsedPlugin = 1, kUsedInterposed = 2, kUsedNvtx = 4;
void MarkUsed(std::uint32_t source);

struct Comm {
  enum State : std::uint32_t { kFree = 0, kFilling = 1, kLive = 2, kEnded = 3 };
  std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> generation;
  std::uint32_t number;  // Of the records.
  std::uint32_t size, nodes;
  std::int32_t rank, device;
  std::uint64_t id, parent, begin_ticks;
  NcclSource source;
  std::uint8_t mask;                     // Index in mask.cc.
  std::atomic<std::uint8_t> announced;   // 1: its record is in a ring.
  std::atomic<std::uint8_t> joined;      // 1: both sources know it.
  void* theirs;                          // The chained plugin's context.
  std::atomic<std::uint32_t> splits;     // Communicators made from it so far.
  std::atomic<std::uint64_t> calls[16];  // Per CollectiveKind; receives after them: our own sequence.
  char name[96];
};
inline constexpr std::uint32_t kMaxComms = 4096;

// Index and generation of a communicator; 0 none. NCCL holds it as context.
using CommRef = std::uint64_t;

// Null if it was replaced by another one. A communicator that has only ended is still found.
Comm* FindComm(CommRef ref);

struct CommFacts {
  NcclSource source;
  std::uint64_t id = 0, parent = 0;
  std::uint32_t size = 0, nodes = 0;
  std::int32_t rank = -1, device = -1;
  const char* name = nullptr;
};
// Returns 0 if there are kMaxComms already, which is counted. Thread: any, without locks, as for all functions below.
CommRef AddComm(const CommFacts& facts);
// Adds facts about it, if no record names it yet.
void LearnComm(Comm& comm, const CommFacts& facts);
// Records its end, once.
void EndComm(CommRef ref);
// Frees its entry: no record names it.
void DropComm(CommRef ref);
// The only live communicator of that source, size and rank that is not joined and was made at or after `since`; 0 if
// there is none or several.
CommRef OnlyUnjoined(NcclSource source, std::uint32_t size, std::int32_t rank, std::uint64_t since);

void Announce(Comm& comm);
// For records: records the communicator first if that was not done.
inline std::uint32_t NumberOf(Comm* comm) {
  if (comm == nullptr) return kNoComm;
  if (comm->announced.load(std::memory_order_relaxed) == 0) [[unlikely]]
    Announce(*comm);
  return comm->number;
}

// ncclComm_t -> communicator.
CommRef RefOf(const void* handle);
void BindHandle(const void* handle, CommRef ref);
CommRef UnbindHandle(const void* handle);  // Returns the former value.

// The interposed call in progress on this thread. NCCL calls its own interface again from
// inside (ncclBcast calls ncclBroadcast): those calls pass through.
struct CallFrame {
  CommRef seen = 0;            // The communicator whose context was passed to the plugin.
  std::uint32_t inits = 0;     // Calls of the plugin's init within this call and thread.
  bool creating = false;       // A communicator is being made.
  std::uint64_t parent = 0;    // Its parent.
  const char* name = nullptr;  // Its name.
};
extern __thread CallFrame* g_frame __attribute__((tls_model("initial-exec")));
// Open groups of this thread: a communicator made in one is not ready when its call returns.
extern __thread int g_groups __attribute__((tls_model("initial-exec")));

// Writes a row of losses; `detail` may be null. Returns false if the ring had no space.
bool WriteLoss(const char* name, const char* detail, std::uint64_t count);
// "name\tkey=value", at most 480 bytes.
void WriteFact(const char* format, ...) __attribute__((format(printf, 1, 2)));

// A loss that may happen often: written when its count reaches a power of two, and the rest at Flush.
class CountedLoss {
 public:
  constexpr CountedLoss(const char* name, const char* detail) : name_(name), detail_(detail) {}
  void Note();
  void Flush();

 private:
  const char *name_, *detail_;
  std::atomic<std::uint64_t> seen_{0}, reported_{0};
};

}  // namespace lockstep::nccl
