#include "analysis/gpu/launch_index.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "analysis/rules/causes.h"
#include "trace/file/strings.h"

namespace lockstep::gpu {
namespace {

using schema::kNone;

bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// CUPTI's names of API versions: cudaLaunchKernel_v7000, cudaMemcpyAsync_ptsz_v7000, cuMemcpyDtoH_v2.
std::string_view WithoutVersion(std::string_view name) {
  const std::size_t at = name.rfind("_v");
  if (at != std::string_view::npos && at + 2 < name.size() &&
      std::all_of(name.begin() + static_cast<std::ptrdiff_t>(at) + 2, name.end(),
                  [](char c) { return c >= '0' && c <= '9'; }))
    name = name.substr(0, at);
  for (const std::string_view suffix : {"_ptsz", "_ptds", "_spt"})
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  return name;
}

// Rows in the order of `key`; the identity, unsorted, when they are in order already.
template <typename Before>
std::vector<std::uint32_t> Ordered(std::size_t rows, Before&& before) {
  std::vector<std::uint32_t> order(rows);
  std::iota(order.begin(), order.end(), 0u);
  if (!std::is_sorted(order.begin(), order.end(), before)) std::sort(order.begin(), order.end(), before);
  return order;
}

// Correlation -> row of api. Correlations are counters in practice: an array indexed by
// them; where they are spread widely, a sorted list.
class CorrelationMap {
 public:
  explicit CorrelationMap(const schema::RankTables& tables) {
    const schema::Api& api = tables.api;
    const std::vector<HostCall> calls = ClassifyHostCalls(tables);
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max(), most = 0;
    for (const std::uint64_t correlation : api.correlation) {
      if (correlation == 0) continue;
      least = std::min(least, correlation);
      most = std::max(most, correlation);
    }
    if (least > most) return;
    const auto launches = [&](std::uint32_t row) {
      switch (calls[row]) {
        case HostCall::kLaunch:
        case HostCall::kGraphLaunch:
        case HostCall::kCopy:
        case HostCall::kBlockingCopy:
          return true;
        default:
          return false;
      }
    };
    const auto better = [&](std::uint32_t a, std::uint32_t b) {
      const bool launches_a = launches(a), launches_b = launches(b);
      if (launches_a != launches_b) return launches_a;
      return api.begin_ns[a] != api.begin_ns[b] ? api.begin_ns[a] < api.begin_ns[b] : a < b;
    };
    least_ = least;
    if (most - least < rules::kCorrelationSpreadPerCall * api.rows() + rules::kCorrelationSpread) {
      dense_.assign(most - least + 1, kNone);
      for (std::uint32_t row = 0; row < api.rows(); ++row) {
        if (api.correlation[row] == 0) continue;
        std::uint32_t& at = dense_[api.correlation[row] - least];
        if (at == kNone || better(row, at)) at = row;
      }
      return;
    }
    for (std::uint32_t row = 0; row < api.rows(); ++row)
      if (api.correlation[row] != 0) sparse_.emplace_back(api.correlation[row], row);
    std::sort(sparse_.begin(), sparse_.end(), [&](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : better(a.second, b.second);
    });
    sparse_.erase(
        std::unique(sparse_.begin(), sparse_.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
        sparse_.end());
  }

  std::uint32_t Find(std::uint64_t correlation) const {
    if (correlation == 0 || correlation < least_) return kNone;
    if (!dense_.empty()) return correlation - least_ < dense_.size() ? dense_[correlation - least_] : kNone;
    const auto at = std::lower_bound(sparse_.begin(), sparse_.end(), correlation,
                                     [](const auto& entry, std::uint64_t wanted) { return entry.first < wanted; });
    return at != sparse_.end() && at->first == correlation ? at->second : kNone;
  }

  std::vector<std::uint32_t> Find(const std::vector<std::uint64_t>& correlations) const {
    std::vector<std::uint32_t> rows(correlations.size());
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = Find(correlations[i]);
    return rows;
  }

 private:
  std::uint64_t least_ = 0;
  std::vector<std::uint32_t> dense_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> sparse_;
};

// Numbers the streams in the order of their first operation; a rank has few of them and
// neighbours mostly share one.
class StreamNumbers {
 public:
  std::uint32_t Of(const GpuStream& stream) {
    auto& slot = recent_[stream.stream % recent_.size()];
    if (slot.second != kNone && slot.first == stream) return slot.second;
    const auto at = numbers_.try_emplace(stream, static_cast<std::uint32_t>(numbers_.size())).first;
    slot = {stream, at->second};
    return at->second;
  }
  const std::map<GpuStream, std::uint32_t>& all() const { return numbers_; }

