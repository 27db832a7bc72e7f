#include "merge/timeline/breakdown.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

// Bits of an instant's state, in the order of the streams below.
enum Bit : unsigned {
  kBusy = 1,
  kCertain = 2,
  kPossible = 4,
  kTransfer = 8,
  kWait = 16,
  kInside = 32,
  kCopy = 64,
  kOther = 128,
  kInput = 256,
  kIo = 512,
  kRma = 1024
};
constexpr std::size_t kStreams = 11;

// Time by state, with a list of the states that occurred: few of them do.
class StateTimes {
 public:
  void Add(unsigned state, std::int64_t ns) {
    if (ns_[state] == 0) seen_.push_back(state);
    ns_[state] += ns;
  }
  // Calls f(state, ns) for each and forgets them.
  template <typename F>
  void Take(F&& f) {
    for (const unsigned state : seen_) f(state, std::exchange(ns_[state], 0));
    seen_.clear();
  }

 private:
  std::array<std::int64_t, 1u << kStreams> ns_{};
  std::vector<unsigned> seen_;
};

// Walks all sets at once: between two neighbouring boundaries the state is one
// combination of bits, and only the length of each combination is kept.
class Sweep {
 public:
  explicit Sweep(const RankActivity& activity)
      : sets_{&activity.busy,  &activity.certain,    &activity.possible, &activity.transfer,
              &activity.wait,  &activity.inside_mpi, &activity.copy,     &activity.mpi_other,
              &activity.input, &activity.mpi_io,     &activity.mpi_rma} {
    for (std::size_t i = 0; i < kStreams; ++i)
      if (!sets_[i]->empty()) streams_[used_++] = {sets_[i]->data(), sets_[i]->data() + sets_[i]->size(), 1u << i};
    next_.fill(kForever);
    for (std::size_t i = 0; i < used_; ++i) next_[i] = streams_[i].at->begin;
  }

  // Adds [from, to) by state. Calls must not go backwards.
  void Advance(std::int64_t from, std::int64_t to, StateTimes& by_state) {
    if (now_ < from) Step(from, nullptr);
    Step(to, &by_state);
  }

 private:
  struct Stream {
    const Interval *at, *end;
    unsigned bit;
  };

  void Step(std::int64_t to, StateTimes* by_state) {
    while (now_ < to) {
      std::int64_t edge = to;
      for (std::size_t i = 0; i < used_; ++i) edge = std::min(edge, next_[i]);
      if (edge > now_) {
        if (by_state != nullptr) by_state->Add(state_, edge - now_);
        now_ = edge;
      }
      for (std::size_t i = 0; i < used_; ++i)
        if (next_[i] <= now_) Toggle(i);
    }
  }

  void Toggle(std::size_t i) {
    Stream& stream = streams_[i];
    state_ ^= stream.bit;
    if (state_ & stream.bit) {
      next_[i] = stream.at->end;
    } else {
      ++stream.at;
      next_[i] = stream.at == stream.end ? kForever : stream.at->begin;
    }
  }

  std::array<const IntervalSet*, kStreams> sets_;
  std::array<Stream, kStreams> streams_{};
  std::array<std::int64_t, kStreams> next_{};
  std::size_t used_ = 0;
  unsigned state_ = 0;
  std::int64_t now_ = std::numeric_limits<std::int64_t>::min();
};

Terms TermsOf(unsigned state, bool gpu, std::int64_t ns) {
  Terms terms;
  const bool compute = gpu == ((state & kBusy) != 0);
  const bool in_flight = (state & (kCertain | kPossible)) != 0;
  // Outside compute an operation in flight is exposed whether or not it moves.
  const bool moving = in_flight && ((state & (kCertain | kInside)) != 0 || !compute);
  const bool copy = (state & kCopy) != 0;
  if (in_flight) terms.comm_high_ns = ns;
  if (moving) terms.comm_ns = ns;
  if (copy) terms.copy_ns = ns;
  if (compute) {
    terms.compute_ns = ns;
    if (in_flight) terms.overlap_high_ns = ns;
    if (moving) terms.overlap_ns = ns;
  } else if (in_flight) {
    if (state & kTransfer)
      terms.exposed_transfer_ns = ns;
    else if (state & kWait)
      terms.exposed_wait_ns = ns;
    else
      terms.exposed_unsplit_ns = ns;
  } else if (copy) {
    terms.exposed_copy_ns = ns;
  } else {
    terms.idle_ns = ns;
    if (state & kOther) terms.mpi_other_ns = ns;
    if (state & kIo)
      terms.mpi_io_ns = ns;
    else if (state & kRma)
      terms.mpi_rma_ns = ns;
    if (state & kInput) terms.input_ns = ns;
  }
  return terms;
}

}  // namespace

