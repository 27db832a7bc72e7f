#include "analysis/replay/gpu/gpu_interference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "analysis/core/statistics.h"
#include "analysis/replay/graph/interference.h"
#include "analysis/rules/replay.h"
#include "core/rules/common.h"

namespace lockstep::replay {

GpuOccupancy::GpuOccupancy(const GpuRun& run) : transfers_(run.collectives.size(), Interval{0, 0}) {
  members_.resize(run.collectives.size());
  const auto each = [&](std::size_t r, auto&& f) {
    const GpuRank& rank = run.gpu_ranks[r];
    for (std::size_t i = 0; i < rank.items.size(); ++i)
      if (!rank.EndsLastStep(i)) f(rank.items[i]);
  };
  std::vector<Interval> arrival_and_end(run.collectives.size(), {INT64_MIN, INT64_MIN});
  for (std::size_t r = 0; r < run.gpu_ranks.size(); ++r) {
    std::vector<Interval> computing;
    each(r, [&](const GpuItem& item) {
      if (item.kind == GpuItem::kKernel) computing.push_back({item.begin_ns, item.end_ns});
      if (item.kind != GpuItem::kMember) return;
      Interval& both = arrival_and_end[item.ref];
      both = {std::max(both.begin, item.begin_ns), std::max(both.end, item.end_ns)};
      members_[item.ref].push_back(static_cast<std::uint32_t>(r));
    });
    computing_.push_back(Normalize(std::move(computing)));
  }
  for (std::size_t c = 0; c < transfers_.size(); ++c)
    if (!members_[c].empty() && arrival_and_end[c].begin < arrival_and_end[c].end) transfers_[c] = arrival_and_end[c];
  for (std::size_t r = 0; r < run.gpu_ranks.size(); ++r) {
    std::vector<Interval> transferring;
    each(r, [&](const GpuItem& item) {
      if (item.kind != GpuItem::kMember) return;
      const std::int64_t begin = arrival_and_end[item.ref].begin;
      if (begin < item.end_ns) transferring.push_back({begin, item.end_ns});
    });
    transferring_.push_back(Normalize(std::move(transferring)));
  }
}

std::vector<std::int64_t> GpuOccupancy::ByComputing(std::uint32_t collective, Interval transfer) const {
  std::vector<const IntervalSet*> members;
  for (const std::uint32_t rank : members_[collective]) members.push_back(&computing_[rank]);
  return NsByCount(members, transfer);
}

std::int64_t GpuAlone::Kernel(std::size_t rank, const GpuItem& item) const {
  const std::int64_t length = item.end_ns - item.begin_ns;
  const std::int64_t beside = TotalWithin(occupancy_.transferring(rank), {item.begin_ns, item.end_ns});
  return length - beside + std::llround(static_cast<double>(beside) / (1 + interference_.compute_slowdown));
}

std::int64_t GpuAlone::Transfer(std::uint32_t collective, Interval transfer) const {
  if (transfer.begin >= transfer.end) return 0;
  const std::vector<std::int64_t> by_computing = occupancy_.ByComputing(collective, transfer);
  double alone = 0;
  for (std::size_t k = 0; k < by_computing.size(); ++k)
    alone += static_cast<double>(by_computing[k]) / (1 + interference_.transfer_slowdown * static_cast<double>(k) /
                                                             static_cast<double>(by_computing.size() - 1));
  return std::llround(alone);
}

namespace {

// Estimates the slowdowns of computing and of transferring, from samples that a bootstrap draws by rank and step.
class Estimator {
 public:
  explicit Estimator(const GpuRun& run) : run_(run), occupancy_(run) {
    Kernels();
    Transfers();
  }

