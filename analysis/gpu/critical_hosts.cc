#include "analysis/gpu/critical_hosts.h"

#include <algorithm>
#include <utility>

#include "core/rules/common.h"
#include "merge/timeline/rank_pass.h"
#include "merge/timeline/unrecorded_calls.h"

namespace lockstep::gpu {
namespace {

using schema::kNone;

}  // namespace

CriticalHosts::CriticalHosts(const DeviceActivity& activity, const StreamWaits& waits)
    : activity_(activity),
      waits_(waits),
      t_(activity.rank.tables),
      ops_(activity.timeline.ops),
      slack_ns_(activity.rank.ClockSlackNs()),
      blocking_(FindBlockingCalls(activity.rank.tables, activity.launches)) {
  FindThreads();
  FindWaits();
  Cover();
}

std::uint32_t CriticalHosts::IndexOf(std::uint32_t thread) const {
  const auto at = std::lower_bound(threads_.begin(), threads_.end(), thread,
                                   [](const HostThread& t, std::uint32_t wanted) { return t.thread < wanted; });
  return at != threads_.end() && at->thread == thread ? static_cast<std::uint32_t>(at - threads_.begin()) : kNone;
}

// Those that launch or wait: what others do the GPU never sees.
void CriticalHosts::FindThreads() {
  std::vector<std::uint32_t> threads;
  const auto add = [&](std::uint32_t thread) {
    if (thread != kNone && (threads.empty() || threads.back() != thread)) threads.push_back(thread);
  };
  for (const GpuOp& op : ops_)
    if (op.api != kNone) add(t_.api.thread[op.api]);
  for (const BlockingCall& call : blocking_) add(call.thread);
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  for (const std::uint32_t thread : threads) threads_.emplace_back().thread = thread;
}

// The operation that a blocking call waited for: its copy, else of what was launched
// before it (on its stream, if that is known) the one that ended last before it returned.
std::uint32_t CriticalHosts::WaitedFor(const BlockingCall& call, const std::vector<std::uint32_t>& by_end,
                                       const std::vector<std::uint32_t>& op_of_copy) const {
  if (call.copy != kNone) {
    const std::uint32_t op = op_of_copy[call.copy];
    const bool sound = ops_[op].end_ns > call.begin_ns && ops_[op].end_ns <= call.end_ns + slack_ns_ &&
                       ops_[op].begin_ns < call.end_ns;
    if (sound) return op;
  }
  // Where the trace says for what, nothing is guessed.
  if (call.sync != kNone && call.sync < waits_.known.size() && waits_.known[call.sync]) {
    const std::uint32_t op = waits_.released_by[call.sync];
    // One that ends after the call by the trace's clocks is cut there: for which one it waited is known.
    const bool sound =
        op != kNone && ops_[op].end_ns > call.begin_ns && ops_[op].begin_ns < std::min(ops_[op].end_ns, call.end_ns);
    return sound ? op : kNone;
  }
  const auto launched_before = [&](const GpuOp& op) {
    return op.api == kNone || t_.api.begin_ns[op.api] < call.begin_ns;
  };
  constexpr std::uint8_t kStreamSync = schema::SyncKind::kStream;
  const bool one_stream =
      call.sync != kNone && t_.sync.kind[call.sync] == kStreamSync && t_.sync.stream[call.sync] != kNone;
  auto at = std::upper_bound(by_end.begin(), by_end.end(), call.end_ns + slack_ns_,
                             [&](std::int64_t end, std::uint32_t op) { return end < ops_[op].end_ns; });
  while (at != by_end.begin()) {
    const std::uint32_t i = *--at;
    const GpuOp& op = ops_[i];
    if (op.end_ns <= call.begin_ns) break;
    if (!launched_before(op) || op.begin_ns >= std::min(op.end_ns, call.end_ns)) continue;
    const GpuStream& stream = activity_.timeline.streams[op.stream];
    if (one_stream && (stream.stream != t_.sync.stream[call.sync] || stream.device != t_.sync.device[call.sync]))
      continue;
    return i;
  }
  return kNone;
}

void CriticalHosts::FindWaits() {
  if (blocking_.empty()) return;
  std::vector<std::uint32_t> by_end, op_of_copy(t_.copies.rows(), 0);
  for (std::uint32_t i = 0; i < ops_.size(); ++i) {
    if (ops_[i].copy) op_of_copy[ops_[i].row] = i;
    if (ops_[i].busy) by_end.push_back(i);
  }
  std::stable_sort(by_end.begin(), by_end.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return ops_[a].end_ns < ops_[b].end_ns; });
  std::vector<std::vector<Interval>> blocked(threads_.size());
  for (const BlockingCall& call : blocking_) {
    const std::uint32_t thread = IndexOf(call.thread);
    if (thread == kNone) continue;
    const std::uint32_t op = WaitedFor(call, by_end, op_of_copy);
    // Waiting is no work of the host's, also where nothing shows what for: a call that spins would explain all its
    // time.
    if (op == kNone) {
      if (call.end_ns - call.begin_ns > rules::kPromptStartNs) blocked[thread].push_back({call.begin_ns, call.end_ns});
      continue;
    }
    const std::int64_t released = std::min(ops_[op].end_ns, call.end_ns);
    blocked[thread].push_back({call.begin_ns, call.end_ns - released > rules::kPromptStartNs ? call.end_ns : released});
    releases_.push_back({released, thread, op});
  }
  for (std::size_t i = 0; i < threads_.size(); ++i) threads_[i].blocked = Normalize(std::move(blocked[i]));
}

