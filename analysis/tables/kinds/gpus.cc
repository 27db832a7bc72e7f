// Readings of the GPUs' own sensors within the window: clocks, power, heat, what lowered the clocks.

#include <algorithm>
#include <map>

#include "analysis/core/format.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "merge/timeline/rank_gpus.h"

namespace lockstep::tables {
namespace {

constexpr std::uint32_t kNone = schema::kNone;

enum Column : std::size_t {
  kRank,
  kDevice,
  kName,
  kSamples,
  kClock,
  kClockLow,
  kClockHigh,
  kMemoryClock,
  kPower,
  kPowerMax,
  kTemperature,
  kUtilization,
  kThrottled,
  kReasons,
};

Table Head() {
  return {"gpus",
          "Readings of the GPUs' sensors",
          {{"rank", ColumnKind::kId, "rank"},
           {"device", ColumnKind::kId, "device ordinal"},
           {"name", ColumnKind::kText, "product name"},
           {"samples", ColumnKind::kCount, "readings in the window"},
           {"sm_clock_mhz", ColumnKind::kNumber, "multiprocessor clock, lower median"},
           {"sm_clock_low_mhz", ColumnKind::kNumber, "lowest"},
           {"sm_clock_high_mhz", ColumnKind::kNumber, "highest"},
           {"memory_clock_mhz", ColumnKind::kNumber, "memory clock, lower median", Pool::kNone, true},
           {"power_mw", ColumnKind::kNumber, "power drawn, lower median"},
           {"power_high_mw", ColumnKind::kNumber, "highest", Pool::kNone, true},
           {"temperature_c", ColumnKind::kNumber, "highest temperature"},
           {"utilization_percent", ColumnKind::kNumber, "share of the sensor's period with a kernel, lower median",
            Pool::kNone, true},
           {"throttled", ColumnKind::kCount, "readings in which power, heat or a slowdown lowered the clocks"},
           {"reasons", ColumnKind::kText, "which of these"}},
          {},
          {}};
}

Cell Middle(std::vector<std::uint32_t>& values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? Cell() : Int(values[(values.size() - 1) / 2]);
}

struct Readings {
  std::vector<std::uint32_t> clock, memory_clock, power, temperature, utilization;
  std::int64_t samples = 0, throttled = 0;
  std::uint64_t reasons = 0;
};

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const schema::GpuSamples& s = rank.tables.gpu_samples;
  std::map<std::uint16_t, Readings> devices;
  const auto add = [](std::uint32_t value, std::vector<std::uint32_t>& to) {
    if (value != kNone) to.push_back(value);
  };
  for (std::size_t i = 0; i < s.rows(); ++i) {
    if (!rank.InWindow(s.time_ns[i])) continue;
    Readings& r = devices[s.device[i]];
    ++r.samples;
    add(s.sm_clock_mhz[i], r.clock);
    add(s.memory_clock_mhz[i], r.memory_clock);
    add(s.power_mw[i], r.power);
    add(s.temperature_c[i], r.temperature);
    add(s.utilization_percent[i], r.utilization);
    const std::uint64_t reasons = s.throttle_reasons[i] & merge::kThrottleReasons;
    r.throttled += reasons != 0;
    r.reasons |= reasons;
  }
  if (devices.empty()) {
    table.notes.emplace_back(s.rows() == 0 ? "the GPUs' sensors were not read"
                                           : "no reading of the sensors in the window");
    return;
  }
  for (auto& [device, r] : devices) {
    std::vector<Cell> row(kReasons + 1);
    row[kRank] = Int(rank.rank);
    row[kDevice] = IntOrUnknown(device, device != 65535);
    const auto& known = rank.tables.devices;
    for (std::size_t i = 0; i < known.rows(); ++i)
      if (known.device[i] == device && known.name[i] != kNone) row[kName] = Text(rank.Text(known.name[i]));
    row[kSamples] = Int(r.samples);
    row[kClock] = Middle(r.clock);  // Sorts.
    if (!r.clock.empty()) row[kClockLow] = Int(r.clock.front()), row[kClockHigh] = Int(r.clock.back());
    row[kMemoryClock] = Middle(r.memory_clock);
    row[kPower] = Middle(r.power);
    if (!r.power.empty()) row[kPowerMax] = Int(r.power.back());
    if (!r.temperature.empty()) row[kTemperature] = Int(*std::max_element(r.temperature.begin(), r.temperature.end()));
    row[kUtilization] = Middle(r.utilization);
    row[kThrottled] = Int(r.throttled);
    if (r.reasons != 0) row[kReasons] = analysis::ThrottleReasons(r.reasons);
    table.rows.push_back(std::move(row));
  }
}

}  // namespace

const TableKind kGpusTable = {"gpus", "clocks, power, heat and throttling of the GPUs", Head, RankRows, nullptr};

}  // namespace lockstep::tables