  InterferenceEstimate Estimate() const {
    InterferenceEstimate estimate;
    if (!cells_.empty()) {
      std::vector<std::size_t> all(cells_.size());
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
      estimate.value.compute_slowdown = Compute(all);
      estimate.compute_interval = Interval95(cells_.size(), [&](const auto& drawn) { return Compute(drawn); });
      estimate.samples += kernels_;
      if (estimate.compute_interval.first < rules::kGpuSlowdownTold) estimate.value.compute_slowdown = 0;
    }
    if (!transfers_.empty()) {
      std::vector<std::size_t> all(transfers_.size());
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
      estimate.value.transfer_slowdown = Transfer(all);
      estimate.transfer_interval = Interval95(transfers_.size(), [&](const auto& drawn) { return Transfer(drawn); });
      estimate.samples += transfers_.size();
      if (estimate.transfer_interval.first < rules::kGpuSlowdownTold) estimate.value.transfer_slowdown = 0;
    }
    return estimate;
  }

 private:
  // Sums for a line through 0: how much longer a kernel takes, against how long it runs beside a transfer, both in
  // units of the kernel's time alone.
  struct Cell {
    double beside_longer = 0, beside_beside = 0;
  };
  struct Moved {
    std::size_t group;
    std::vector<std::pair<double, double>> by_share;  // The share of members that compute, and the duration in ns.
  };

  // Compares kernels of one name and shape beside a transfer with the same on that rank without one.
  void Kernels() {
    for (std::size_t r = 0; r < run_.gpu_ranks.size(); ++r) {
      const GpuRank& rank = run_.gpu_ranks[r];
      const IntervalSet& transfers = occupancy_.transferring(r);
      std::vector<std::vector<std::int64_t>> alone(rank.groups.size());
      std::vector<std::int64_t> beside(rank.items.size(), 0);
      for (std::size_t i = 0; i < rank.items.size(); ++i) {
        const GpuItem& item = rank.items[i];
        if (item.kind != GpuItem::kKernel || item.end_ns <= item.begin_ns) continue;
        beside[i] = TotalWithin(transfers, {item.begin_ns, item.end_ns});
        if (beside[i] == 0) alone[item.ref].push_back(item.end_ns - item.begin_ns);
      }
      std::vector<std::int64_t> usual;
      for (auto& each : alone) usual.push_back(each.size() < rules::kMiddle ? 0 : LowerMedian(std::move(each)));
      std::map<std::size_t, Cell> by_step;
      std::size_t gate = rank.FirstGate();
      for (std::size_t i = 0; i < rank.items.size(); ++i) {
        while (gate < rank.gates.size() && rank.gates[gate] == i) ++gate;
        const GpuItem& item = rank.items[i];
        if (beside[i] == 0 || usual[item.ref] <= 0) continue;
        const auto unit = static_cast<double>(usual[item.ref]);
        const double x = static_cast<double>(beside[i]) / unit;
        const double y = static_cast<double>(item.end_ns - item.begin_ns) / unit - 1;
        Cell& cell = by_step[gate];
        cell.beside_longer += x * y;
        cell.beside_beside += x * x;
        ++kernels_;
      }
      for (const auto& [step, cell] : by_step) cells_.push_back(cell);
    }
  }

  // In a time t beside a transfer a kernel does the work that takes t / (1 + slowdown) alone.
  double Compute(const std::vector<std::size_t>& drawn) const {
    Cell sum;
    for (const std::size_t i : drawn) {
      sum.beside_longer += cells_[i].beside_longer;
      sum.beside_beside += cells_[i].beside_beside;
    }
    const double slope = sum.beside_beside > 0 ? sum.beside_longer / sum.beside_beside : 0;
    return slope <= 0 ? 0
                      : std::min(rules::kGpuSlowdownMost, slope < 1 ? slope / (1 - slope) : rules::kGpuSlowdownMost);
  }

