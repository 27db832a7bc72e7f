#include "analysis/replay/questions/prefetch.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>

#include "analysis/replay/graph/structure.h"
#include "analysis/rules/replay.h"

namespace lockstep::replay {
namespace {

// The order of operations on lanes, and which operations need which.
class Order {
 public:
  explicit Order(const Job& job) : job_(job), structure_(job.graph) {
    const auto& operations = job.graph.operations();
    enqueuer_.assign(operations.size(), kNone);
    for (std::uint32_t i = 0; i < operations.size(); ++i)
      if (operations[i].enqueues != kNone) enqueuer_[operations[i].enqueues] = i;
    // One thread enqueues, in its order.
    before_ = PrecedingOnLane(job.graph, [&](std::uint32_t a, std::uint32_t b) { return enqueuer_[a] < enqueuer_[b]; });
    after_.assign(operations.size(), kNone);
    for (std::uint32_t i = 0; i < operations.size(); ++i)
      if (before_[i] != kNone) after_[before_[i]] = i;
  }

  // In the order in which they were added.
  std::span<const std::uint32_t> OnLane(std::uint32_t lane) const {
    return std::span(structure_.in_lane)
        .subspan(structure_.first_in_lane[lane], structure_.first_in_lane[lane + 1] - structure_.first_in_lane[lane]);
  }
  std::uint32_t Before(std::uint32_t i) const { return before_[i]; }
  std::uint32_t Enqueuer(std::uint32_t i) const { return enqueuer_[i]; }
  // The point of the program at which it occurs.
  std::uint32_t Place(std::uint32_t i) const { return enqueuer_[i] == kNone ? i : enqueuer_[i]; }

  // What another thread does with the end of a thread's member; kNone: nothing, as where its own thread waits.
  std::uint32_t WaiterFor(std::uint32_t member) const {
    std::uint32_t found = kNone;
    for (std::uint32_t d = structure_.first_dependent[member]; d < structure_.first_dependent[member + 1]; ++d) {
      const std::uint32_t i = structure_.dependents[d].operation;
      const std::uint32_t lane = job_.graph.operations()[i].lane;
      if (lane != kNone && lane != job_.graph.operations()[member].lane && i < found) found = i;
    }
    return found;
  }

  std::uint32_t ConsumerOf(std::uint32_t member) const {
    const auto& operations = job_.graph.operations();
    const std::uint32_t lane = operations[member].lane;
    if (lane == kNone) return member;
    if (!job_.graph.queued_lanes()[lane]) {
      const std::uint32_t waits = WaiterFor(member);
      return waits == kNone ? member : waits;  // Its own thread waits.
    }
    std::uint32_t found = kNone;
    std::vector<std::uint32_t> open{member};
    for (std::size_t k = 0; k < open.size() && k < rules::kPrefetchMostPassedThrough; ++k) {
      for (std::uint32_t d = structure_.first_dependent[open[k]]; d < structure_.first_dependent[open[k] + 1]; ++d) {
        const std::uint32_t i = structure_.dependents[d].operation;
        if (operations[i].lane == kNone)
          open.push_back(i);
        else if (operations[i].lane != lane && (found == kNone || Place(i) < Place(found)))
          found = i;
      }
      // Follow what is recorded after it on its stream.
      const std::uint32_t next = after_[open[k]];
      if (next != kNone && operations[next].lane == lane && operations[next].collective == kNone &&
          operations[next].duration_ns == 0)
        open.push_back(next);
    }
    return found;
  }

