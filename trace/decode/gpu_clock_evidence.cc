#include "trace/decode/gpu_clock_evidence.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/device_waits.h"
#include "core/rules/common.h"
#include "trace/file/strings.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

struct Call {
  std::int64_t begin_ns, end_ns;
  bool failed;
};
struct Work {
  std::int64_t enqueued_ns;  // When its launching call returned: a wait that begins later waits for it.
  std::int64_t end_ns;
};
struct Stream {
  std::uint16_t device;
  std::uint32_t context, stream;
  bool operator<(const Stream& other) const {
    return std::tie(device, context, stream) < std::tie(other.device, other.context, other.stream);
  }
};
// For what a call of this name waits. What an event stands for no name tells.
enum class WaitsFor : std::uint8_t { kNothing, kDevice, kAStream };

class Comparison {
 public:
  explicit Comparison(const schema::RankTables& tables) : t_(tables) {
    const schema::Api& api = t_.api;
    if (t_.kernels.rows() == 0 && t_.copies.rows() == 0) return;
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

  std::vector<GpuClockEvidence> Run() {
    if (calls_.empty()) return {};
    // A graph's kernels run where the graph was launched, whatever stream they were captured on.
    Launches(t_.kernels, [&](std::size_t i) { return t_.kernels.graph_node[i] != 0; });
    Launches(t_.copies, [](std::size_t) { return false; });
    for (auto* lists : {&streams_, &graphs_})
      for (auto& [key, list] : *lists) Sort(list);
    DescribedWaits();
    NamedWaits();
    BlockingCopies();
    std::vector<GpuClockEvidence> found;
    for (auto& [device, evidence] : devices_) {
      evidence.device = device;
      found.push_back(std::move(evidence));
    }
    return found;
  }

 private:
  using Lists = std::map<Stream, std::vector<Work>>;

  template <typename Table, typename OfGraph>
  void Launches(const Table& rows, const OfGraph& of_graph) {
    for (std::size_t i = 0; i < rows.rows(); ++i) {
      const auto call = calls_.find(rows.correlation[i]);
      if (rows.correlation[i] == 0 || call == calls_.end()) continue;
      std::int64_t after = 0;
      if (!NearDifference(rows.begin_ns[i], call->second.begin_ns, &after)) continue;
      devices_[rows.device[i]].at_most.push_back({rows.begin_ns[i], after});
      auto& list = of_graph(i) ? graphs_[{rows.device[i], rows.context[i], kNone}]
                               : streams_[{rows.device[i], rows.context[i], rows.stream[i]}];
      list.push_back({call->second.end_ns, rows.begin_ns[i] + rows.duration_ns[i]});
    }
  }

  // By when it was enqueued. The last one of a stream ends last; those of one launch may run side by side. Ends of
  // earlier ones do not count: one wrong end would contradict every later wait.
  static void Sort(std::vector<Work>& list) {
    std::sort(list.begin(), list.end(), [](const Work& a, const Work& b) {
      return std::pair(a.enqueued_ns, a.end_ns) < std::pair(b.enqueued_ns, b.end_ns);
    });
  }

  // The end of what was enqueued last until then, kNoTime without one.
  static std::int64_t LastEnd(const std::vector<Work>& list, std::int64_t until_ns) {
    const auto after = std::upper_bound(list.begin(), list.end(), until_ns,
                                        [](std::int64_t ns, const Work& work) { return ns < work.enqueued_ns; });
    return after == list.begin() ? kNoTime : after[-1].end_ns;
  }

  void Add(std::uint16_t device, std::int64_t wait_end_ns, std::int64_t work_end_ns) {
    std::int64_t later = 0;
    if (work_end_ns != kNoTime && NearDifference(wait_end_ns, work_end_ns, &later))
      devices_[device].at_least.push_back({wait_end_ns, -later});
  }

  // A wait for all streams that `covers` accepts, and what graphs launched in their contexts: for the last end.
  template <typename Covers>
  void AddLast(std::int64_t wait_end_ns, std::int64_t until_ns, bool graphs, const Covers& covers) {
    std::int64_t last = kNoTime;
    std::uint16_t device = 0;
    for (const Lists* lists : {&streams_, &graphs_}) {
      if (lists == &graphs_ && !graphs) break;
      for (const auto& [stream, list] : *lists) {
        if (!covers(stream)) continue;
        const std::int64_t end = LastEnd(list, until_ns);
        if (end != kNoTime && (last == kNoTime || end > last)) last = end, device = stream.device;
      }
    }
    Add(device, wait_end_ns, last);
  }

  void DescribedWaits() {
    using enum schema::SyncKind::Value;
    const schema::Sync& sync = t_.sync;
    for (std::size_t i = 0; i < sync.rows(); ++i) {
      if (sync.kind[i] != kEvent && sync.kind[i] != kStream && sync.kind[i] != kContext) continue;
      if (sync.correlation[i] != 0) described_.insert(sync.correlation[i]);
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
      const bool whole = sync.kind[i] == kContext;
      AddLast(sync.begin_ns[i] + sync.duration_ns[i], until, whole,
              [&](const Stream& of) { return of.context == sync.context[i] && (whole || of.stream == stream); });
    }
  }

  WaitsFor ByName(std::uint32_t name) {
    const auto [known, fresh] = waits_for_.try_emplace(name, WaitsFor::kNothing);
    if (!fresh) return known->second;
    const std::string_view text = TextOf(t_, name);
    if (WaitsForDevice(text))
      known->second = WaitsFor::kDevice;
    else if (text.find("StreamSynchronize") != std::string_view::npos)
      known->second = WaitsFor::kAStream;
    return known->second;
  }

  void NamedWaits() {
    // Which of several devices a call means the trace does not say.
    if (devices_.size() != 1) return;
    const schema::Api& api = t_.api;
    for (std::size_t i = 0; i < api.rows(); ++i) {
      if (api.kind[i] != schema::ApiKind::kSync || api.result[i] != 0 || described_.contains(api.correlation[i]))
        continue;
      const std::int64_t begin = api.begin_ns[i], end = begin + api.duration_ns[i];
      switch (ByName(api.name[i])) {
        case WaitsFor::kDevice:
          AddLast(end, begin, true, [](const Stream&) { return true; });
          break;
        case WaitsFor::kAStream:
          // One that does not block may be of a stream that has nothing left to do.
          if (api.duration_ns[i] > rules::kPromptStartNs) Blocked(begin, end);
          break;
        case WaitsFor::kNothing:
          break;
      }
    }
  }

  // A wait that was blocked, of which the trace does not say for which stream: something ended just before it returned.
  // If nothing did and something ended just after, that must have been it; else the one that ended first at least.
  void Blocked(std::int64_t begin_ns, std::int64_t end_ns) {
    std::int64_t nearest = kNoTime, first = kNoTime;
    for (const Lists* lists : {&streams_, &graphs_})
      for (const auto& [stream, list] : *lists) {
        std::int64_t later = 0;
        const std::int64_t end = LastEnd(list, begin_ns);
        if (end == kNoTime || !NearDifference(end_ns, end, &later)) continue;
        if (first == kNoTime || end < first) first = end;
        if (std::abs(later) <= rules::kPromptStartNs && (nearest == kNoTime || end < nearest)) nearest = end;
      }
    Add(devices_.begin()->first, end_ns, nearest != kNoTime ? nearest : first);
  }

  // Copies to pageable memory of the host return when they are done, and those that are not asynchronous to any.
  void BlockingCopies() {
    const schema::Copies& copies = t_.copies;
    std::unordered_map<std::uint64_t, std::size_t> copied;
    for (std::size_t i = 0; i < copies.rows(); ++i) {
      if (copies.kind[i] != schema::CopyKind::kDeviceToHost || copies.correlation[i] == 0) continue;
      copied[copies.correlation[i]] = i;
    }
    if (copied.empty()) return;
    for (std::size_t i = 0; i < t_.api.rows(); ++i) {
      const auto copy = copied.find(t_.api.correlation[i]);
      if (copy == copied.end() || t_.api.kind[i] != schema::ApiKind::kCopy || t_.api.result[i] != 0) continue;
      const std::string_view name = TextOf(t_, t_.api.name[i]);
      const std::size_t row = copy->second;
      const bool pageable = copies.host_memory[row] == schema::HostMemory::kPageable;
      if (name.empty() || (name.find("Async") != std::string_view::npos && !pageable)) continue;
      Add(copies.device[row], t_.api.begin_ns[i] + t_.api.duration_ns[i],
          copies.begin_ns[row] + copies.duration_ns[row]);
    }
  }

  const schema::RankTables& t_;
  std::unordered_map<std::uint64_t, Call> calls_;
  Lists streams_, graphs_;
  std::unordered_set<std::uint64_t> described_;
  std::unordered_map<std::uint32_t, WaitsFor> waits_for_;
  std::map<std::uint16_t, GpuClockEvidence> devices_;
};

}  // namespace

bool NearDifference(std::int64_t later, std::int64_t earlier, std::int64_t* ns) {
  constexpr std::int64_t kWildNs = 1'000'000'000'000'000;
  return !__builtin_sub_overflow(later, earlier, ns) && *ns > -kWildNs && *ns < kWildNs;
}

std::vector<GpuClockEvidence> CompareGpuTimes(const schema::RankTables& tables) { return Comparison(tables).Run(); }

}  // namespace lockstep::trace
