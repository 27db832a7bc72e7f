#include "merge/timeline/gpu_windows.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "merge/saturated.h"

namespace lockstep::merge {
namespace {

// Finds kernels by the host time of their launch; a kernel without a launch record counts at the time at which it ran.
class Launched {
 public:
  virtual ~Launched() = default;
  // Start of the first kernel launched at or after a host time, and before `until_ns`.
  virtual std::int64_t FirstStart(std::int64_t host_ns, std::int64_t otherwise,
                                  std::int64_t until_ns = kForever) const = 0;
  // Latest end of the device's work that was launched before a host time; kNoTime without any.
  virtual std::int64_t LastEnd(std::int64_t host_ns) const = 0;
};

// Keeps all launches in memory: for calls that are not in order of time, and recordings with gaps.
class AllLaunched final : public Launched {
 public:
  AllLaunched(KernelRows& kernels, CopyRows& copies, ApiRows* api) {
    std::vector<std::pair<std::uint64_t, std::int64_t>> launches;  // Correlation, time of the call.
    if (api != nullptr)
      ForEachRow(*api, [&](const auto& calls, std::size_t i) {
        if (calls.correlation[i] != 0) launches.emplace_back(calls.correlation[i], calls.begin_ns[i]);
      });
    std::sort(launches.begin(), launches.end());
    const auto launched = [&](const auto& rows, std::size_t i) {
      const std::uint64_t correlation = rows.correlation[i];
      const auto at = std::lower_bound(launches.begin(), launches.end(), std::pair(correlation, schema::kNoTime));
      const bool known = correlation != 0 && at != launches.end() && at->first == correlation;
      const std::int64_t launched_ns = known ? at->second : rows.begin_ns[i];
      ends_.emplace_back(launched_ns, rows.begin_ns[i] + rows.duration_ns[i]);
      return launched_ns;
    };
    kernels.Choose<kKernelTimes>();
    ForEachRow(kernels,
               [&](const auto& rows, std::size_t i) { starts_.emplace_back(launched(rows, i), rows.begin_ns[i]); });
    ForEachRow(copies, launched);
    std::sort(starts_.begin(), starts_.end());
    std::sort(ends_.begin(), ends_.end());
    for (std::size_t i = 1; i < ends_.size(); ++i) ends_[i].second = std::max(ends_[i].second, ends_[i - 1].second);
  }

  std::int64_t FirstStart(std::int64_t host_ns, std::int64_t otherwise, std::int64_t until_ns) const override {
    const auto at = std::lower_bound(starts_.begin(), starts_.end(), std::pair(host_ns, schema::kNoTime));
    return at == starts_.end() || at->first >= until_ns ? otherwise : at->second;
  }
  std::int64_t LastEnd(std::int64_t host_ns) const override {
    const auto at = std::lower_bound(ends_.begin(), ends_.end(), std::pair(host_ns, schema::kNoTime));
    return at == ends_.begin() ? schema::kNoTime : at[-1].second;
  }

 private:
  std::vector<std::pair<std::int64_t, std::int64_t>> starts_, ends_;  // (launch, start) and (launch, end so far).
};

// Finds the first kernel after each of a few host times, and the last work before the first and the last of them, with
// a few bits per call in memory.
class FirstLaunched final : public Launched {
 public:
  explicit FirstLaunched(std::vector<std::int64_t> bounds) : bounds_(std::move(bounds)), first_(bounds_.size()) {}

