// Makes another bucketing of a run on CPU ranks: its threads' time with the old reductions replaced by new ones.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "analysis/core/statistics.h"
#include "analysis/replay/host/host_run.h"
#include "core/interval.h"

namespace lockstep::replay {
namespace {

// When the gradients of one rank and step are ready: cumulative bytes to time.
class Readiness {
 public:
  void Add(std::uint64_t bytes, std::int64_t ns) { points_.push_back({bytes, ns}); }
  // Before the first known point gradients become ready at the rate of the following ones, but not before
  // `earliest_ns`.
  std::int64_t At(std::uint64_t bytes, std::int64_t earliest_ns) const {
    const auto after = std::lower_bound(points_.begin(), points_.end(), bytes,
                                        [](const Point& point, std::uint64_t wanted) { return point.bytes < wanted; });
    if (after == points_.end()) return points_.back().ns;
    if (after->bytes == bytes) return after->ns;
    if (after != points_.begin()) return Along(after[-1], *after, bytes);
    if (points_.size() < 2) {
      const Point begin{0, earliest_ns};
      return Along(begin, *after, bytes);
    }
    return std::max(earliest_ns, Along(points_[0], points_[1], bytes));
  }

 private:
  struct Point {
    std::uint64_t bytes;
    std::int64_t ns;
  };
  static std::int64_t Along(const Point& a, const Point& b, std::uint64_t bytes) {
    if (b.bytes == a.bytes) return b.ns;
    const double along = (static_cast<double>(bytes) - static_cast<double>(a.bytes)) /
                         (static_cast<double>(b.bytes) - static_cast<double>(a.bytes));
    return a.ns + static_cast<std::int64_t>(along * static_cast<double>(b.ns - a.ns));
  }
  std::vector<Point> points_;
};

// Replaces the reductions in one rank's stretches.
class RankChange {
 public:
  RankChange(const RankStretches& rank, const BucketSequence& buckets, const std::vector<std::uint64_t>& bytes,
             std::uint32_t first_new)
      : rank_(rank), buckets_(buckets), bytes_(bytes), first_new_(first_new) {
    for (std::uint32_t i = 0; i < rank.collectives.size(); ++i) of_[rank.collectives[i].collective] = i;
  }

  RankStretches Make() {
    // All but what the thread does, which is most of it.
    out_.begin_ns = rank_.begin_ns;
    out_.collectives = rank_.collectives;
    out_.others = rank_.others;
    out_.step_cpu_ns = rank_.step_cpu_ns;
    out_.step_without_core_ns = rank_.step_without_core_ns;
    for (const std::uint32_t c : buckets_.collectives)
      if (const auto at = of_.find(c); at != of_.end()) old_[at->second] = true;
    for (const Stretch& stretch : rank_.training)
      if (Reduces(stretch) && (stretch.kind == Stretch::kPost || stretch.kind == Stretch::kBlocking))
        removed_.push_back({stretch.begin_ns, stretch.end_ns});
    for (OtherThread& other : out_.others) Strip(other);
    for (std::uint32_t step = 0; step < buckets_.first.size(); ++step) Plan(step);
    Rewrite();
    for (OtherThread& other : out_.others) SortByHandOver(other);
    return std::move(out_);
  }

 private:
  struct Launch {
    std::int64_t ready_ns;
    std::uint32_t collective;  // Index in out_.collectives.
    std::uint32_t step;
  };

  bool IsOld(std::uint32_t i) const { return old_.contains(i); }
  void Strip(OtherThread& other) {
    OtherThread kept{other.thread, {}, {}};
    bool had = false;
    for (std::size_t k = 0; k < other.collectives.size(); ++k) {
      if (IsOld(other.collectives[k])) {
        had = true;
        continue;
      }
      kept.collectives.push_back(other.collectives[k]);
      kept.fed.push_back(other.fed[k]);
    }
    if (had) reducing_thread_ = static_cast<std::size_t>(&other - out_.others.data());
    other = std::move(kept);
  }

