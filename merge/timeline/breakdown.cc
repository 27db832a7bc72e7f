#include "merge/timeline/breakdown.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "merge/rules/match.h"

namespace lockstep::merge {
namespace {

constexpr unsigned Bit(Activity activity) { return 1u << static_cast<unsigned>(activity); }
constexpr unsigned kBusy = Bit(Activity::kBusy), kCertain = Bit(Activity::kCertain),
                   kPossible = Bit(Activity::kPossible), kTransfer = Bit(Activity::kTransfer),
                   kWait = Bit(Activity::kWait), kInside = Bit(Activity::kInsideMpi), kCopy = Bit(Activity::kCopy),
                   kOther = Bit(Activity::kMpiOther), kInput = Bit(Activity::kInput), kIo = Bit(Activity::kMpiIo),
                   kRma = Bit(Activity::kMpiRma), kSetup = Bit(Activity::kMpiSetup), kBlocked = Bit(Activity::kBlocked),
                   kAwaited = Bit(Activity::kAwaited), kMessage = Bit(Activity::kMessage),
                   kBeside = Bit(Activity::kBeside);

Terms TermsOf(unsigned state, bool gpu, std::int64_t ns) {
  Terms terms;
  const bool compute = gpu ? (state & kBusy) != 0 : (state & (kBusy | kBlocked | kAwaited)) == 0;
  const bool blocked = !gpu && (state & (kBusy | kBlocked | kAwaited)) == kBlocked;
  const bool own = compute || blocked;
  const bool in_flight = (state & (kCertain | kPossible | (own ? kBeside : 0))) != 0;
  // Outside the rank's own work, an operation in flight is exposed whether or not it moves data, and so is waiting for
  // a message, before which nothing is in flight.
  const bool exposed = !own && (state & (kCertain | kPossible | kMessage)) != 0;
  const bool moving = exposed || (in_flight && (state & (kCertain | kInside | kBeside)) != 0);
  const bool copy = (state & kCopy) != 0;
  if (in_flight || exposed) terms.comm_high_ns = ns;
  if (moving) terms.comm_ns = ns;
  if (copy) terms.copy_ns = ns;
  if (state & kInside) terms.inside_mpi_ns = ns;
  if (own) {
    (compute ? terms.compute_ns : terms.blocked_ns) = ns;
    if (in_flight) terms.overlap_high_ns = ns;
    if (moving) terms.overlap_ns = ns;
  } else if (exposed) {
    if (state & kAwaited) terms.helper_wait_ns = ns;
    if (state & kTransfer)
      terms.exposed_transfer_ns = ns;
    else if (state & (kWait | kMessage))
      terms.exposed_wait_ns = ns, terms.message_wait_ns = state & kWait ? 0 : ns;
    else
      terms.exposed_unsplit_ns = ns;
  } else if (!gpu && (state & (kBusy | kAwaited)) == kAwaited) {
    terms.blocked_ns = terms.awaited_apart_ns = ns;  // What it waits for was not in flight yet, or no longer.
  } else if (copy) {
    terms.exposed_copy_ns = ns;
  } else {
    terms.idle_ns = ns;
    if (state & kOther) terms.mpi_other_ns = ns;
    if (state & kIo)
      terms.mpi_io_ns = ns;
    else if (state & kRma)
      terms.mpi_rma_ns = ns;
    else if (state & kSetup)
      terms.mpi_setup_ns = ns;
    if (state & kInput) terms.input_ns = ns;
  }
  return terms;
}

}  // namespace

void Terms::Add(const Terms& o) {
  compute_ns += o.compute_ns, blocked_ns += o.blocked_ns, exposed_wait_ns += o.exposed_wait_ns,
      exposed_transfer_ns += o.exposed_transfer_ns;
  exposed_unsplit_ns += o.exposed_unsplit_ns, exposed_copy_ns += o.exposed_copy_ns, idle_ns += o.idle_ns;
  comm_ns += o.comm_ns, overlap_ns += o.overlap_ns, comm_high_ns += o.comm_high_ns;
  overlap_high_ns += o.overlap_high_ns, copy_ns += o.copy_ns, mpi_other_ns += o.mpi_other_ns, input_ns += o.input_ns;
  mpi_io_ns += o.mpi_io_ns, mpi_rma_ns += o.mpi_rma_ns, mpi_setup_ns += o.mpi_setup_ns;
  helper_wait_ns += o.helper_wait_ns, message_wait_ns += o.message_wait_ns,
      blocked_unplaced_ns += o.blocked_unplaced_ns;
  awaited_apart_ns += o.awaited_apart_ns, inside_mpi_ns += o.inside_mpi_ns;
}

Terms Breakdown::StateTimes::Take(bool gpu) {
  Terms sum;
  for (const unsigned state : seen_) sum.Add(TermsOf(state, gpu, std::exchange(ns_[state], 0)));
  seen_.clear();
  return sum;
}

Breakdown::Breakdown(bool gpu, const std::vector<Interval>& windows)
    : gpu_(gpu), windows_(windows), terms_(windows.size()), order_(windows.size()) {
  for (const Interval& window : windows_) {
    if (window.end <= window.begin) continue;
    cuts_.push_back(window.begin);
    cuts_.push_back(window.end);
  }
  std::sort(cuts_.begin(), cuts_.end());
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::size_t a, std::size_t b) { return windows_[a].begin < windows_[b].begin; });
}

