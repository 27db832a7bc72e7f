// What loads the input that ranks wait for (input.bound has found that they do), and so what to change.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/causes/cause.h"
#include "analysis/core/format.h"

namespace lockstep::analysis {
namespace {

struct Loading {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> by_name;  // Count, ns.
  std::int64_t steps = 0;
  bool per_step = false;
};

class InputSource : public CauseOf<Loading> {
 public:
  std::optional<Loading> EvidenceOf(const RankEvents& events) const override {
    constexpr std::uint8_t kInput = schema::Category::kInput;
    const auto& ranges = events.view().tables.ranges;
    Loading loading;
    loading.steps = static_cast<std::int64_t>(events.stretches().size());
    loading.per_step = events.per_step();
    for (std::uint32_t row = 0; row < ranges.rows(); ++row) {
      if (ranges.category[row] != kInput || events.HostStretchAt(ranges.begin_ns[row]) == kNowhere) continue;
      // The outermost says who loads.
      if (const std::uint32_t parent = events.nest().Parent(row);
          parent != schema::kNone && events.PhaseOf(parent) == kInput)
        continue;
      auto& [count, ns] = loading.by_name[std::string(events.RangeName(row))];
      ++count;
      ns += ranges.duration_ns[row];
    }
    if (loading.by_name.empty()) return std::nullopt;
    return loading;
  }

  void Report(const Context&, Analysis& analysis) override {
    const auto at = std::find_if(analysis.findings.begin(), analysis.findings.end(),
                                 [](const Finding& f) { return f.id == FindingId::kInputBound; });
    if (at == analysis.findings.end()) return;
    Loading all;
    for (const Loading* one : found()) {
      for (const auto& [name, sum] : one->by_name) {
        all.by_name[name].first += sum.first;
        all.by_name[name].second += sum.second;
      }
      all.steps += one->steps;
      all.per_step |= one->per_step;
    }
    if (all.by_name.empty()) return;
    const auto most = std::max_element(all.by_name.begin(), all.by_name.end(),
                                       [](const auto& a, const auto& b) { return a.second.second < b.second.second; });
    const auto& [name, sum] = *most;
    at->evidence += fmt::format("; most in \"{}\": ", ShortName(name));
    at->evidence +=
        all.per_step && all.steps > 0
            ? fmt::format("{:.2g} per step, {} each", static_cast<double>(sum.first) / static_cast<double>(all.steps),
                          Duration(sum.second / std::max<std::int64_t>(1, sum.first)))
            : fmt::format("{}, {} each", Count(sum.first), Duration(sum.second / sum.first));
    // torch names its iterators: torch/utils/data/dataloader.py, record_function in __next__ (1.13, 2.x).
    if (name.find("_SingleProcessDataLoaderIter") != std::string::npos)
      at->action =
          "the DataLoader has no workers: DataLoader(num_workers=4, persistent_workers=True, pin_memory=True), one "
          "worker more as long as it helps";
    else if (name.find("_MultiProcessingDataLoaderIter") != std::string::npos)
      at->action =
          "the DataLoader's workers do not keep up: more of them (num_workers), a larger prefetch_factor, or less work "
          "per sample (decode and augment ahead of time)";
    else if (name.find("DataLoader") != std::string::npos || name.find("dataloader") != std::string::npos)
      at->action =
          "let the DataLoader's workers load the next batch while this one computes (num_workers, prefetch_factor), or "
          "give them less work per sample";
  }
};

}  // namespace

std::unique_ptr<Cause> MakeInputSource() { return std::make_unique<InputSource>(); }

}  // namespace lockstep::analysis
