#include "trace/decode/decode_gpu_clock.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

namespace lockstep::trace {
namespace {

using schema::kNoTime;

constexpr std::int64_t kForever = INT64_MAX;
// A bound that is found within such a stretch needs no assumption about drift.
constexpr std::int64_t kStretchNs = 100'000'000, kTightNs = 1'000'000;
constexpr std::size_t kLeastStretches = 4, kMostStretches = 64;
// If the host never waits, evidence from outside the stretch is used, and this much drift is allowed for.
constexpr double kDrift = 100e-6, kMostSlack = 1e15;

// Times of damaged files may have any value; evidence is never days away from its cause.
constexpr std::int64_t kWildNs = 1'000'000'000'000'000;
bool Difference(std::int64_t later, std::int64_t earlier, std::int64_t* ns) {
  return !__builtin_sub_overflow(later, earlier, ns) && *ns > -kWildNs && *ns < kWildNs;
}

struct Call {
  std::int64_t begin_ns, end_ns;
  bool failed;
};
// A bound at a certain time: the disagreement was at most (or at least) this.
struct Evidence {
  std::int64_t at_ns, bound_ns;
};
struct Work {
  std::int64_t enqueued_ns;  // When its launching call returned: a synchronisation that begins later waits for it.
  std::int64_t end_ns;
  std::uint16_t device;
};

class Comparison {
 public:
  explicit Comparison(const schema::RankTables& tables) : tables_(tables) {
    const schema::Api& api = tables.api;
    if (tables.kernels.rows() == 0 && tables.copies.rows() == 0) return;
    calls_.reserve(api.rows());
    for (std::size_t i = 0; i < api.rows(); ++i) {
      if (api.correlation[i] == 0) continue;
      const Call call{api.begin_ns[i], api.begin_ns[i] + api.duration_ns[i], api.result[i] != 0};
      const auto [known, fresh] = calls_.try_emplace(api.correlation[i], call);
      if (fresh) continue;  // The runtime's call contains the driver's.
      known->second.begin_ns = std::min(known->second.begin_ns, call.begin_ns);
      known->second.end_ns = std::max(known->second.end_ns, call.end_ns);
      known->second.failed |= call.failed;
    }
  }

  std::vector<GpuClock> Run() {
    if (calls_.empty()) return {};
    Launches(tables_.kernels, [&](std::size_t i) { return tables_.kernels.graph_node[i] != 0; });
    Launches(tables_.copies, [](std::size_t) { return false; });
    for (auto* lists : {&of_stream_, &of_context_})
      for (auto& [key, list] : *lists) Sort(list);
    Waits();
    std::vector<GpuClock> clocks;
    for (auto& [device, found] : devices_) {
      Bound(found);
      found.clock.device = device;
      clocks.push_back(found.clock);
    }
    return clocks;
  }

 private:
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // Context, stream.
  struct Device {
    GpuClock clock;
    std::vector<Evidence> at_most, at_least;
  };

  template <typename Table, typename OfGraph>
  void Launches(const Table& rows, const OfGraph& of_graph) {
    for (std::size_t i = 0; i < rows.rows(); ++i) {
      const auto call = calls_.find(rows.correlation[i]);
      if (rows.correlation[i] == 0 || call == calls_.end()) continue;
      std::int64_t after = 0;
      if (!Difference(rows.begin_ns[i], call->second.begin_ns, &after)) continue;
      Device& device = devices_[rows.device[i]];
      device.at_most.push_back({rows.begin_ns[i], after});
      if (after < 0) {
        device.clock.early_starts += 1;
        device.clock.early_start_ns = std::max(device.clock.early_start_ns, -after);
      }
      const Work work{call->second.end_ns, rows.begin_ns[i] + rows.duration_ns[i], rows.device[i]};
      of_context_[{rows.context[i], 0}].push_back(work);
      // A graph's kernels run where the graph was launched, whatever stream they were captured on.
      if (!of_graph(i)) of_stream_[{rows.context[i], rows.stream[i]}].push_back(work);
    }
  }

  // By when it was enqueued; each with the latest end so far.
  static void Sort(std::vector<Work>& list) {
    std::sort(list.begin(), list.end(), [](const Work& a, const Work& b) { return a.enqueued_ns < b.enqueued_ns; });
    for (std::size_t i = 1; i < list.size(); ++i)
      if (list[i - 1].end_ns > list[i].end_ns) {
        list[i].end_ns = list[i - 1].end_ns;
        list[i].device = list[i - 1].device;
      }
  }

