#include "analysis/replay/graph/stretches.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "analysis/replay/graph/graph.h"
#include "analysis/rules/replay.h"
#include "core/comm_calls.h"
#include "core/interval.h"
#include "core/mpi_ops.h"
#include "merge/timeline/activity_stream.h"
#include "merge/timeline/blocked_time.h"
#include "merge/timeline/rank_pass.h"
#include "trace/file/strings.h"

namespace lockstep::replay {
namespace {

constexpr std::uint8_t kBackward = schema::Category::kBackward;

class Cutter {
 public:
  Cutter(const schema::RankTables& tables, const merge::ClockMap& clock, const RankWindow& window,
         std::vector<RankCollective> collectives)
      : t_(tables), clock_(clock), window_(window), training_(merge::TrainingThread(tables)) {
    out_.begin_ns = window.begin_ns;
    out_.collectives = std::move(collectives);
    for (std::uint32_t i = 0; i < out_.collectives.size(); ++i) {
      const RankCollective& c = out_.collectives[i];
      by_call_[t_.collectives.call[c.row]].push_back(i);
      if (!c.posted && c.thread != training_) others_[c.thread].push_back(i);
      if (c.posted) open_.push_back(i);
    }
    // A collective that a test found complete has moved its data before, even if the exact time is unknown.
    std::set<std::int64_t> waits;
    for (std::uint32_t row = 0; row < t_.mpi_calls.rows(); ++row)
      if (IsWait(t_.mpi_calls.op[row])) waits.insert(clock.ToCluster(t_.mpi_calls.begin_ns[row]));
    for (RankCollective& c : out_.collectives) {
      c.by_test = c.posted && !waits.contains(c.wait_begin_ns);
      c.in_wait &= !c.by_test;
    }
    // In order of their ends: the next wait after one has ended waits for it.
    std::stable_sort(open_.begin(), open_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return out_.collectives[a].end_ns < out_.collectives[b].end_ns;
    });
  }

  RankStretches Run() {
    FindGifts();
    AddCpuTime();
    for (auto& [thread, list] : others_) AddOther(thread, list);
    AddLibraryWaits();
    AddMessageCalls();
    for (std::uint32_t s = 0; s < window_.step_ends_ns.size(); ++s)
      points_.push_back({Stretch::kStepEnd, window_.step_ends_ns[s], window_.step_ends_ns[s], {}, s});
    AddCalls();
    WaitBeforeStepEnds();
    return std::move(out_);
  }

 private:
  bool Inside(std::int64_t ns) const { return ns >= window_.begin_ns && ns < window_.step_ends_ns.back(); }

