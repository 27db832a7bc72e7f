// Polls: queries of MPI that found nothing.

#include <algorithm>

#include "trace/decode/process_decoder.h"

namespace lockstep::trace {
namespace {

using schema::kNone;

// Polls further apart are no waiting: the rank computes in between. As the probe ends its runs (docs/definitions.md).
// But a thread that polls all the time loses its core now and then, for longer: up to this part of the time.
constexpr std::int64_t kBetweenPollsNs = 20'000, kPartBetweenPolls = 10;
constexpr std::size_t kMostPolled = 64;  // Requests of a row of polls that are told apart: those of one record.

}  // namespace

void ProcessDecoder::Thread::Polls::Add(std::uint64_t request) {
  if (requests.size() == kMostPolled)
    any = true;
  else if (!Asked(request))
    requests.push_back(OpenRequests::Key(request));
}

// Not of damaged files: times of these may be anything.
bool ProcessDecoder::Thread::Polls::GoesOn(std::int64_t next_ns) const {
  std::int64_t gap = 0, all = 0, between = 0;
  if (op == 0 || __builtin_sub_overflow(next_ns, end_ns, &gap) || __builtin_sub_overflow(next_ns, begin_ns, &all) ||
      __builtin_add_overflow(between_ns, gap, &between))
    return false;
  return gap <= kBetweenPollsNs || between <= all / kPartBetweenPolls;
}

bool ProcessDecoder::Thread::Polls::Asked(std::uint64_t request) const {
  return any || std::find(requests.begin(), requests.end(), OpenRequests::Key(request)) != requests.end();
}

void ProcessDecoder::OnPoll(Thread& thread, const PollRecord& record) {
  const std::int64_t first = thread.clock.Ns(record.first_ticks);
  const std::int64_t last = std::max(first, thread.clock.Ns(record.last_ticks));
  thread.life.Cover(first, last);
  thread.probe = {};
  const std::uint64_t handle = record.op_and_request >> kPollOpBits;
  const auto op = static_cast<std::uint16_t>(record.op_and_request & kPollOpMask);
  Thread::Polls& polls = thread.polls;
  if (polls.GoesOn(first))
    polls.between_ns += first - polls.end_ns;
  else
    polls = {.begin_ns = first};
  if (polls.op == op && record.calls <= UINT32_MAX - tables_.mpi_calls.count[polls.call]) {
    tables_.mpi_calls.duration_ns[polls.call] = DurationNs(polls.row_ns, last);
    tables_.mpi_calls.count[polls.call] += record.calls;
  } else {
    polls.op = op;
    polls.call = static_cast<std::uint32_t>(tables_.mpi_calls.rows());
    polls.row_ns = first;
    tables_.mpi_calls.Append({.begin_ns = first,
                              .duration_ns = DurationNs(first, last),
                              .thread = thread.row,
                              .op = op,
                              .comm = kNone,
                              .bytes = handle != 0 ? 1 : thread.follow.size(),
                              .peer = -1,
                              .tag = -1,
                              .count = record.calls,
                              .outcome = schema::CallOutcome::kNothingCompleted});
  }
  polls.end_ns = last;
  const MpiOpInfo* info = FindMpiOp(op);
  const bool asks_for_requests = info != nullptr && info->cls == MpiClass::kTest;
  polls.messages |= static_cast<MpiOp>(op) == MpiOp::kIprobe;
  polls.any |= asks_for_requests && (handle == 0 && (thread.follow.empty() || (record.head.flags & kPollUntold) != 0));
  const auto incomplete = [&](std::uint64_t request, std::int64_t ns) {
    polls.Add(request);
    Incomplete(request, ns);
  };
  if (handle != 0) incomplete(handle, last);
  for (const CompletionRecord& completion : thread.follow)
    if ((completion.head.flags & kCompletionPending) != 0)
      incomplete(completion.request, completion.bytes != 0 ? thread.clock.Ns(completion.bytes) : last);
}

}  // namespace lockstep::trace