 private:
  const Job& job_;
  const Structure structure_;
  std::vector<std::uint32_t> enqueuer_, before_, after_;
};

Gathers Find(const RecordedRun& run, const Job& job, const Order& order, const std::vector<bool>& of) {
  Gathers found(run.ranks.size(), std::vector<std::vector<Gather>>(run.steps.size()));
  for (std::uint32_t i = 0; i < job.operations.size(); ++i) {
    const JobOperation& about = job.operations[i];
    if (about.role != Role::kMember || about.collective == kNone || about.step >= run.steps.size()) continue;
    if (!of[about.collective]) continue;
    const std::uint32_t consumer = order.ConsumerOf(i);
    if (consumer != kNone)
      found[about.rank][about.step].push_back({i, consumer, order.Before(consumer), about.collective});
  }
  for (auto& rank : found)
    for (auto& step : rank) {
      std::stable_sort(step.begin(), step.end(), [&](const Gather& a, const Gather& b) {
        return order.Place(a.consumer) < order.Place(b.consumer);
      });
      if (step.empty() || step.size() != found[0][0].size()) return {};
    }
  return found;
}

// A thread of a library carries a gather, while the thread that needs it waits.
bool CarriedForOthers(const Job& job, const Gathers& gathers) {
  for (const auto& rank : gathers)
    for (const auto& step : rank)
      for (const Gather& gather : step)
        if (const std::uint32_t lane = job.graph.operations()[gather.member].lane;
            lane != kNone && !job.graph.queued_lanes()[lane] && gather.consumer != gather.member)
          return true;
  return false;
}

}  // namespace

Gathers FindGathers(const RecordedRun& run, const Job& job, const std::vector<bool>& of) {
  if (run.ranks.empty() || run.steps.empty()) return {};
  return Find(run, job, Order(job), of);
}

std::optional<Job> WithPrefetch(const RecordedRun& run, std::size_t depth) {
  if (run.ranks.empty() || run.steps.empty()) return std::nullopt;
  Job job = run.MakeJob();
  const Order order(job);
  std::vector<bool> all_gathers;
  for (const RunCollective& c : run.collectives) all_gathers.push_back(c.kind == CollectiveKind::kAllGather);
  const Gathers gathers = Find(run, job, order, all_gathers);
  if (gathers.empty()) return std::nullopt;
  if (CarriedForOthers(job, gathers)) return std::nullopt;

  // Operations that take their turn anew: all that share a lane with an all-gather, in the order in which the program
  // then reaches them.
  struct Turn {
    std::uint32_t step, place;
    bool later;  // Whether it comes after the operation that the program reaches at the same point.
    std::uint32_t member, trigger;
    bool operator<(const Turn& other) const {
      return std::tie(step, place, later) < std::tie(other.step, other.place, other.later);
    }
  };
  std::vector<std::map<std::uint32_t, std::vector<Turn>>> turns(run.ranks.size());  // By lane.
  std::vector<std::vector<std::uint32_t>> sequences(run.ranks.size());
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    std::vector<bool> gather(job.operations.size(), false);
    for (std::uint32_t step = 0; step < run.steps.size(); ++step) {
      const auto& list = gathers[r][step];
      const std::uint32_t begin = step == 0 ? job.starts[r] : job.step_ends[step - 1][r];
      for (std::size_t j = 0; j < list.size(); ++j) {
        gather[list[j].member] = true;
        std::uint32_t trigger = begin, place = 0;
        if (depth != kWholeStep && j >= depth) {
          const std::uint32_t use = list[j - depth].consumer;
          if (order.Before(use) != kNone) trigger = order.Before(use);
          place = order.Place(use);
        }
        if (trigger == kNone) return std::nullopt;
        turns[r][job.graph.operations()[list[j].member].lane].push_back({step, place, false, list[j].member, trigger});
      }
    }
    for (auto& [lane, list] : turns[r]) {
      if (lane == kNone) return std::nullopt;
      if (job.graph.queued_lanes()[lane])
        for (const std::uint32_t i : order.OnLane(lane)) {
          const JobOperation& about = job.operations[i];
          if (gather[i] || about.role != Role::kMember || order.Enqueuer(i) == kNone) continue;
          list.push_back({about.step, order.Place(i), true, i, order.Enqueuer(i)});
        }
      std::stable_sort(list.begin(), list.end());
      for (const Turn& turn : list) sequences[r].push_back(job.operations[turn.member].collective);
    }
  }
  // Ranks that took their turns in different orders would wait for each other forever.
  for (const auto& sequence : sequences)
    if (sequence != sequences[0]) return std::nullopt;

  for (auto& rank : turns)
    for (auto& [lane, list] : rank) {
      const std::span<const std::uint32_t> others = order.OnLane(lane);
      const bool alone = job.graph.queued_lanes()[lane] &&
                         std::all_of(others.begin(), others.end(),
                                     [&](std::uint32_t i) { return job.graph.operations()[i].collective != kNone; });
      const std::uint32_t own = job.graph.AddLane();
      for (const Turn& turn : list) {
        Operation member = job.graph.operations()[turn.member];
        member.lane = own;
        member.enqueues = kNone;
        const std::uint32_t made = job.graph.Add(member);
        job.operations.push_back(job.operations[turn.member]);
        job.graph.Needs(made, turn.trigger);
        // The operation that waits for it takes its place in the order.
        Operation& left = job.graph.operations()[turn.member];
        left.collective = kNone;
        left.duration_ns = left.delay_ns = 0;
        left.activity = Activity::kOther;
        // Markers after it on a stream continue to wait there; if there are none, its old turn does not delay anything.
        if (alone) left.lane = kNone;
        job.operations[turn.member].role = Role::kOther;
        job.graph.Needs(turn.member, made);
      }
    }
  return job;
}

}  // namespace lockstep::replay