  void Waits() {
    using enum schema::SyncKind::Value;
    const schema::Sync& sync = tables_.sync;
    for (std::size_t i = 0; i < sync.rows(); ++i) {
      if (sync.kind[i] != kEvent && sync.kind[i] != kStream && sync.kind[i] != kContext) continue;
      const auto call = calls_.find(sync.correlation[i]);
      // The call failed and returned before the work had ended.
      if (call != calls_.end() && call->second.failed) continue;
      std::int64_t until = sync.begin_ns[i];
      std::uint32_t stream = sync.stream[i];
      if (sync.kind[i] == kEvent) {
        const auto record = calls_.find(sync.record_correlation[i]);
        if (sync.record_correlation[i] == 0 || record == calls_.end()) continue;
        until = record->second.begin_ns;
        stream = sync.record_stream[i];
      }
      const auto& lists = sync.kind[i] == kContext ? of_context_ : of_stream_;
      const auto list = lists.find({sync.context[i], sync.kind[i] == kContext ? 0 : stream});
      if (list == lists.end()) continue;
      const auto after = std::upper_bound(list->second.begin(), list->second.end(), until,
                                          [](std::int64_t ns, const Work& work) { return ns < work.enqueued_ns; });
      if (after == list->second.begin()) continue;
      std::int64_t later = 0;
      const std::int64_t end = sync.begin_ns[i] + sync.duration_ns[i];
      if (!Difference(end, after[-1].end_ns, &later)) continue;
      Device& device = devices_[after[-1].device];
      device.at_least.push_back({end, -later});
      if (later < 0) {
        device.clock.early_returns += 1;
        device.clock.early_return_ns = std::max(device.clock.early_return_ns, -later);
      }
    }
  }

  // Bounds within stretches of time, so that the drift of a clock is visible; then the hull of all.
  static void Bound(Device& device) {
    std::int64_t first = kForever, last = INT64_MIN;
    for (const auto* list : {&device.at_most, &device.at_least})
      for (const Evidence& one : *list) first = std::min(first, one.at_ns), last = std::max(last, one.at_ns);
    std::int64_t span = 0;
    if ((device.at_most.empty() && device.at_least.empty()) || !Difference(last, first, &span)) return;
    const std::size_t stretches =
        std::clamp<std::size_t>(static_cast<std::size_t>(span / kStretchNs), kLeastStretches, kMostStretches);
    const std::int64_t length = span / static_cast<std::int64_t>(stretches) + 1;
    const auto stretch = [&](const Evidence& one) { return static_cast<std::size_t>((one.at_ns - first) / length); };
    std::vector<std::int64_t> high(stretches, kForever), low(stretches, -kForever);
    for (const Evidence& one : device.at_most) high[stretch(one)] = std::min(high[stretch(one)], one.bound_ns);
    for (const Evidence& one : device.at_least) low[stretch(one)] = std::max(low[stretch(one)], one.bound_ns);

    // A steady drift is limited by the bounds of every two stretches, wherever in them they apply.
    double most = INFINITY, least = 0;
    for (std::size_t i = 0; i < stretches; ++i)
      for (std::size_t j = i + 2; j < stretches; ++j) {
        const double far = static_cast<double>(j - i + 1) * static_cast<double>(length);
        const double near = static_cast<double>(j - i - 1) * static_cast<double>(length);
        const auto open = [](std::int64_t up, std::int64_t down) {
          return static_cast<double>(up) - static_cast<double>(down);
        };
        if (high[j] != kForever && low[i] != -kForever && high[i] != kForever && low[j] != -kForever) {
          most = std::min(most, std::max({open(high[j], low[i]), open(high[i], low[j]), 0.0}) / near);
          least = std::max({least, open(low[j], high[i]) / far, open(low[i], high[j]) / far});
        }
      }
    const double believed = std::max(least, std::min(most, kDrift));
    std::int64_t hull_low = kForever, hull_high = -kForever;
    for (std::size_t k = 0; k < stretches; ++k) {
      const bool tight = high[k] != kForever && low[k] != -kForever && high[k] - low[k] <= kTightNs;
      const double drift = tight ? most : believed;
      std::int64_t up = kForever, down = -kForever;
      for (std::size_t j = 0; j < stretches; ++j) {
        const double distance = static_cast<double>(j > k ? j - k : k - j) + 1;
        if (j != k && !std::isfinite(drift)) continue;
        const auto slack = std::isfinite(drift)
                               ? static_cast<std::int64_t>(
                                     std::min(std::ceil(distance * static_cast<double>(length) * drift), kMostSlack))
                               : 0;
        if (high[j] != kForever) up = std::min(up, high[j] + slack);
        if (low[j] != -kForever) down = std::max(down, low[j] - slack);
      }
      // If the bounds contradict each other, the clock moved within the stretch, at least by this range.
      if (up != kForever && down != -kForever && down > up) std::swap(up, down);
      hull_high = std::max(hull_high, up);
      hull_low = std::min(hull_low, down);
    }
    if (hull_high != kForever) device.clock.high_ns = hull_high;
    if (hull_low != -kForever) device.clock.low_ns = hull_low;
  }

  const schema::RankTables& tables_;
  std::unordered_map<std::uint64_t, Call> calls_;
  std::map<Key, std::vector<Work>> of_stream_, of_context_;
  std::map<std::uint16_t, Device> devices_;
};

}  // namespace

std::vector<GpuClock> CompareGpuClocks(const schema::RankTables& tables) { return Comparison(tables).Run(); }

}  // namespace lockstep::trace