 private:
  std::map<GpuStream, std::uint32_t> numbers_;
  std::array<std::pair<GpuStream, std::uint32_t>, rules::kRecentStreams> recent_ = [] {
    std::array<std::pair<GpuStream, std::uint32_t>, rules::kRecentStreams> none;
    none.fill({GpuStream{}, kNone});
    return none;
  }();
};

}  // namespace

HostCall ClassifyHostCall(std::string_view full_name, std::uint8_t api_kind) {
  const std::string_view name = WithoutVersion(full_name);
  const bool known = name.starts_with("cu") || name.starts_with("hip");
  if (known) {
    if (name.ends_with("GraphLaunch")) return HostCall::kGraphLaunch;
    // Building a graph launches nothing: cudaGraphAddMemcpyNode, cudaGraphKernelNodeSetParams.
    if (name.starts_with("cudaGraph") || name.starts_with("cuGraph") || name.starts_with("hipGraph"))
      return HostCall::kOther;
    if (Has(name, "Launch") && (Has(name, "Kernel") || name.starts_with("cuLaunch"))) return HostCall::kLaunch;
    if (Has(name, "Memcpy") || Has(name, "Memset")) {
      // cudaMemset and cudaMemcpyPeer return before the device is done (CUDA Runtime API, "API
      // synchronization behavior").
      const bool returns_early = Has(name, "Async") || Has(name, "Memset") || Has(name, "Peer");
      return returns_early ? HostCall::kCopy : HostCall::kBlockingCopy;
    }
    if (name.ends_with("Synchronize")) return HostCall::kSync;
    // Freeing device memory waits for the device (same place); the Async variants do not.
    if (name == "cudaFree" || name == "cuMemFree" || name == "hipFree") return HostCall::kSync;
    if (Has(name, "Malloc") || Has(name, "Free") || Has(name, "MemAlloc") || Has(name, "HostAlloc") ||
        Has(name, "HostRegister") || Has(name, "HostUnregister"))
      return HostCall::kMemory;
    if (Has(name, "EventRecord") || Has(name, "EventQuery") || Has(name, "StreamQuery") ||
        Has(name, "StreamWaitEvent") || Has(name, "EventElapsedTime"))
      return HostCall::kEvent;
  }
  constexpr std::array<HostCall, 7> kByKind = {HostCall::kOther, HostCall::kLaunch,      HostCall::kCopy,
                                               HostCall::kSync,  HostCall::kGraphLaunch, HostCall::kMemory,
                                               HostCall::kEvent};
  return api_kind < kByKind.size() ? kByKind[api_kind] : HostCall::kOther;
}

std::vector<HostCall> ClassifyHostCalls(const schema::RankTables& tables) {
  const schema::Api& api = tables.api;
  // Names repeat: each is looked at once per kind. kUnseen is no HostCall.
  constexpr std::uint8_t kUnseen = 0xff;
  std::vector<std::array<std::uint8_t, 8>> by_name(tables.strings.rows());
  for (auto& kinds : by_name) kinds.fill(kUnseen);
  std::vector<HostCall> calls(api.rows());
  for (std::size_t row = 0; row < calls.size(); ++row) {
    const std::uint32_t name = api.name[row];
    const std::uint8_t kind = api.kind[row];
    if (name >= by_name.size() || kind >= by_name[name].size()) {
      calls[row] = ClassifyHostCall({}, kind);
      continue;
    }
    std::uint8_t& known = by_name[name][kind];
    if (known == kUnseen) known = static_cast<std::uint8_t>(ClassifyHostCall(trace::TextOf(tables, name), kind));
    calls[row] = static_cast<HostCall>(known);
  }
  return calls;
}

LaunchIndex FindLaunches(const schema::RankTables& tables) {
  const CorrelationMap map(tables);
  return {.of_kernel = map.Find(tables.kernels.correlation),
          .of_copy = map.Find(tables.copies.correlation),
          .of_sync = map.Find(tables.sync.correlation)};
}

RangeNest::RangeNest(const schema::RankTables& tables, std::uint32_t sources) : ranges_(tables.ranges) {
  constexpr std::uint8_t kMark = schema::RangeKind::kMark;
  const schema::Ranges& r = ranges_;
  const auto takes_part = [&](std::uint32_t row) {
    return r.kind[row] != kMark && r.duration_ns[row] > 0 && r.thread[row] < rules::kRangeThreads &&
           r.source[row] < 32 && (sources >> r.source[row] & 1u) != 0;
  };
  std::uint32_t threads = 0;
  for (std::uint32_t row = 0; row < r.rows(); ++row)
    if (takes_part(row)) threads = std::max(threads, r.thread[row] + 1);
  first_.assign(threads + 1, 0);
  for (std::uint32_t row = 0; row < r.rows(); ++row)
    if (takes_part(row)) ++first_[r.thread[row] + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  order_.resize(first_.back());
  std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
  for (std::uint32_t row = 0; row < r.rows(); ++row)
    if (takes_part(row)) order_[next[r.thread[row]]++] = row;

  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    if (r.begin_ns[a] != r.begin_ns[b]) return r.begin_ns[a] < r.begin_ns[b];
    if (r.duration_ns[a] != r.duration_ns[b]) return r.duration_ns[a] > r.duration_ns[b];
    if (r.depth[a] != r.depth[b]) return r.depth[a] < r.depth[b];
    return a < b;
  };
  parent_.assign(r.rows(), kNone);
  std::vector<std::uint32_t> stack;
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    const auto begin = order_.begin() + first_[thread], end = order_.begin() + first_[thread + 1];
    if (!std::is_sorted(begin, end, before)) std::sort(begin, end, before);
    stack.clear();
    for (auto at = begin; at != end; ++at) {
      // A range that outlives the one around it keeps that one on the stack; Open() skips what has ended.
      while (!stack.empty() && r.begin_ns[stack.back()] + r.duration_ns[stack.back()] <= r.begin_ns[*at])
        stack.pop_back();
      parent_[*at] = stack.empty() ? kNone : Open(stack.back(), r.begin_ns[*at]);
      stack.push_back(*at);
    }
  }
}

// Whatever is open at a time and began before or with `range` is among its ancestors.
std::uint32_t RangeNest::Open(std::uint32_t range, std::int64_t time_ns) const {
  while (range != kNone && ranges_.begin_ns[range] + ranges_.duration_ns[range] <= time_ns) range = parent_[range];
  return range;
}

std::span<const std::uint32_t> RangeNest::Of(std::uint32_t thread) const {
  if (thread >= threads()) return {};
  return std::span(order_).subspan(first_[thread], first_[thread + 1] - first_[thread]);
}

std::vector<std::int64_t> RangeNest::SelfTimes() const {
  std::vector<std::int64_t> self(ranges_.rows(), 0);
  std::vector<std::int64_t> covered(ranges_.rows(), std::numeric_limits<std::int64_t>::min());
  const auto end_of = [&](std::uint32_t row) { return ranges_.begin_ns[row] + ranges_.duration_ns[row]; };
  // Callers come before what they call.
  for (const std::uint32_t row : order_) {
    self[row] += ranges_.duration_ns[row];
    const std::uint32_t parent = parent_[row];
    if (parent == kNone) continue;
    const std::int64_t from = std::max(ranges_.begin_ns[row], covered[parent]);
    const std::int64_t to = std::min(end_of(row), end_of(parent));
    if (to > from) self[parent] -= to - from;
    covered[parent] = std::max(covered[parent], to);
  }
  return self;
}

std::uint32_t RangeNest::At(std::uint32_t thread, std::int64_t time_ns) const {
  const std::span<const std::uint32_t> rows = Of(thread);
  const auto after = std::upper_bound(rows.begin(), rows.end(), time_ns,
                                      [&](std::int64_t t, std::uint32_t row) { return t < ranges_.begin_ns[row]; });
  return after == rows.begin() ? kNone : Open(after[-1], time_ns);
}

std::vector<std::uint32_t> RangeNest::At(std::span<const std::uint32_t> thread,
                                         std::span<const std::int64_t> begin_ns) const {
  std::vector<std::uint32_t> found(begin_ns.size(), kNone);
  const std::vector<std::uint32_t> order =
      Ordered(begin_ns.size(), [&](std::uint32_t a, std::uint32_t b) { return begin_ns[a] < begin_ns[b]; });
  std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
  for (const std::uint32_t event : order) {
    const std::uint32_t t = thread[event];
    if (t >= threads()) continue;
    std::uint32_t& at = next[t];
    while (at < first_[t + 1] && ranges_.begin_ns[order_[at]] <= begin_ns[event]) ++at;
    if (at > first_[t]) found[event] = Open(order_[at - 1], begin_ns[event]);
  }
  return found;
}

std::vector<std::uint16_t> GpuTimeline::Devices() const {
  std::vector<std::uint16_t> devices;
  for (const GpuStream& stream : streams)
    if (devices.empty() || devices.back() != stream.device) devices.push_back(stream.device);
  return devices;
}

GpuTimeline MakeGpuTimeline(const RankView& rank, const LaunchIndex& launches) {
  const schema::Kernels& kernels = rank.tables.kernels;
  const schema::Copies& copies = rank.tables.copies;
  GpuTimeline timeline;
  timeline.ops.reserve(kernels.rows() + copies.rows());
  StreamNumbers numbers;
  for (std::uint32_t row = 0; row < kernels.rows(); ++row) {
    const merge::KernelClass cls = row < rank.classes.size() ? rank.classes[row] : merge::KernelClass::kCompute;
    timeline.ops.push_back({.begin_ns = kernels.begin_ns[row],
                            .end_ns = kernels.begin_ns[row] + kernels.duration_ns[row],
                            .row = row,
                            .api = launches.of_kernel[row],
                            .stream = numbers.Of({kernels.device[row], kernels.context[row], kernels.stream[row]}),
                            .cls = cls,
                            .copy = false,
                            .busy = rank.hta || cls != merge::KernelClass::kNone});
  }
  for (std::uint32_t row = 0; row < copies.rows(); ++row)
    timeline.ops.push_back({.begin_ns = copies.begin_ns[row],
                            .end_ns = copies.begin_ns[row] + copies.duration_ns[row],
                            .row = row,
                            .api = launches.of_copy[row],
                            .stream = numbers.Of({copies.device[row], copies.context[row], copies.stream[row]}),
                            .cls = merge::KernelClass::kMemory,
                            .copy = true,
                            .busy = true});
  std::vector<std::uint32_t> sorted_number(numbers.all().size());
  for (const auto& [stream, number] : numbers.all()) {
    sorted_number[number] = static_cast<std::uint32_t>(timeline.streams.size());
    timeline.streams.push_back(stream);
  }
  for (GpuOp& op : timeline.ops) op.stream = sorted_number[op.stream];
  const auto before = [](const GpuOp& a, const GpuOp& b) {
    if (a.begin_ns != b.begin_ns) return a.begin_ns < b.begin_ns;
    if (a.end_ns != b.end_ns) return a.end_ns < b.end_ns;
    return a.copy != b.copy ? b.copy : a.row < b.row;
  };
  // Both tables are mostly in order of time: one merge then.
  const auto middle = timeline.ops.begin() + static_cast<std::ptrdiff_t>(kernels.rows());
  if (!std::is_sorted(timeline.ops.begin(), middle, before)) std::sort(timeline.ops.begin(), middle, before);
  if (!std::is_sorted(middle, timeline.ops.end(), before)) std::sort(middle, timeline.ops.end(), before);
  std::inplace_merge(timeline.ops.begin(), middle, timeline.ops.end(), before);
  return timeline;
}

std::string_view NoGpuEvents() { return "no GPU events: a CPU-only run, or the GPU was not recorded"; }

}  // namespace lockstep::gpu
