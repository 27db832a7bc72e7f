// Readings of the GPUs' own sensors within the window: clocks, power, heat, reasons for lower clocks.

#include <algorithm>
#include <map>

#include "analysis/core/device.h"
#include "analysis/core/format.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "merge/timeline/rank_gpus.h"

namespace lockstep::tables {
namespace {
namespace gpus {

using schema::kNone;

const struct Columns : TableColumns {
  using TableColumns::TableColumns;
  Column device = Add("device", kId, "device ordinal");
  Column name = Add("name", kText, "product name");
  Column samples = Add("samples", kCount, "readings in the window");
  Column clock = Add("sm_clock_mhz", kNumber, "multiprocessor clock, lower median");
  Column clock_low = Add("sm_clock_low_mhz", kNumber, "lowest");
  Column clock_high = Add("sm_clock_high_mhz", kNumber, "highest");
  Column memory_clock = AddDetail("memory_clock_mhz", kNumber, "memory clock, lower median");
  Column power = Add("power_mw", kNumber, "power drawn, lower median");
  Column power_max = AddDetail("power_high_mw", kNumber, "highest");
  Column temperature = Add("temperature_c", kNumber, "highest temperature");
  Column utilization =
      AddDetail("utilization_percent", kNumber, "share of the sensor's period with a kernel, lower median");
  Column throttled = Add("throttled", kCount, "readings in which power, heat or a slowdown lowered the clocks");
  Column reasons = Add("reasons", kText, "which of these");
} col("rank");

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
  if (devices.empty())
    return table.Note(s.rows() == 0 ? "the GPUs' sensors were not read" : "no reading of the sensors in the window");
  for (auto& [device, r] : devices) {
    TableRow& row = table.AddRow(rank.rank);
    row[col.device] = IntOrUnknown(device, device != analysis::kUnknownDevice);
    const auto& known = rank.tables.devices;
    for (std::size_t i = 0; i < known.rows(); ++i)
      if (known.device[i] == device && known.name[i] != kNone) row[col.name] = Text(rank.Text(known.name[i]));
    row[col.samples] = Int(r.samples);
    row[col.clock] = Middle(r.clock);  // Sorts.
    if (!r.clock.empty()) row[col.clock_low] = Int(r.clock.front()), row[col.clock_high] = Int(r.clock.back());
    row[col.memory_clock] = Middle(r.memory_clock);
    row[col.power] = Middle(r.power);
    if (!r.power.empty()) row[col.power_max] = Int(r.power.back());
    if (!r.temperature.empty())
      row[col.temperature] = Int(*std::max_element(r.temperature.begin(), r.temperature.end()));
    row[col.utilization] = Middle(r.utilization);
    row[col.throttled] = Int(r.throttled);
    if (r.reasons != 0) row[col.reasons] = analysis::ThrottleReasons(r.reasons);
  }
}

}  // namespace gpus
}  // namespace

const TableKind kGpusTable = {.name = "gpus",
                              .title = "Readings of the GPUs' sensors",
                              .answers = "clocks, power, heat and throttling of the GPUs",
                              .columns = &gpus::col,
                              .rank_rows = gpus::RankRows};

}  // namespace lockstep::tables
