// Time in which the training thread was blocked in libc (runtime/probe/blocked).

#include <algorithm>
#include <unordered_map>

#include "core/blocked_calls.h"
#include "core/schema_enums.h"
#include "trace/decode/process_decoder.h"
#include "trace/decode/sort_rows.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

// From here on a wait has a row (docs/definitions.md). The probe, which knows the clock's rate less well, writes some
// that were shorter.
constexpr std::int64_t kLeastBlockedNs = 20'000;
// Who waits for Python's lock waits for 5 ms at a time (sys.getswitchinterval), and asks the holder to give it up in
// between, which takes less than this.
constexpr std::int64_t kBetweenTurnsNs = 100'000;

}  // namespace

void ProcessDecoder::OnBlocked(Thread& thread, const BlockedRecord& record) {
  const std::int64_t begin_ns = thread.clock.Ns(record.begin_ticks), end_ns = thread.clock.Ns(record.end_ticks);
  thread.life.Cover(begin_ns, end_ns);
  const std::string_view name = lockstep::NameOf(static_cast<BlockedCall>(record.function));
  const auto kind = static_cast<std::uint8_t>(record.head.flags & ~kBlockedTimedOut);
  tables_.blocked.Append(
      {.begin_ns = begin_ns,
       .duration_ns = DurationNs(begin_ns, end_ns),
       .thread = thread.row,
       .kind = kind < std::size(schema::BlockedKind::kValues) ? kind : std::uint8_t{schema::BlockedKind::kOther},
       .function = Intern(name.empty() ? "?" : name),
       .object = record.object,
       .waker = kNone,
       .woken_ns = record.woken_ticks == 0 ? kNoTime : thread.clock.Ns(record.woken_ticks),
       .others_cpu_ns = record.others_cpu_ns,
       .timed_out = static_cast<std::uint8_t>((record.head.flags & kBlockedTimedOut) != 0),
       .module = TextOfThread(thread, record.module),
       .detail = TextOfThread(thread, record.detail),
       .caller = record.stack == 0 ? kNone : StackOf(record.stack)});
  waker_tids_.push_back(record.waker_tid);
}

// Rows of the training thread, by begin; of a wait inside another one (a signal's handler) the outer one.
void ProcessDecoder::FinishBlocked() {
  schema::Blocked& all = tables_.blocked;
  const schema::Threads& threads = tables_.threads;
  std::unordered_multimap<std::uint32_t, std::uint32_t> by_tid;
  std::uint32_t training = kNone;
  for (std::uint32_t i = 0; i < threads.rows(); ++i) {
    by_tid.emplace(static_cast<std::uint32_t>(threads.tid[i]), i);
    if (threads.training[i] != 0) training = threads.thread[i];
  }
  std::vector<std::uint32_t> rows;
  for (std::uint32_t i = 0; i < all.rows(); ++i) {
    if (all.thread[i] != training || all.duration_ns[i] < kLeastBlockedNs) continue;
    rows.push_back(i);
    // Of threads that had the same tid one after the other, the one that lived when it signalled, or last before: what
    // a thread does without being recorded does not show.
    std::int64_t last_ns = kNoTime;
    const auto [first, end] = by_tid.equal_range(waker_tids_[i]);
    for (auto each = first; waker_tids_[i] != 0 && each != end; ++each) {
      const std::int64_t begin_ns = threads.begin_ns[each->second];
      if (all.waker[i] != kNone && (begin_ns > all.woken_ns[i] || begin_ns < last_ns)) continue;
      all.waker[i] = threads.thread[each->second];
      last_ns = begin_ns;
    }
  }
  waker_tids_.clear();
  std::stable_sort(rows.begin(), rows.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return all.begin_ns[a] < all.begin_ns[b]; });
  std::vector<std::uint32_t> kept;
  for (const std::uint32_t row : rows) {
    if (!kept.empty()) {
      const std::uint32_t last = kept.back();
      const std::int64_t last_end_ns = all.begin_ns[last] + all.duration_ns[last];
      const std::int64_t end_ns = all.begin_ns[row] + all.duration_ns[row];
      if (end_ns <= last_end_ns) continue;
      constexpr std::uint8_t kPython = schema::BlockedKind::kPython;
      if (all.kind[row] == kPython && all.kind[last] == kPython && all.object[row] == all.object[last] &&
          all.timed_out[last] != 0 && all.begin_ns[row] - last_end_ns <= kBetweenTurnsNs) {
        const std::int64_t before_ns = all.others_cpu_ns[last], after_ns = all.others_cpu_ns[row];
        all.duration_ns[last] = end_ns - all.begin_ns[last];
        all.others_cpu_ns[last] = before_ns < 0 || after_ns < 0 ? -1 : before_ns + after_ns;
        all.timed_out[last] = all.timed_out[row];
        all.waker[last] = all.waker[row];
        all.woken_ns[last] = all.woken_ns[row];
        continue;
      }
    }
    kept.push_back(row);
  }
  TakeRows(all, kept);
}

}  // namespace lockstep::trace
