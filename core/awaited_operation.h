#pragma once
// Finds the operation whose end ended a wait: collectives that another thread of the process carries out (gloo, and
// PyTorch over MPI, reduce buckets in threads of their own). The trace (merge/timeline/blocked_time.h) and the live
// figures (runtime/agent/live) use this one rule.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/interval.h"
#include "core/schema_enums.h"

namespace lockstep {

// Whether the end of an operation may have ended such a wait: another thread signalled what it waited for. Who hands
// over Python's lock has not thereby ended what it does.
constexpr bool EndsBySignal(std::uint8_t kind, bool timed_out) {
  return !timed_out && (kind == schema::BlockedKind::kCondition || kind == schema::BlockedKind::kSemaphore);
}

class CarriedOperations {
 public:
  struct Operation {
    std::uint64_t thread;  // That carries it.
    Interval at;           // An end of INT64_MAX: not ended.
  };
  static constexpr std::size_t kNone = SIZE_MAX;

  // In any order.
  explicit CarriedOperations(std::vector<Operation> operations);

  // The number, as given, of the last operation that `waker` had begun when it signalled and that had not ended before
  // the wait began; kNone. The recorded end may be before the signal: gloo's is noted before who waits is woken.
  std::size_t AwaitedBy(Interval wait, std::uint64_t waker, std::int64_t woken_ns) const;

 private:
  struct Entry {
    Operation operation;
    std::int64_t latest_end;  // Of its thread's operations up to this one.
    std::size_t number;
  };
  std::vector<Entry> entries_;  // By thread, then begin.
};

}  // namespace lockstep