void CriticalHosts::Cover() {
  std::vector<std::vector<Interval>> covered(threads_.size()), communicates(threads_.size()), input(threads_.size());
  const auto add = [&](std::vector<std::vector<Interval>>& to, std::uint32_t thread, std::int64_t begin,
                       std::int64_t duration) {
    const std::uint32_t at = IndexOf(thread);
    if (at != kNone) to[at].push_back({begin, begin + duration});
  };
  constexpr std::uint8_t kCpuOp = schema::RangeSource::kCpuOp, kInputCategory = schema::Category::kInput;
  for (std::size_t i = 0; i < t_.ranges.rows(); ++i) {
    if (t_.ranges.source[i] == kCpuOp)
      add(covered, t_.ranges.thread[i], t_.ranges.begin_ns[i], t_.ranges.duration_ns[i]);
    if (t_.ranges.category[i] == kInputCategory)
      add(input, t_.ranges.thread[i], t_.ranges.begin_ns[i], t_.ranges.duration_ns[i]);
  }
  for (std::size_t i = 0; i < t_.api.rows(); ++i)
    add(covered, t_.api.thread[i], t_.api.begin_ns[i], t_.api.duration_ns[i]);
  for (std::size_t i = 0; i < t_.mpi_calls.rows(); ++i) {
    add(covered, t_.mpi_calls.thread[i], t_.mpi_calls.begin_ns[i], t_.mpi_calls.duration_ns[i]);
    add(communicates, t_.mpi_calls.thread[i], t_.mpi_calls.begin_ns[i], t_.mpi_calls.duration_ns[i]);
  }
  const IntervalSet unrecorded = merge::FindUnrecordedComm(t_, merge::TrainingThread(t_), true).AwaitedOperations();
  std::vector<Interval> somebody;
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    HostThread& thread = threads_[i];
    thread.covered = Subtract(Normalize(std::move(covered[i])), thread.blocked);
    thread.communicates = Unite(Normalize(std::move(communicates[i])), unrecorded);
    thread.input = Normalize(std::move(input[i]));
    somebody.insert(somebody.end(), thread.covered.begin(), thread.covered.end());
    somebody.insert(somebody.end(), thread.blocked.begin(), thread.blocked.end());
  }
  for (HostThread& thread : threads_) thread.covered_ns = merge::Measure(thread.covered);
  somebody_ = Normalize(std::move(somebody));
  somebody_ns_ = merge::Measure(somebody_);
}

}  // namespace lockstep::gpu