  void FindGifts() {
    const auto& ranges = t_.ranges;
    for (std::size_t r = 0; r < ranges.rows(); ++r) {
      if (ranges.thread[r] != training_ || ranges.kind[r] != schema::RangeKind::kPushPop) continue;
      if (!trace::TextOf(t_.strings, t_.string_bytes, ranges.name[r]).starts_with(kGivesBucketAway)) continue;
      const std::int64_t begin = clock_.ToCluster(ranges.begin_ns[r]);
      if (Inside(begin)) gifts_.push_back({begin, clock_.ToCluster(ranges.begin_ns[r] + ranges.duration_ns[r])});
    }
    std::stable_sort(gifts_.begin(), gifts_.end(),
                     [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  }

  // For steps whose ends are those of the window.
  void AddCpuTime() {
    const auto& steps = t_.steps;
    std::map<std::int64_t, std::int64_t> cpu;
    for (std::size_t s = 0; s < steps.rows(); ++s)
      if (steps.thread[s] == training_) cpu[clock_.ToCluster(steps.end_ns[s])] = steps.cpu_ns[s];
    for (const std::int64_t end : window_.step_ends_ns) {
      const auto at = cpu.find(end);
      out_.step_cpu_ns.push_back(at == cpu.end() ? -1 : at->second);
    }
  }

  // The n-th bucket handed over in a step is the thread's n-th collective in it, if the numbers are equal.
  void MatchGifts(const std::vector<std::uint32_t>& list) {
    std::size_t gift = 0, next = 0;
    std::int64_t last_end = INT64_MIN;
    for (const std::int64_t step_end : window_.step_ends_ns) {
      std::size_t gifts_end = gift, list_end = next;
      while (gifts_end < gifts_.size() && gifts_[gifts_end].begin < step_end) ++gifts_end;
      while (list_end < list.size() && out_.collectives[list[list_end]].begin_ns < step_end) ++list_end;
      bool alike = gifts_end - gift == list_end - next;
      for (std::size_t k = 0; alike && next + k < list_end; ++k)
        alike = gifts_[gift + k].begin <= out_.collectives[list[next + k]].begin_ns;
      for (; next < list_end; ++next) {
        RankCollective& c = out_.collectives[list[next]];
        if (alike) {
          c.ready_ns = gifts_[gift].begin;
          given_ends_[list[next]] = gifts_[gift++].end;
          c.late_ns = std::max<std::int64_t>(0, c.begin_ns - std::max(c.ready_ns, last_end));
        }
        last_end = c.end_ns;
      }
      gift = gifts_end;
    }
  }

  void AddOther(std::uint32_t thread, std::vector<std::uint32_t>& list) {
    std::stable_sort(list.begin(), list.end(), [&](std::uint32_t a, std::uint32_t b) {
      return out_.collectives[a].begin_ns < out_.collectives[b].begin_ns;
    });
    MatchGifts(list);
    OtherThread other{thread, list, {}};
    std::int64_t last = INT64_MIN;
    for (const std::uint32_t i : list) {
      RankCollective& c = out_.collectives[i];
      if (const std::int64_t given = t_.collectives.enqueue_begin_ns[c.row]; given != schema::kNoTime) {
        c.ready_ns = given_ends_[i] = clock_.ToCluster(given);
        c.late_ns = std::max<std::int64_t>(0, c.begin_ns - std::max(c.ready_ns, last));
      }
      const bool said = c.ready_ns != RankCollective::kNotSaid;
      const std::int64_t begin = said ? c.ready_ns : c.begin_ns;
      const bool fed = said || last == INT64_MIN || begin - last > rules::kHandOverPauseNs;
      other.fed.push_back(fed);
      if (fed) points_.push_back({Stretch::kFeed, begin, begin, {i}, 0});
      last = out_.collectives[i].end_ns;
    }
    out_.others.push_back(std::move(other));
  }

  // What the training thread waits for in libraries: recorded waits that another thread's collective ended. Calls of
  // torch.distributed wait for what they begin, if they wait, and calls that only wait for what was begun before.
  // PyTorch's backward ends by waiting for the reductions of another thread; in files without recorded waits: from the
  // last one's begin (its gradients were the last) to the last end.
  void AddLibraryWaits() {
    std::int64_t since = window_.begin_ns;
    for (const Interval& recorded : merge::FindBlockedTime(t_, training_).awaited) {
      const std::int64_t begin = clock_.ToCluster(recorded.begin), end = clock_.ToCluster(recorded.end);
      if (!Inside(begin)) continue;
      // What ended since the last one was handed over as well, and is waited for with it (DDP: all of a step's
      // buckets).
      Stretch wait = WaitForEarlier({since, end});
      wait.begin_ns = begin;
      AddLibraryWait(std::move(wait));
      since = end;
    }
    for (const bool calls : {true, false}) {
      const auto& ranges = t_.ranges;
      for (std::size_t r = 0; r < ranges.rows(); ++r) {
        if (ranges.thread[r] != training_ || ranges.kind[r] != schema::RangeKind::kPushPop) continue;
        const std::string_view name = trace::TextOf(t_.strings, t_.string_bytes, ranges.name[r]);
        if (calls ? !IsDistributedCall(name) : t_.blocked.rows() > 0 || ranges.category[r] != kBackward) continue;
        const Interval range{clock_.ToCluster(ranges.begin_ns[r]),
                             clock_.ToCluster(ranges.begin_ns[r] + ranges.duration_ns[r])};
        if (!Inside(range.begin)) continue;
        AddLibraryWait(IsDistributedWait(name) ? WaitForEarlier(range) : WaitForOwn(range));
      }
    }
  }

  void AddLibraryWait(Stretch wait) {
    if (wait.collectives.empty() || wait.end_ns <= wait.begin_ns) return;
    awaited_.insert(wait.collectives.begin(), wait.collectives.end());
    points_.push_back(std::move(wait));
  }

  // Calls of torch.distributed in which a message of the training thread over gloo began or ended, and which wait for
  // no collective. The outermost of those that enclose each other. MPI's messages are in MPI's calls.
  void AddMessageCalls() {
    std::vector<std::int64_t> ends_of_messages;
    for (std::size_t i = 0; i < t_.p2p.rows(); ++i) {
      const std::uint32_t comm = t_.p2p.comm[i];
      if (t_.p2p.thread[i] != training_ || comm >= t_.comms.rows() ||
          t_.comms.kind[comm] != schema::CommKind::kTorchGroup)
        continue;
      for (const std::int64_t ns : {t_.p2p.begin_ns[i], t_.p2p.end_ns[i]})
        if (ns != schema::kNoTime) ends_of_messages.push_back(clock_.ToCluster(ns));
    }
    if (ends_of_messages.empty()) return;
    std::sort(ends_of_messages.begin(), ends_of_messages.end());
    std::vector<Interval> waits;
    for (const Stretch& point : points_)
      if (point.kind == Stretch::kWait) waits.push_back({point.begin_ns, point.end_ns});
    const IntervalSet waiting = Normalize(std::move(waits));
    std::vector<Interval> calls;
    const auto& ranges = t_.ranges;
    for (std::size_t r = 0; r < ranges.rows(); ++r) {
      if (ranges.thread[r] != training_ || ranges.kind[r] != schema::RangeKind::kPushPop ||
          !IsDistributedCall(trace::TextOf(t_.strings, t_.string_bytes, ranges.name[r])))
        continue;
      const Interval call{clock_.ToCluster(ranges.begin_ns[r]),
                          clock_.ToCluster(ranges.begin_ns[r] + ranges.duration_ns[r])};
      const auto first = std::lower_bound(ends_of_messages.begin(), ends_of_messages.end(), call.begin);
      if (Inside(call.begin) && first != ends_of_messages.end() && *first <= call.end &&
          TotalWithin(waiting, call) == 0)
        calls.push_back(call);
    }
    std::sort(calls.begin(), calls.end(), [](const Interval& a, const Interval& b) {
      return std::tuple(a.begin, -a.end) < std::tuple(b.begin, -b.end);
    });
    std::int64_t until = INT64_MIN;
    for (const Interval& call : calls) {
      if (call.begin < until) continue;
      points_.push_back({Stretch::kCall, call.begin, call.end, {}, 0});
      until = call.end;
    }
  }

  // A thread's blocking collectives come one after the other.
  std::vector<std::uint32_t>::const_iterator FirstEndingAfter(const OtherThread& other, std::int64_t ns) const {
    return std::partition_point(other.collectives.begin(), other.collectives.end(),
                                [&](std::uint32_t i) { return out_.collectives[i].end_ns <= ns; });
  }

  // For what began within the range, if nothing else waited for it.
  Stretch WaitForOwn(const Interval& range) {
    Stretch wait{Stretch::kWait, INT64_MIN, INT64_MIN, {}, 0};
    for (const OtherThread& other : out_.others)
      for (auto at = FirstEndingAfter(other, range.begin); at != other.collectives.end(); ++at) {
        const std::uint32_t i = *at;
        const RankCollective& c = out_.collectives[i];
        if (c.begin_ns >= range.end) break;
        if (c.begin_ns < range.begin || awaited_.contains(i) || c.end_ns > range.end) continue;
        const auto given = given_ends_.find(i);
        wait.begin_ns = std::max(wait.begin_ns, given == given_ends_.end() ? c.begin_ns : given->second);
        wait.end_ns = std::max(wait.end_ns, c.end_ns);
        wait.collectives.push_back(i);
      }
    return wait;
  }

  // For what ended within the range.
  Stretch WaitForEarlier(const Interval& range) {
    Stretch wait{Stretch::kWait, range.begin, INT64_MIN, {}, 0};
    for (const OtherThread& other : out_.others)
      for (auto at = FirstEndingAfter(other, range.begin); at != other.collectives.end(); ++at) {
        const RankCollective& c = out_.collectives[*at];
        if (c.begin_ns >= range.end) break;
        if (c.end_ns <= range.end) wait.collectives.push_back(*at);
      }
    for (const std::uint32_t i : wait.collectives) wait.end_ns = std::max(wait.end_ns, out_.collectives[i].end_ns);
    return wait;
  }

  void AddCalls() {
    std::vector<Stretch>& out = out_.training;
    const auto& calls = t_.mpi_calls;
    for (std::uint32_t row = 0; row < calls.rows(); ++row) {
      if (calls.thread[row] != training_) continue;
      Stretch call{Stretch::kCall,
                   clock_.ToCluster(calls.begin_ns[row]),
                   clock_.ToCluster(calls.begin_ns[row] + calls.duration_ns[row]),
                   {},
                   0};
      if (!Inside(call.begin_ns)) continue;
      const auto at = by_call_.find(row);
      if (at != by_call_.end()) {
        call.kind = out_.collectives[at->second[0]].posted ? Stretch::kPost : Stretch::kBlocking;
        call.collectives = at->second;
        // What MPI_Finalize does after all came is no part of the collective, and stays.
        const RankCollective& c = out_.collectives[at->second[0]];
        if (t_.collectives.kind[c.row] == schema::Code(CollectiveKind::kFinalize) && c.end_ns < call.end_ns) {
          out.push_back({Stretch::kCall, c.end_ns, call.end_ns, {}, 0});
          call.end_ns = c.end_ns;
        }
      } else if (IsWait(calls.op[row])) {
        call.kind = Stretch::kWait;
      }
      out.push_back(std::move(call));
    }
    out.insert(out.end(), points_.begin(), points_.end());
    std::stable_sort(out.begin(), out.end(), [](const Stretch& a, const Stretch& b) {
      return std::tuple(a.begin_ns, a.end_ns) < std::tuple(b.begin_ns, b.end_ns);
    });
    // Each wait of MPI's completes what ended since the last one, even if a test found it complete.
    std::size_t next = 0;
    for (Stretch& stretch : out) {
      if (stretch.kind != Stretch::kWait || !stretch.collectives.empty()) continue;
      for (; next < open_.size() && out_.collectives[open_[next]].end_ns <= stretch.end_ns; ++next)
        if (out_.collectives[open_[next]].begin_ns <= stretch.begin_ns) stretch.collectives.push_back(open_[next]);
    }
  }

  // Collectives without a wait still end within their step.
  void WaitBeforeStepEnds() {
    std::vector<bool> waited(out_.collectives.size(), false);
    for (const Stretch& stretch : out_.training)
      if (stretch.kind == Stretch::kWait || stretch.kind == Stretch::kBlocking)
        for (const std::uint32_t i : stretch.collectives) waited[i] = true;
    for (Stretch& stretch : out_.training) {
      if (stretch.kind != Stretch::kStepEnd) continue;
      for (std::uint32_t i = 0; i < out_.collectives.size(); ++i) {
        if (waited[i] || out_.collectives[i].end_ns > stretch.begin_ns) continue;
        waited[i] = true;
        stretch.collectives.push_back(i);
      }
    }
  }

  static bool IsWait(std::uint16_t op) {
    const MpiOpInfo* info = FindMpiOp(op);
    return info != nullptr && info->cls == MpiClass::kWait;
  }

  const schema::RankTables& t_;
  const merge::ClockMap& clock_;
  const RankWindow& window_;
  const std::uint32_t training_;
  RankStretches out_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> by_call_, others_;
  std::vector<std::uint32_t> open_;
  std::vector<Stretch> points_;
  IntervalSet gifts_;  // Sorted by begin; they do not overlap.
  std::map<std::uint32_t, std::int64_t> given_ends_;
  std::set<std::uint32_t> awaited_;  // By a library's wait.
};

}  // namespace

RankStretches CutIntoStretches(const schema::RankTables& tables, const merge::ClockMap& clock, const RankWindow& window,
                               std::vector<RankCollective> collectives) {
  return Cutter(tables, clock, window, std::move(collectives)).Run();
}

}  // namespace lockstep::replay