  // The thread takes what it is given in the order in which it gets it, whatever else it carries.
  void SortByHandOver(OtherThread& other) const {
    std::vector<std::size_t> order(other.collectives.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto given = [&](std::size_t k) {
      const RankCollective& c = out_.collectives[other.collectives[k]];
      return c.row == kNone ? c.begin_ns : ReadyOf(c);
    };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return given(a) < given(b); });
    OtherThread sorted{other.thread, {}, {}};
    for (const std::size_t k : order) {
      sorted.collectives.push_back(other.collectives[k]);
      sorted.fed.push_back(other.fed[k]);
    }
    other = std::move(sorted);
  }

  void Plan(std::uint32_t step) {
    const std::size_t n = buckets_.bytes.size();
    Readiness ready;
    std::uint64_t sum = 0;
    std::vector<std::uint32_t> old;
    std::vector<std::int64_t> late_ns;
    for (std::size_t k = 0; k < n; ++k) {
      const auto at = of_.find(buckets_.collectives[buckets_.first[step] + k]);
      if (at == of_.end()) return;
      old.push_back(at->second);
      old_[at->second] = true;
    }
    const RankCollective& last = rank_.collectives[old.back()];
    std::int64_t last_end = INT64_MIN;
    for (std::size_t k = 0; k < n; ++k) {
      const RankCollective& c = rank_.collectives[old[k]];
      sum += buckets_.bytes[k];
      last_end = std::max(last_end, c.end_ns);
      // If the thread was busy, it began later than the gradients were ready, so that time is unknown. The last
      // reduction is an exception, because its gradients are the last.
      if (reducing_thread_ >= rank_.others.size() || k + 1 == n || Fed(old[k])) ready.Add(sum, Without(ReadyOf(c)));
      late_ns.push_back(c.late_ns);
    }
    const std::int64_t late = LowerMedian(std::move(late_ns));
    const std::int64_t earliest = Without(EarliestOf(step, ReadyOf(rank_.collectives[old.front()])));
    std::uint64_t done = 0;
    for (std::size_t k = 0; k < bytes_.size(); ++k) {
      done += bytes_[k];
      RankCollective made = last;
      made.row = kNone;
      made.collective = first_new_ + step * static_cast<std::uint32_t>(bytes_.size()) + static_cast<std::uint32_t>(k);
      made.begin_ns = k + 1 == bytes_.size() ? Without(ReadyOf(last)) : ready.At(done, earliest);
      made.end_ns = last_end;
      made.ready_ns = made.begin_ns;
      made.late_ns = late;
      out_.collectives.push_back(made);
      const auto index = static_cast<std::uint32_t>(out_.collectives.size() - 1);
      launches_.push_back({made.begin_ns, index, step});
      made_for_[old.back()].push_back(index);
      if (!made.posted && reducing_thread_ < out_.others.size()) {
        out_.others[reducing_thread_].collectives.push_back(index);
        out_.others[reducing_thread_].fed.push_back(true);
      }
    }
  }

  static std::int64_t ReadyOf(const RankCollective& c) {
    return c.ready_ns == RankCollective::kNotSaid ? c.begin_ns : c.ready_ns;
  }
  bool Reduces(const Stretch& stretch) const { return !stretch.collectives.empty() && IsOld(stretch.collectives[0]); }
  // Converts a time of the thread to what it would be if the old reductions had taken no time.
  std::int64_t Without(std::int64_t ns) const {
    std::int64_t gone_ns = 0;
    for (const Interval& each : removed_) {
      if (each.begin >= ns) break;
      gone_ns += std::min(ns, each.end) - each.begin;
    }
    return ns - gone_ns;
  }

  bool Fed(std::uint32_t i) const {
    for (const OtherThread& other : rank_.others)
      for (std::size_t k = 0; k < other.collectives.size(); ++k)
        if (other.collectives[k] == i) return other.fed[k];
    return false;
  }

  // Gradients cannot be ready before the step began, nor before the end of the thread's last wait.
  std::int64_t EarliestOf(std::uint32_t step, std::int64_t first_ns) const {
    std::int64_t ns = rank_.begin_ns;
    for (const Stretch& stretch : rank_.training) {
      if (stretch.begin_ns >= first_ns) break;
      if (stretch.kind == Stretch::kStepEnd && stretch.step + 1 == step) ns = std::max(ns, stretch.end_ns);
      if (stretch.kind == Stretch::kWait || stretch.kind == Stretch::kBlocking) ns = std::max(ns, stretch.end_ns);
    }
    return ns;
  }

