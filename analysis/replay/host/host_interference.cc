#include "analysis/replay/host/host_interference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>

#include "analysis/core/statistics.h"
#include "analysis/replay/graph/interference.h"
#include "analysis/replay/host/host_run.h"
#include "analysis/rules/replay.h"
#include "core/order_statistics.h"
#include "core/rules/common.h"

namespace lockstep::replay {
namespace {

// Stolen time over overlapped time, by step and rank; one list per step. What a rank lacks in steps without overlap
// other programs took, and they take as much of its other steps.
// `shown`: set if in some step work was beside a transfer for certain.
std::vector<std::vector<double>> StolenShares(const HostRun& run, bool& shown) {
  struct Overlapped {
    std::size_t step;
    double lacked_ns, overlap_ns, length_ns;
  };
  std::vector<std::vector<double>> shares(run.steps.size());
  std::vector<double> bare;  // Of one rank: the share that it lacks of each step without overlap.
  std::vector<Overlapped> overlapped;
  const auto take = [&] {
    const double usual = bare.size() < rules::kFewest ? 0 : LowerMedian(bare);
    for (const Overlapped& each : overlapped) {
      const double share = (each.lacked_ns - usual * each.length_ns) / each.overlap_ns;
      if (share <= rules::kHostMostStolenShare) shares[each.step].push_back(std::max(0.0, share));
    }
    bare.clear();
    overlapped.clear();
  };
  for (std::size_t r = 0; r < run.stretches.size(); ++r) {
    take();
    const RankStretches& rank = run.stretches[r];
    if (rank.step_cpu_ns.size() != run.steps.size()) continue;
    std::int64_t cursor = rank.begin_ns, work_ns = 0, overlap_ns = 0, in_mpi_ns = 0, begin_ns = rank.begin_ns;
    for (const Stretch& stretch : rank.training) {
      if (stretch.begin_ns > cursor) {
        work_ns += stretch.begin_ns - cursor;
        overlap_ns += TotalWithin(run.overlap.transferring[r], {cursor, stretch.begin_ns});
        cursor = stretch.begin_ns;
      }
      // A wait for another thread sleeps, while MPI's own calls poll.
      const bool sleeps = stretch.kind == Stretch::kWait && !stretch.collectives.empty() &&
                          !rank.collectives[stretch.collectives[0]].posted;
      if (!sleeps) in_mpi_ns += std::max<std::int64_t>(0, stretch.end_ns - cursor);
      cursor = std::max(cursor, stretch.end_ns);
      if (stretch.kind != Stretch::kStepEnd || stretch.step >= shares.size()) continue;
      const std::int64_t cpu_ns = rank.step_cpu_ns[stretch.step];
      const auto length = static_cast<double>(stretch.end_ns - begin_ns);
      if (cpu_ns >= 0 && length > 0) {
        std::int64_t lacked_ns = work_ns + in_mpi_ns - cpu_ns, slept_ns = 0;
        // A thread that sleeps in its own work, while a device or a disk works, lacks no core.
        if (stretch.step < rank.step_without_core_ns.size() && rank.step_without_core_ns[stretch.step] >= 0) {
          slept_ns = std::max<std::int64_t>(0, lacked_ns - rank.step_without_core_ns[stretch.step]);
          lacked_ns -= slept_ns;
        }
        const auto lacked = static_cast<double>(lacked_ns), overlap = static_cast<double>(overlap_ns);
        if (overlap <= rules::kNameShare * length)
          bare.push_back(std::max(0.0, lacked) / length);
        else
          overlapped.push_back({stretch.step, lacked, overlap, length});
        // Where it slept for as long, all of the overlap may have been sleep, beside which nothing lacks anything.
        shown |= overlap > rules::kNameShare * length && slept_ns < overlap_ns;
      }
      work_ns = overlap_ns = in_mpi_ns = 0;
      begin_ns = stretch.end_ns;
    }
  }
  take();
  return shares;
}

// The share of a core that the training thread uses of its time outside of waits: the median over steps and ranks,
// nothing if no step tells.
std::optional<double> CoreUsed(const HostRun& run) {
  std::vector<double> shares;
  for (const RankStretches& rank : run.stretches) {
    if (rank.step_cpu_ns.size() != run.steps.size()) continue;
    std::int64_t begin_ns = rank.begin_ns, calls_ns = 0;
    for (const Stretch& stretch : rank.training) {
      calls_ns += stretch.end_ns - stretch.begin_ns;
      if (stretch.kind != Stretch::kStepEnd || stretch.step >= run.steps.size()) continue;
      const std::int64_t work_ns = stretch.end_ns - begin_ns - calls_ns, cpu_ns = rank.step_cpu_ns[stretch.step];
      // Calls may poll, so that their CPU time is in it, too.
      if (cpu_ns >= 0 && work_ns > 0)
        shares.push_back(std::min(1.0, static_cast<double>(cpu_ns) / static_cast<double>(work_ns)));
      begin_ns = stretch.end_ns;
      calls_ns = 0;
    }
  }
  if (shares.empty()) return std::nullopt;
  return LowerMedian(std::move(shares));
}

double SlowdownOf(double stolen_share) { return stolen_share / (1 - stolen_share); }

Interference PossibleOf(const HostRun& run) {
  const std::optional<double> used = CoreUsed(run);
  if (!used || run.cores_of_rank <= 0) return {};
  // Who needs less than half gets all of it.
  const double of_work = std::min(*used, std::max(run.cores_of_rank / 2, run.cores_of_rank - 1));
  const double of_transfer = std::min(1.0, run.cores_of_rank - of_work);
  return {SlowdownOf(std::min(rules::kHostMostStolenShare, *used - of_work)),
          SlowdownOf(std::min(rules::kHostMostStolenShare, 1 - of_transfer))};
}

// The reductions at one position of the steps of a run.
struct Place {
  double bytes;
  struct Sample {
    double ns;
    const std::vector<std::pair<double, std::int64_t>>* computing;
  };
  std::vector<Sample> samples;  // By step.
};

std::vector<Place> PlacesOf(const HostRun& run) {
  std::vector<Place> places;
  const auto buckets = run.FindBuckets();
  if (!buckets) return places;
  const ReductionTimes times = TimesOf(run, *buckets, run.MakeJob());
  for (std::size_t k = 0; k < buckets->bytes.size(); ++k) {
    Place place{static_cast<double>(buckets->bytes[k]), {}};
    for (const std::uint32_t first : buckets->first)
      place.samples.push_back(
          {static_cast<double>(times.transfer_ns[first + k]), &run.overlap.computing[buckets->collectives[first + k]]});
    places.push_back(std::move(place));
  }
  return places;
}

double Alone(const Place::Sample& sample, double slowdown) {
  double whole = 0, alone = 0;
  for (const auto& [share, ns] : *sample.computing) {
    whole += static_cast<double>(ns);
    alone += static_cast<double>(ns) / (1 + slowdown * share);
  }
  return whole > 0 ? sample.ns * alone / whole : sample.ns;
}

// The distance of the positions' medians from the cost of their neighbours in size, as a share of the sum: whatever the
// cost curve is (it bends where an algorithm changes or a cache ends), transfers of nearly the same size cost nearly
// the same. The neighbours' cost is the mean rate (of its logarithm), weighted by nearness.
double Misfit(const std::vector<double>& bytes, const std::vector<double>& ns) {
  double misfit = 0, all = 0;
  for (std::size_t i = 0; i < ns.size(); ++i) {
    double weights = 0, rate = 0;
    for (std::size_t j = 0; j < ns.size(); ++j) {
      const double apart = std::abs(std::log(bytes[j] / bytes[i])) / std::log(rules::kHostNeighbourSizesFactor);
      if (j == i || apart >= 1) continue;
      const double weight = (1 - apart) * (1 - apart);
      weights += weight;
      rate += weight * std::log(std::max(1.0, ns[j]) / bytes[j]);
    }
    if (weights <= 0) continue;
    misfit += std::abs(std::exp(rate / weights) * bytes[i] - ns[i]);
    all += ns[i];
  }
  return all > 0 ? misfit / all : 0;
}

// Estimates the slowdown of transfers from the lists of samples that `pick(place)` returns.
template <typename Pick>
double BestSlowdown(const std::vector<Place>& places, Pick pick) {
  double best = 0, least = 0;
  std::vector<double> bytes;
  for (const Place& place : places) bytes.push_back(place.bytes);
  for (double slowdown = 0; slowdown <= rules::kHostSlowdownMost; slowdown += rules::kHostSlowdownSearchStep) {
    std::vector<double> ns;
    for (const Place& place : places) {
      std::vector<double> alone;
      for (const std::size_t i : pick(place)) alone.push_back(Alone(place.samples[i], slowdown));
      ns.push_back(UpperMedian(std::move(alone)));
    }
    const double misfit = Misfit(bytes, ns);
    if (slowdown == 0) {
      least = misfit * (1 - rules::kChangedShare);
    } else if (misfit < least) {
      least = misfit;
      best = slowdown;
    }
  }
  return best;
}

}  // namespace

double HostOverlap::AloneShare(std::uint32_t collective, double transfer_slowdown) const {
  if (collective >= computing.size()) return 1;
  return Alone({1, &computing[collective]}, transfer_slowdown);
}

HostOverlap OverlapOf(const HostRun& run) {
  HostOverlap overlap;
  overlap.transferring.resize(run.ranks.size());
  overlap.computing.resize(run.collectives.size());
  const Job job = run.MakeJob();
  const Result<Schedule> played = Simulator(job.graph).Run();
  if (!played.ok()) return overlap;
  const Schedule& schedule = played.value();
  std::int64_t first = INT64_MAX;
  for (const RankStretches& rank : run.stretches) first = std::min(first, rank.begin_ns);
  std::vector<std::vector<Interval>> transfers(run.ranks.size()), work(run.ranks.size());
  struct Transfer {
    std::int64_t begin_ns, end_ns = INT64_MAX;
    std::vector<std::uint32_t> ranks;
  };
  std::map<std::uint32_t, Transfer> of;
  const auto& operations = job.graph.operations();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const JobOperation& about = job.operations[i];
    if (about.rank == kNone) continue;
    if (operations[i].activity == Activity::kCompute)
      work[about.rank].push_back({schedule.begin_ns[i] + first, schedule.end_ns[i] + first});
    if (about.role != Role::kMember || about.collective == kNone) continue;
    const std::int64_t begin = schedule.end_ns[i] - operations[i].duration_ns + first, end = schedule.end_ns[i] + first;
    transfers[about.rank].push_back({begin, end});
    // Members that do not wait, that are not awaited, or that wait for some only, have transfers of their own.
    if (!operations[i].waits || !operations[i].awaited || operations[i].peers != kNone) continue;
    Transfer& transfer = of[about.collective];
    transfer.begin_ns = begin;  // The same for all: the last arrival.
    transfer.end_ns = std::min(transfer.end_ns, end);
    transfer.ranks.push_back(about.rank);
  }
  std::vector<IntervalSet> computes(run.ranks.size());
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    computes[r] = Normalize(std::move(work[r]));
    overlap.transferring[r] = Normalize(std::move(transfers[r]));
  }
  for (const auto& [collective, transfer] : of) {
    std::vector<const IntervalSet*> members;
    for (const std::uint32_t r : transfer.ranks) members.push_back(&computes[r]);
    const std::vector<std::int64_t> by_count = NsByCount(members, {transfer.begin_ns, transfer.end_ns});
    for (std::size_t k = 0; k < by_count.size(); ++k)
      if (by_count[k] > 0)
        overlap.computing[collective].push_back(
            {static_cast<double>(k) / static_cast<double>(members.size()), by_count[k]});
  }
  return overlap;
}