void Terms::Add(const Terms& o) {
  compute_ns += o.compute_ns, exposed_wait_ns += o.exposed_wait_ns, exposed_transfer_ns += o.exposed_transfer_ns;
  exposed_unsplit_ns += o.exposed_unsplit_ns, exposed_copy_ns += o.exposed_copy_ns, idle_ns += o.idle_ns;
  comm_ns += o.comm_ns, overlap_ns += o.overlap_ns, comm_high_ns += o.comm_high_ns;
  overlap_high_ns += o.overlap_high_ns, copy_ns += o.copy_ns, mpi_other_ns += o.mpi_other_ns, input_ns += o.input_ns;
  mpi_io_ns += o.mpi_io_ns, mpi_rma_ns += o.mpi_rma_ns;
}

void AddOps(const std::vector<CommOp>& ops, RankActivity& activity) {
  std::vector<Interval> certain, possible, transfer, wait;
  for (const CommOp& op : ops) {
    (op.certain ? certain : possible).push_back({op.begin_ns, op.end_ns});
    if (op.wait_end_ns > op.begin_ns) wait.push_back({op.begin_ns, op.wait_end_ns});
    if (op.end_ns > op.transfer_begin_ns) transfer.push_back({op.transfer_begin_ns, op.end_ns});
  }
  activity.certain = Normalize(std::move(certain));
  activity.possible = Normalize(std::move(possible));
  activity.transfer = Normalize(std::move(transfer));
  activity.wait = Normalize(std::move(wait));
}

std::vector<Terms> BreakDown(const RankActivity& activity, const std::vector<Interval>& windows) {
  std::vector<Terms> terms(windows.size());
  // Cut time at every window edge: each piece lies wholly inside or outside each window.
  std::vector<std::int64_t> edges;
  for (const Interval& window : windows) {
    if (window.end <= window.begin) continue;
    edges.push_back(window.begin);
    edges.push_back(window.end);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  std::vector<std::size_t> order(windows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return windows[a].begin < windows[b].begin; });

  Sweep sweep(activity);
  StateTimes by_state;
  std::vector<std::size_t> open;
  std::size_t next = 0;
  for (std::size_t e = 0; e + 1 < edges.size(); ++e) {
    const Interval piece{edges[e], edges[e + 1]};
    std::erase_if(open, [&](std::size_t w) { return windows[w].end <= piece.begin; });
    for (; next < order.size() && windows[order[next]].begin <= piece.begin; ++next)
      if (windows[order[next]].end > piece.begin) open.push_back(order[next]);
    if (open.empty()) continue;
    sweep.Advance(piece.begin, piece.end, by_state);
    Terms sum;
    by_state.Take([&](unsigned state, std::int64_t ns) { sum.Add(TermsOf(state, activity.gpu, ns)); });
    for (const std::size_t w : open) terms[w].Add(sum);
  }
  return terms;
}

void CounterCurve::Add(std::int64_t time_ns, std::int64_t value) {
  if (!readings_.empty() && (time_ns <= readings_.back().first || value < readings_.back().second)) return;
  readings_.emplace_back(time_ns, value);
}

double CounterCurve::At(std::int64_t time_ns) const {
  if (time_ns <= readings_.front().first) return 0;
  if (time_ns >= readings_.back().first) return static_cast<double>(readings_.back().second - readings_.front().second);
  const auto after = std::upper_bound(readings_.begin(), readings_.end(), time_ns,
                                      [](std::int64_t at, const auto& reading) { return at < reading.first; });
  const auto& [t0, v0] = after[-1];
  const auto& [t1, v1] = *after;
  return static_cast<double>(v0 - readings_.front().second) +
         static_cast<double>(v1 - v0) * (static_cast<double>(time_ns - t0) / static_cast<double>(t1 - t0));
}

std::int64_t CounterCurve::Within(Interval window) const {
  if (readings_.size() < 2 || window.end <= readings_.front().first || window.begin >= readings_.back().first)
    return -1;
  return static_cast<std::int64_t>(std::llround(At(window.end) - At(window.begin)));
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

}  // namespace lockstep