  // Compares transfers of one kind, size and communicator that overlap with computing on different numbers of members.
  void Transfers() {
    std::map<std::tuple<std::uint64_t, CollectiveKind, std::uint64_t>, std::vector<Moved>> groups;
    for (std::uint32_t c = 0; c < run_.collectives.size(); ++c) {
      const Interval transfer = occupancy_.transfers()[c];
      if (transfer.begin >= transfer.end) continue;
      const std::vector<std::int64_t> by_computing = occupancy_.ByComputing(c, transfer);
      if (by_computing.size() < 2) continue;
      const std::size_t members = by_computing.size() - 1, parts = std::min(members, rules::kGpuSlowdownShareParts);
      std::vector<double> ns(parts + 1, 0);
      for (std::size_t k = 0; k <= members; ++k)
        ns[(k * parts + members / 2) / members] += static_cast<double>(by_computing[k]);
      Moved moved{0, {}};
      for (std::size_t part = 0; part <= parts; ++part)
        if (ns[part] > 0) moved.by_share.emplace_back(static_cast<double>(part) / static_cast<double>(parts), ns[part]);
      const RunCollective& about = run_.collectives[c];
      groups[{about.comm, about.kind, about.bytes}].push_back(std::move(moved));
    }
    for (auto& [key, list] : groups) {
      double least = 1, most = 0;
      for (const Moved& moved : list) {
        double share = 0, whole = 0;
        for (const auto& [of, ns] : moved.by_share) share += of * ns, whole += ns;
        least = std::min(least, share / whole);
        most = std::max(most, share / whole);
      }
      if (list.size() < rules::kMiddle || most - least < rules::kLittle) continue;
      for (std::size_t i = 0; i < list.size(); i += list.size() / rules::kGpuSlowdownGroupTransfers + 1) {
        list[i].group = groups_;
        transfers_.push_back(std::move(list[i]));
      }
      ++groups_;
    }
  }

  // The scatter of the transfers of a group without interference if this were the slowdown: in logarithms, so that all
  // groups have equal weight.
  double Spread(const std::vector<std::size_t>& drawn, double slowdown) const {
    std::vector<double> sum(groups_, 0), squares(groups_, 0), count(groups_, 0);
    for (const std::size_t i : drawn) {
      const Moved& moved = transfers_[i];
      double alone = 0;
      for (const auto& [share, ns] : moved.by_share) alone += ns / (1 + slowdown * share);
      const double log = std::log(alone);
      sum[moved.group] += log;
      squares[moved.group] += log * log;
      ++count[moved.group];
    }
    double spread = 0;
    for (std::size_t g = 0; g < groups_; ++g)
      if (count[g] > 0) spread += squares[g] - sum[g] * sum[g] / count[g];
    return spread;
  }

  // Finds the slowdown with the least scatter by golden section search: the scatter has one minimum if the shares
  // differ.
  double Transfer(const std::vector<std::size_t>& drawn) const {
    double low = 0, high = rules::kGpuSlowdownMost;
    for (int round = 0; round < rules::kGpuSlowdownSearchRounds; ++round) {
      const double a = high - rules::kGoldenSection * (high - low), b = low + rules::kGoldenSection * (high - low);
      if (Spread(drawn, a) <= Spread(drawn, b))
        high = b;
      else
        low = a;
    }
    return low < rules::kGpuSlowdownSearchPrecision ? 0 : (low + high) / 2;
  }

  template <typename F>
  static std::pair<double, double> Interval95(std::size_t n, F&& value) {
    analysis::SeededRandom random(rules::kInterferenceSeed);
    std::vector<double> values;
    for (std::size_t round = 0; round < rules::kInterferenceResamples; ++round) {
      std::vector<std::size_t> drawn(n);
      for (std::size_t& each : drawn) each = random.Below(n);
      values.push_back(value(drawn));
    }
    return Middle95(std::move(values));
  }

  const GpuRun& run_;
  const GpuOccupancy occupancy_;
  std::vector<Cell> cells_;  // By rank and step.
  std::vector<Moved> transfers_;
  std::size_t groups_ = 0, kernels_ = 0;
};

}  // namespace

InterferenceEstimate GpuRun::EstimateInterference(const std::vector<const RecordedRun*>&) const {
  return Estimator(*this).Estimate();
}

}  // namespace lockstep::replay