InterferenceEstimate HostRun::EstimateInterference(const std::vector<const RecordedRun*>& others) const {
  std::vector<const HostRun*> runs{this};
  for (const RecordedRun* other : others)
    if (const auto* host = dynamic_cast<const HostRun*>(other); host != nullptr) runs.push_back(host);
  InterferenceEstimate estimate;
  std::mt19937_64 random(rules::kInterferenceSeed);
  std::vector<std::vector<double>> stolen;  // By step of any run.
  std::vector<Place> places;
  bool shown = false;
  for (const HostRun* run : runs) {
    if (run->overlap.computing.size() != run->collectives.size()) continue;
    for (auto& each : StolenShares(*run, shown))
      if (!each.empty()) stolen.push_back(std::move(each));
    for (Place& place : PlacesOf(*run)) places.push_back(std::move(place));
  }
  if (!stolen.empty()) {
    std::vector<double> values, drawn;
    for (const auto& each : stolen) values.insert(values.end(), each.begin(), each.end());
    estimate.value.compute_slowdown = SlowdownOf(UpperMedian(values));
    for (std::size_t k = 0; k < rules::kInterferenceResamples; ++k) {
      std::vector<double> again;
      for (std::size_t i = 0; i < stolen.size(); ++i) {
        const auto& step = stolen[random() % stolen.size()];
        again.insert(again.end(), step.begin(), step.end());
      }
      drawn.push_back(SlowdownOf(UpperMedian(std::move(again))));
    }
    estimate.compute_interval = Middle95(std::move(drawn));
    estimate.samples = values.size();
  }
  if (!shown) estimate.possible = PossibleOf(*this);
  std::map<double, int> sizes;
  for (const Place& place : places) ++sizes[place.bytes];
  if (sizes.size() >= rules::kHostSlowdownLeastSizes) {
    std::vector<double> drawn;
    std::vector<std::size_t> list;
    estimate.value.transfer_slowdown = BestSlowdown(places, [&](const Place& place) -> const std::vector<std::size_t>& {
      list.resize(place.samples.size());
      for (std::size_t i = 0; i < list.size(); ++i) list[i] = i;
      return list;
    });
    for (std::size_t k = 0; k < rules::kHostSlowdownTransferResamples; ++k) {
      const std::uint64_t seed = random();
      drawn.push_back(BestSlowdown(places, [&](const Place& place) -> const std::vector<std::size_t>& {
        std::mt19937_64 steps(seed);  // All positions of a run use the same steps.
        list.resize(place.samples.size());
        for (std::size_t& i : list) i = steps() % place.samples.size();
        return list;
      }));
    }
    estimate.transfer_interval = Middle95(std::move(drawn));
    estimate.samples += places.size();
  }
  return estimate;
}

}  // namespace lockstep::replay