  // Returns false if the calls are not in order of time.
  bool Find(KernelRows& kernels, CopyRows& copies, ApiRows* api, const CorrelationSet& of_kernels) {
    CorrelationSet called, before_first, after_last;

    // Correlation -> bounds after which it is the first launch.
    std::unordered_multimap<std::uint64_t, std::size_t> wanted;
    std::int64_t before = INT64_MIN;
    if (api != nullptr) api->Rewind();
    while (const auto* calls = api != nullptr ? api->Next() : nullptr) {
      for (std::size_t i = 0; i < calls->rows(); ++i) {
        const std::int64_t begin = calls->begin_ns[i];
        if (begin < before) return false;
        before = begin;
        const std::uint64_t correlation = calls->correlation[i];
        // The runtime's call and the driver's call below it may carry the same id: the first one counts as the launch.
        if (correlation == 0 || !called.Insert(correlation)) continue;
        if (begin < bounds_.front()) before_first.Insert(correlation);
        if (begin >= bounds_.back()) after_last.Insert(correlation);
        if (!of_kernels.Contains(correlation)) continue;
        const std::size_t bucket = BucketOf(begin);
        // In order of time: the first call stays first; among those at the same time, the kernel that starts first.
        if (bucket == bounds_.size() || begin > first_[bucket].call) continue;
        first_[bucket].call = begin;
        wanted.emplace(correlation, bucket);
      }
    }
    const auto end_it = [&](const auto& rows, std::size_t i) {
      const std::uint64_t correlation = rows.correlation[i];
      const std::int64_t begin = rows.begin_ns[i], end = begin + rows.duration_ns[i];
      const bool known = correlation != 0 && called.Contains(correlation);
      if (known ? before_first.Contains(correlation) : begin < bounds_.front()) end_first_ = std::max(end_first_, end);
      if (known ? !after_last.Contains(correlation) : begin < bounds_.back()) end_last_ = std::max(end_last_, end);
      return known;
    };
    ForEachRow(copies, end_it);
    kernels.Choose<kKernelTimes>();
    ForEachRow(kernels, [&](const auto& rows, std::size_t i) {
      const std::uint64_t correlation = rows.correlation[i];
      const std::int64_t begin = rows.begin_ns[i];
      if (!end_it(rows, i)) {
        if (const std::size_t bucket = BucketOf(begin); bucket < bounds_.size()) first_[bucket].Take(begin, begin);
      } else if (!wanted.empty()) {
        for (auto [at, end] = wanted.equal_range(correlation); at != end; ++at)
          first_[at->second].Take(first_[at->second].call, begin);
      }
    });
    return true;
  }

  std::int64_t FirstStart(std::int64_t host_ns, std::int64_t otherwise, std::int64_t until_ns) const override {
    const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), host_ns);
    for (auto bucket = static_cast<std::size_t>(at - bounds_.begin()); bucket < bounds_.size(); ++bucket)
      if (first_[bucket].start != kForever && first_[bucket].taken < until_ns) return first_[bucket].start;
    return otherwise;
  }
  // Of the first and the last bound.
  std::int64_t LastEnd(std::int64_t host_ns) const override {
    return host_ns <= bounds_.front() ? end_first_ : end_last_;
  }

 private:
  struct First {
    std::int64_t call = kForever;   // The first call that launched something.
    std::int64_t taken = kForever;  // When the kernel that starts at `start` was launched.
    std::int64_t start = kForever;
    void Take(std::int64_t launched, std::int64_t begin) {
      if (launched < taken || (launched == taken && begin < start)) {
        taken = launched;
        start = begin;
      }
    }
  };

  // Bound i reaches from bounds_[i] to the next one; before the first: none.
  std::size_t BucketOf(std::int64_t ns) const {
    const auto after = std::upper_bound(bounds_.begin(), bounds_.end(), ns);
    return after == bounds_.begin() ? bounds_.size() : static_cast<std::size_t>(after - bounds_.begin()) - 1;
  }

  std::vector<std::int64_t> bounds_;  // Sorted.
  std::vector<First> first_;
  std::int64_t end_first_ = schema::kNoTime, end_last_ = schema::kNoTime;
};

// The first kernel launched after a window.
struct NextKernel {
  std::int64_t launch, start;
};
constexpr NextKernel kUnknown{schema::kNoTime, schema::kNoTime};