Breakdown::Source Breakdown::AddSource(Activity activity) {
  queues_.push_back({.bit = static_cast<unsigned>(activity), .members = {}, .unsorted = {}});
  next_.push_back(kForever);
  return queues_.size() - 1;
}

void Breakdown::Add(Source source, Interval interval) {
  // Only time inside the windows counts.
  if (interval.end <= interval.begin || cuts_.empty() || interval.end <= cuts_.front() ||
      interval.begin >= cuts_.back())
    return;
  came_late_ |= interval.begin < now_;
  Queue& queue = queues_[source];
  std::vector<Interval>& members = queue.members;
  if (members.size() == queue.head || interval.begin > members.back().end)
    members.push_back(interval);
  else if (interval.begin >= members.back().begin)
    members.back().end = std::max(members.back().end, interval.end);
  else
    queue.unsorted.push_back(interval);
}

void Breakdown::Add(Source source, const IntervalSet& set) {
  for (const Interval& member : set) Add(source, member);
}

// Moves intervals that came out of order into the queue and drops those that were passed.
void Breakdown::Settle(Queue& queue) {
  if (queue.head > 0 && (queue.head == queue.members.size() || queue.head >= rules::kBreakdownPassedIntervals)) {
    queue.members.erase(queue.members.begin(), queue.members.begin() + static_cast<std::ptrdiff_t>(queue.head));
    queue.head = 0;
  }
  if (queue.unsorted.empty()) return;
  const IntervalSet late = Normalize(std::exchange(queue.unsorted, {}));
  const IntervalSet rest(queue.members.begin() + static_cast<std::ptrdiff_t>(queue.head), queue.members.end());
  queue.members = Unite(rest, late);
  queue.head = 0;
}

std::int64_t Breakdown::NextEdge(const Queue& queue) const {
  if (queue.head == queue.members.size()) return kForever;
  return queue.on ? queue.members[queue.head].end : queue.members[queue.head].begin;
}

void Breakdown::Toggle(std::size_t source) {
  Queue& queue = queues_[source];
  if (queue.on) {
    queue.on = false;
    ++queue.head;
    if (--depth_[queue.bit] == 0) state_ &= ~(1u << queue.bit);
  } else {
    queue.on = true;
    if (depth_[queue.bit]++ == 0) state_ |= 1u << queue.bit;
  }
  next_[source] = NextEdge(queue);
}

// Walks all sources at once: between two neighbouring edges the state is one combination of activities, and only the
// total time of each combination is kept.
void Breakdown::Step(std::int64_t to, bool count) {
  while (now_ < to) {
    std::int64_t edge = to;
    for (const std::uint32_t i : active_) edge = std::min(edge, next_[i]);
    if (edge > now_) {
      if (count) by_state_.Add(state_, edge - now_);
      now_ = edge;
    }
    for (const std::uint32_t i : active_)
      if (next_[i] <= now_) Toggle(i);
  }
}

// Windows that cover the piece which begins at the last cut.
void Breakdown::OpenWindows() {
  const std::int64_t begin = cuts_[cut_ - 1];
  std::erase_if(open_, [&](std::size_t w) { return windows_[w].end <= begin; });
  for (; next_window_ < order_.size() && windows_[order_[next_window_]].begin <= begin; ++next_window_)
    if (windows_[order_[next_window_]].end > begin) open_.push_back(order_[next_window_]);
}

void Breakdown::ClosePiece() {
  const Terms sum = by_state_.Take(gpu_);
  for (const std::size_t w : open_) terms_[w].Add(sum);
}

void Breakdown::Advance(std::int64_t until_ns) {
  if (cut_ == cuts_.size() || until_ns <= now_) return;
  active_.clear();
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    Settle(queues_[i]);
    next_[i] = NextEdge(queues_[i]);
    if (next_[i] != kForever) active_.push_back(static_cast<std::uint32_t>(i));
  }
  while (now_ < until_ns && cut_ < cuts_.size()) {
    const std::int64_t to = std::min(until_ns, cuts_[cut_]);
    Step(to, cut_ > 0 && !open_.empty());
    if (now_ < cuts_[cut_]) break;
    if (cut_ > 0) ClosePiece();
    if (++cut_ < cuts_.size()) OpenWindows();
  }
}

std::vector<Terms> Breakdown::Finish() {
  Advance(kForever);
  return std::move(terms_);
}

Measure::Measure(const IntervalSet& set) : set_(&set), total_(set.size() + 1, 0) {
  for (std::size_t i = 0; i < set.size(); ++i) total_[i + 1] = total_[i] + (set[i].end - set[i].begin);
}

std::int64_t Measure::Before(std::int64_t time_ns) const {
  if (set_ == nullptr) return 0;
  const auto at = std::upper_bound(set_->begin(), set_->end(), time_ns,
                                   [](std::int64_t t, const Interval& member) { return t < member.begin; });
  if (at == set_->begin()) return 0;
  const Interval& member = at[-1];
  return total_[static_cast<std::size_t>(at - set_->begin()) - 1] + std::min(time_ns, member.end) - member.begin;
}

}  // namespace lockstep::merge
