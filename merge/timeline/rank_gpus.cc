// The ranks' GPUs: their properties, the readings of their sensors, and the time that profiling took.

#include "merge/timeline/rank_gpus.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/interval.h"
#include "core/order_statistics.h"
#include "merge/timeline/assemble.h"

namespace lockstep::merge {
namespace {

using schema::kNone;
constexpr std::uint64_t kIdle = 1;  // NVML's bit.

std::uint32_t MedianKnown(std::vector<std::uint32_t> values) {
  std::erase(values, kNone);
  return values.empty() ? kNone : LowerMedian(values);
}

// Rows of the samples that count, per device.
std::map<std::uint16_t, std::vector<std::size_t>> SamplesThatCount(const schema::RankTables& head) {
  const schema::GpuSamples& s = head.gpu_samples;
  Interval steps{0, 0};
  for (std::size_t i = 0; i < head.steps.rows(); ++i) {
    if (!head.steps.complete[i]) continue;
    if (steps.begin == steps.end) steps = {head.steps.begin_ns[i], head.steps.end_ns[i]};
    steps = {std::min(steps.begin, head.steps.begin_ns[i]), std::max(steps.end, head.steps.end_ns[i])};
  }
  std::map<std::uint16_t, std::vector<std::size_t>> all, busy;
  for (std::size_t i = 0; i < s.rows(); ++i) {
    all[s.device[i]].push_back(i);
    const bool within = steps.begin == steps.end || (s.time_ns[i] >= steps.begin && s.time_ns[i] <= steps.end);
    if (within && (s.throttle_reasons[i] & kIdle) == 0 && s.utilization_percent[i] != 0) busy[s.device[i]].push_back(i);
  }
  for (auto& [device, rows] : all)
    if (const auto at = busy.find(device); at != busy.end()) rows = std::move(at->second);
  return all;
}

// Without the driver's own work: compiling, loading and a full command buffer take their time without profiling, too.
std::int64_t ProfilingTime(const schema::Overheads& overheads) {
  std::vector<Interval> taken;
  for (std::size_t i = 0; i < overheads.rows(); ++i) {
    using schema::OverheadKind;
    const std::uint8_t kind = overheads.kind[i];
    if (kind == OverheadKind::kBufferFlush || kind == OverheadKind::kInstrumentation ||
        kind == OverheadKind::kResources || kind == OverheadKind::kActivityBuffer)
      taken.push_back({overheads.begin_ns[i], overheads.begin_ns[i] + overheads.duration_ns[i]});
  }
  return Total(Normalize(std::move(taken)));
}

}  // namespace

void TimelineWriter::Gpus(const RunFiles& run) {
  for (const std::string_view key : {"cuda_driver_version", "cupti_version"})
    for (const RunRank& rank : run.ranks)
      if (const std::string_view value = ingest::MetaValue(rank.head, key); !value.empty()) {
        Meta(key, value);
        break;
      }
  for (const RunRank& rank : run.ranks) {
    const schema::RankTables& head = rank.head;
    const auto samples = SamplesThatCount(head);
    std::map<std::uint16_t, std::size_t> devices;
    for (std::size_t i = 0; i < head.devices.rows(); ++i) devices.emplace(head.devices.device[i], i);
    // A trace of PyTorch describes all GPUs of its node. The table contains those whose sensors were read or, if none
    // were, those that the rank could see.
    for (const auto& [device, rows] : samples) devices.emplace(device, head.devices.rows());
    for (const auto& [device, at] : devices) {
      schema::TlRankGpus::Row row{.rank = rank.rank,
                                  .device = device,
                                  .name = kNone,
                                  .sm_clock_mhz = kNone,
                                  .sm_clock_low_mhz = kNone,
                                  .memory_clock_mhz = kNone,
                                  .power_mw = kNone,
                                  .temperature_c = kNone};
      if (at < head.devices.rows()) {
        const std::string_view name = trace::TextOf(head, head.devices.name[at]);
        row.name = name.empty() ? kNone : Intern(name);
        row.memory_bytes = head.devices.memory_bytes[at];
      }
      if (const auto found = samples.find(device); found != samples.end()) {
        const schema::GpuSamples& s = head.gpu_samples;
        const auto values = [&](const std::vector<std::uint32_t>& column) {
          std::vector<std::uint32_t> chosen;
          for (const std::size_t i : found->second)
            if (column[i] != kNone) chosen.push_back(column[i]);
          return chosen;
        };
        row.samples = found->second.size();
        const std::vector<std::uint32_t> clocks = values(s.sm_clock_mhz), heat = values(s.temperature_c);
        row.sm_clock_mhz = MedianKnown(clocks);
        if (!clocks.empty()) row.sm_clock_low_mhz = *std::min_element(clocks.begin(), clocks.end());
        row.memory_clock_mhz = MedianKnown(values(s.memory_clock_mhz));
        row.power_mw = MedianKnown(values(s.power_mw));
        if (!heat.empty()) row.temperature_c = *std::max_element(heat.begin(), heat.end());
        for (const std::size_t i : found->second) {
          row.throttled += (s.throttle_reasons[i] & kThrottleReasons) != 0;
          row.throttle_reasons |= s.throttle_reasons[i] & kThrottleReasons;
        }
      }
      tables_.rank_gpus.Append(row);
    }
    const std::int64_t taken = ProfilingTime(head.overheads);
    for (std::size_t i = 0; taken > 0 && i < tables_.ranks.rows(); ++i)
      if (tables_.ranks.rank[i] == rank.rank) tables_.ranks.profiling_ns[i] = taken;
  }
}

}  // namespace lockstep::merge