// For the window in which a step ends; from the rank's file (meta window_next_kernel).
NextKernel FirstAfter(const schema::RankTables& head, std::int64_t host_end) {
  const schema::Windows& recorded = head.windows;
  for (std::size_t i = recorded.rows(); i-- > 0;) {
    if (recorded.begin_ns[i] >= host_end) continue;
    const std::string_view text = ingest::MetaValue(head, "window_next_kernel." + std::to_string(i));
    NextKernel next{};
    const char* end = text.data() + text.size();
    const auto launch = std::from_chars(text.data(), end, next.launch);
    if (launch.ec != std::errc() || launch.ptr == end) return kUnknown;
    if (std::from_chars(launch.ptr + 1, end, next.start).ec != std::errc()) return kUnknown;
    return next.launch >= host_end ? next : kUnknown;
  }
  return kUnknown;
}

}  // namespace

GpuActivity FindGpuActivity(KernelRows& kernels, CopyRows& copies) {
  GpuActivity activity;
  Interval extent{INT64_MAX, INT64_MIN};
  ForEachRow(kernels, [&](const auto& rows, std::size_t i) {
    Extend(rows, i, extent);
    if (rows.correlation[i] != 0) activity.kernels.Insert(rows.correlation[i]);
  });
  ForEachRow(copies, [&](const auto& rows, std::size_t i) { Extend(rows, i, extent); });
  if (extent.begin <= extent.end) activity.extent = extent;
  return activity;
}

std::vector<RankStep> GpuWindows(std::vector<RankStep> steps, StepTimes times, KernelRows& kernels, CopyRows& copies,
                                 ApiRows& all_calls, const GpuActivity& activity, const schema::RankTables& head) {
  if (steps.empty()) return steps;
  ApiRows* const api = times == StepTimes::kFoundOnGpu ? nullptr : &all_calls;
  const Interval extent = activity.extent;
  std::vector<std::int64_t> bounds;
  bool gaps = false;
  // If recording went off in between, the next kernel belongs to another window.
  const auto gap_after = [&](std::size_t i) {
    return i + 1 < steps.size() && steps[i + 1].window.begin > steps[i].window.end &&
           steps[i + 1].index > steps[i].index + 1;
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    bounds.push_back(steps[i].window.begin);
    gaps |= gap_after(i);
  }
  bounds.push_back(steps.back().window.end);
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());

  std::unique_ptr<Launched> launched;
  if (!gaps) {
    auto first = std::make_unique<FirstLaunched>(std::move(bounds));
    if (first->Find(kernels, copies, api, activity.kernels)) launched = std::move(first);
  }
  if (launched == nullptr) launched = std::make_unique<AllLaunched>(kernels, copies, api);

  // What runs when a capture window begins is not recorded: all its steps reach from kernel to kernel.
  const bool edges = times == StepTimes::kMarked && head.windows.rows() == 0;
  const std::vector<RankStep> host = steps;
  std::int64_t before = schema::kNoTime;
  std::size_t first = 0, last = steps.size();  // Of the steps since the last gap: the first, and the last with work.
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Interval& window = steps[i].window;
    const auto [host_begin, host_end] = window;
    const bool gap = gap_after(i);
    const std::int64_t next = i + 1 < steps.size() ? host[i + 1].window.begin : host_end;
    window.begin = std::max(launched->FirstStart(window.begin, extent.end), before);
    const auto [next_launch, next_start] = gap || i + 1 == steps.size() ? FirstAfter(head, host_end) : kUnknown;
    if (next_start != schema::kNoTime)
      window.end = std::max(launched->FirstStart(host_end, next_start, next_launch), window.begin);
    else
      window.end = std::max(gap ? launched->LastEnd(host_end) : launched->FirstStart(next, extent.end), window.begin);
    // Nothing was launched in it, so it has no GPU time that could be compared with other steps'.
    if (window.begin == window.end) {
      steps[i].complete = false;
    } else {
      if (edges && last == steps.size() && launched->LastEnd(host[first].window.begin) <= host_begin)
        window.begin = std::max(std::min(host_begin, window.begin), before);
      last = i;
    }
    before = window.end;
    if (!gap && i + 1 < steps.size()) continue;
    if (edges && last < steps.size()) {
      Interval& end = steps[last].window;
      end.end = std::max({end.begin, host[last].window.end, launched->LastEnd(host_end)});
      before = end.end;
    }
    first = i + 1;
    last = steps.size();
  }
  return steps;
}

}  // namespace lockstep::merge