  // Writes the thread's time without the old reductions and with the new ones, and shifts everything after them
  // accordingly.
  void Rewrite() {
    std::vector<std::int64_t> posts;
    std::vector<Stretch> kept;
    kept.reserve(rank_.training.size());
    out_.training.reserve(rank_.training.size() + launches_.size());
    for (const Stretch& stretch : rank_.training) {
      const bool launches = stretch.kind == Stretch::kPost || stretch.kind == Stretch::kFeed;
      if (Reduces(stretch) && (launches || stretch.kind == Stretch::kBlocking)) {
        if (stretch.kind == Stretch::kPost) posts.push_back(stretch.end_ns - stretch.begin_ns);
        continue;
      }
      kept.push_back(stretch);
      kept.back().begin_ns = Without(stretch.begin_ns);
      kept.back().end_ns = Without(stretch.end_ns);
      Replace(kept.back().collectives);
    }
    const std::int64_t post_ns = LowerMedian(std::move(posts));
    std::int64_t added_ns = 0;
    std::size_t next = 0;
    for (Stretch& stretch : kept) {
      // Reductions that are ready when a wait begins are launched before it, but those of a step not before the step.
      for (; next < launches_.size() && launches_[next].ready_ns <= stretch.begin_ns; ++next) {
        if (stretch.kind == Stretch::kStepEnd && stretch.step < launches_[next].step &&
            launches_[next].ready_ns == stretch.begin_ns)
          break;
        Emit(launches_[next], post_ns, added_ns);
      }
      stretch.begin_ns += added_ns;
      stretch.end_ns += added_ns;
      for (const std::uint32_t i : stretch.collectives) {
        RankCollective& c = out_.collectives[i];
        if (stretch.kind != Stretch::kWait || i < rank_.collectives.size()) continue;
        c.end_ns = std::min(Without(c.end_ns) + added_ns, stretch.end_ns);
        if (c.in_wait) c.wait_begin_ns = stretch.begin_ns;
      }
      out_.training.push_back(std::move(stretch));
    }
    for (; next < launches_.size(); ++next) Emit(launches_[next], post_ns, added_ns);
  }

  void Emit(const Launch& launch, std::int64_t post_ns, std::int64_t& added_ns) {
    RankCollective& c = out_.collectives[launch.collective];
    const Stretch::Kind kind = c.posted                                ? Stretch::kPost
                               : reducing_thread_ < out_.others.size() ? Stretch::kFeed
                                                                       : Stretch::kBlocking;
    c.begin_ns = launch.ready_ns + added_ns;
    if (kind == Stretch::kPost) added_ns += post_ns;
    out_.training.push_back({kind, c.begin_ns, launch.ready_ns + added_ns, {launch.collective}, 0});
  }

  // A wait for old reductions waits for the new ones instead.
  void Replace(std::vector<std::uint32_t>& list) const {
    std::vector<std::uint32_t> replaced;
    for (const std::uint32_t i : list) {
      if (!IsOld(i)) replaced.push_back(i);
      if (const auto at = made_for_.find(i); at != made_for_.end())
        replaced.insert(replaced.end(), at->second.begin(), at->second.end());
    }
    list = std::move(replaced);
  }

  const RankStretches& rank_;
  const BucketSequence& buckets_;
  const std::vector<std::uint64_t>& bytes_;
  const std::uint32_t first_new_;
  RankStretches out_;
  std::map<std::uint32_t, std::uint32_t> of_;  // From HostRun's collective to the rank's.
  std::map<std::uint32_t, bool> old_;
  // From the step's last old reduction to the new ones.
  std::map<std::uint32_t, std::vector<std::uint32_t>> made_for_;
  std::vector<Launch> launches_;
  IntervalSet removed_;
  std::size_t reducing_thread_ = static_cast<std::size_t>(-1);
};

// The part of each interval that is its own if those that hold at a time share it evenly.
std::vector<double> EvenParts(const std::vector<Interval>& intervals) {
  std::vector<std::size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return intervals[a].begin < intervals[b].begin; });
  std::vector<double> own_ns(intervals.size(), 0);
  std::vector<std::size_t> holding;
  std::int64_t now = INT64_MIN;
  const auto pass_to = [&](std::int64_t until) {
    while (!holding.empty() && now < until) {
      std::int64_t next = until;
      for (const std::size_t i : holding) next = std::min(next, intervals[i].end);
      for (const std::size_t i : holding)
        own_ns[i] += static_cast<double>(next - now) / static_cast<double>(holding.size());
      std::erase_if(holding, [&](std::size_t i) { return intervals[i].end <= next; });
      now = next;
    }
    now = until;
  };
  for (const std::size_t i : order) {
    pass_to(intervals[i].begin);
    holding.push_back(i);
  }
  pass_to(INT64_MAX);
  std::vector<double> parts;
  for (std::size_t i = 0; i < intervals.size(); ++i)
    parts.push_back(own_ns[i] / static_cast<double>(intervals[i].end - intervals[i].begin));
  return parts;
}

}  // namespace

