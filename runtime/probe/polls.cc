// Queries that found nothing: a run of them, of whatever functions and requests, becomes a record per function.

#include <algorithm>
#include <cstring>

#include "core/poll_records.h"
#include "runtime/probe/ring.h"

namespace lockstep {

using namespace probe;

namespace {

// Polls at most 20 us apart are one run, the whole of which is time in MPI (docs/definitions.md); sample_ticks are
// 200 us.
constexpr std::uint64_t kSamplesToPollGap = 10;
// Rows that are kept for those functions whose requests are no longer told apart.
constexpr std::uint32_t kUntoldRows = 8;

// The row of these requests in the run of polls; of all requests of the function if there are too many. Null: there is
// no room for the function.
OpenPolls::Row* RowOf(OpenPolls& polls, std::uint64_t op_and_request, const std::uint64_t* requests,
                      std::uint32_t count) {
  for (std::uint32_t i = 0; i < polls.rows; ++i) {
    OpenPolls::Row& row = polls.row[i];
    if (!ring::IsOf(polls, row, op_and_request, requests, count)) continue;
    polls.at = i;
    return &row;
  }
  const std::uint64_t op = op_and_request & kPollOpMask;
  const bool told = op_and_request != op || count != 0;
  if (told && (polls.rows >= kPollRows - kUntoldRows || count > kPollHandles - polls.handles))
    return RowOf(polls, op, nullptr, 0);
  if (polls.rows == kPollRows) return nullptr;
  polls.at = polls.rows++;
  OpenPolls::Row& row = polls.row[polls.at] = {op_and_request, 0, 0, 0, polls.handles, count};
  if (count != 0) std::memcpy(polls.handle + polls.handles, requests, count * sizeof *requests);
  polls.handles += count;
  return &row;
}

}  // namespace

extern "C" void lockstep_poll_slow(std::uint64_t op_and_request, const std::uint64_t* requests, std::uint32_t count,
                                   std::uint64_t begin_ticks, std::uint64_t end_ticks) {
  RingPage* page = lockstep_ring();
  if (page == nullptr) {
    // There is no ring, or a record is being written.
    if (RingPage* own = OwnRing(); own != nullptr)
      __atomic_fetch_add(&own->producer.nested_drops, 1, __ATOMIC_RELAXED);
    else
      CountNoRing(1);
    return;
  }
  OpenPolls& polls = page->header.polls;
  RingProducer& producer = page->producer;
  producer.poll_gap_ticks = lockstep_probe.sample_ticks.load(std::memory_order_relaxed) / kSamplesToPollGap;
  producer.tight_polls_needed = std::max(producer.tight_polls_needed, ring::kTightPolls);
  const std::uint64_t apart_ticks = polls.calls != 0 ? begin_ticks - polls.last_ticks : 0;
  ring::NoteTight(producer, apart_ticks, begin_ticks, end_ticks);
  const bool goes_on = polls.calls != 0 && polls.rows != 0 && apart_ticks <= producer.poll_gap_ticks;
  OpenPolls::Row* row = goes_on ? RowOf(polls, op_and_request, requests, count) : nullptr;
  if (row == nullptr) {
    SlowWriter(0).FlushPolls();
    polls.calls = polls.rows = polls.handles = 0;
    polls.first_ticks = begin_ticks;
    row = RowOf(polls, op_and_request, requests, count);
    producer.limit = producer.cursor;  // The next record ends the run first.
  }
  ring::CountPoll(polls, *row, end_ticks - begin_ticks, end_ticks);
}

void SlowWriter::FlushPolls() {
  if (page_ == nullptr || page_->header.polls.calls == 0) return;
  OpenPolls& polls = page_->header.polls;
  polls.calls = 0;  // Append() would begin here again.
  WritePolls(polls, [&](const void* records, std::uint32_t slots) { Append(records, slots, slots); });
  polls.rows = polls.handles = polls.at = 0;
  polls.row[0].op_and_request = ~std::uint64_t{0};  // Of no poll that this signal handler has interrupted.
}

}  // namespace lockstep