std::vector<RecordedRun::Launch> HostRun::LaunchesOfFirstRank() const {
  std::vector<Launch> launches;
  if (stretches.empty() || whole_window) return launches;
  const RankStretches& rank = stretches[0];
  std::vector<std::int64_t> ends;
  for (const Stretch& stretch : rank.training)
    if (stretch.kind == Stretch::kStepEnd) ends.push_back(stretch.end_ns);
  std::vector<std::pair<std::int64_t, std::uint32_t>> begins;
  for (const RankCollective& c : rank.collectives) begins.push_back({c.begin_ns, c.collective});
  std::sort(begins.begin(), begins.end());
  for (const auto& [begin_ns, collective] : begins) {
    const auto step = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), begin_ns) - ends.begin());
    const bool inside = begin_ns >= rank.begin_ns && step < ends.size();
    launches.push_back({collective, inside ? static_cast<std::uint32_t>(step) : kNone});
  }
  return launches;
}

// PyTorch's gloo has two threads that carry its collectives: reductions of one group move beside each other.
std::vector<double> HostRun::PartsOfTime(const BucketSequence& buckets) const {
  std::vector<std::uint32_t> place(collectives.size(), kNone);
  for (std::uint32_t i = 0; i < buckets.collectives.size(); ++i) place[buckets.collectives[i]] = i;
  std::vector<std::int64_t> arrived_ns(buckets.collectives.size(), INT64_MIN);
  bool beside = false;
  for (const RankStretches& rank : stretches) {
    std::uint32_t thread = kNone;
    for (const RankCollective& c : rank.collectives) {
      if (c.collective >= place.size() || place[c.collective] == kNone) continue;
      std::int64_t& arrived = arrived_ns[place[c.collective]];
      arrived = std::max(arrived, c.begin_ns);
      beside |= !c.posted && thread != kNone && thread != c.thread;
      thread = c.thread;
    }
  }
  if (!beside) return {};
  std::vector<std::vector<double>> of(buckets.collectives.size());
  std::vector<std::uint32_t> moved;
  std::vector<Interval> while_moved;
  for (const RankStretches& rank : stretches) {
    moved.clear();
    while_moved.clear();
    for (const RankCollective& c : rank.collectives)
      if (c.collective < place.size() && place[c.collective] != kNone)
        if (const std::uint32_t i = place[c.collective]; arrived_ns[i] < c.end_ns) {
          moved.push_back(i);
          while_moved.push_back({arrived_ns[i], c.end_ns});
        }
    const std::vector<double> parts = EvenParts(while_moved);
    for (std::size_t k = 0; k < moved.size(); ++k) of[moved[k]].push_back(parts[k]);
  }
  std::vector<double> parts;
  for (std::vector<double>& each : of) parts.push_back(each.empty() ? 1 : LowerMedian(std::move(each)));
  return parts;
}

std::unique_ptr<RecordedRun> HostRun::WithReductions(const BucketSequence& buckets,
                                                     const std::vector<std::uint64_t>& bytes,
                                                     std::uint32_t first_new) const {
  auto changed = std::make_unique<HostRun>();
  changed->RecordedRun::operator=(*this);
  changed->overlap = overlap;
  changed->stretches.reserve(stretches.size());
  for (const RankStretches& rank : stretches)
    changed->stretches.push_back(RankChange(rank, buckets, bytes, first_new).Make());
  return changed;
}

}  // namespace lockstep::replay
