#include "analysis/report/html/inside.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "analysis/core/device.h"
#include "analysis/tables/engine/kinds.h"
#include "merge/timeline/timeline.h"

namespace lockstep::report {
namespace {

using schema::kNone;
constexpr std::array kTables = {&tables::kKernelsTable, &tables::kOpsTable, &tables::kRangesTable, &tables::kIdleTable};

PageJson Plain(const tables::Cell& cell) {
  return std::visit(
      [](const auto& value) -> PageJson {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>)
          return nullptr;
        else
          return value;
      },
      cell);
}

}  // namespace

Inside::Inside(const analysis::Context& context, std::vector<std::int32_t> ranks,
               const std::vector<std::int32_t>& named, const InsideLimits& limits)
    : context_(context), limits_(limits), ranks_(std::move(ranks)), filled_(ranks_.size()) {
  std::set<std::int32_t> chosen;
  for (const std::int32_t rank : named)
    if (chosen.size() + 1 < limits.table_ranks && std::find(ranks_.begin(), ranks_.end(), rank) != ranks_.end())
      chosen.insert(rank);
  for (std::size_t i = 0; i < limits.table_ranks && chosen.size() < limits.table_ranks && !ranks_.empty(); ++i)
    chosen.insert(ranks_[i * ranks_.size() / limits.table_ranks]);
  for (const std::int32_t rank : ranks_) has_tables_.push_back(chosen.contains(rank));
  const auto& totals = context.tables().rank_totals;
  for (std::size_t i = 0; i < totals.rows(); ++i) {
    const merge::ClockMap clock(context.tables().clock, totals.rank[i]);
    begin_ns_ = std::min(begin_ns_, clock.ToCluster(totals.begin_ns[i]));
    end_ns_ = std::max(end_ns_, clock.ToCluster(totals.end_ns[i]));
  }
}

std::size_t Inside::Column(std::int64_t cluster_ns, std::size_t columns) const {
  const double share = static_cast<double>(cluster_ns - begin_ns_) / static_cast<double>(end_ns_ - begin_ns_);
  return static_cast<std::size_t>(std::clamp(share, 0.0, 0.9999999) * static_cast<double>(columns));
}

void Inside::Add(std::size_t r, const gpu::RankView& view) {
  if (view.windows.empty() || begin_ns_ >= end_ns_) return;
  Rank& to = filled_[r];
  if (has_tables_[r]) {
    tables::TableOptions options;
    options.top = limits_.rows;
    for (const tables::TableKind* kind : kTables) {
      tables::Table table = tables::RankTable(*kind, view, options);
      if (table.rows.size() > limits_.rows) table.rows.resize(limits_.rows);
      to.tables.push_back(std::move(table));
    }
  }
  AddMemory(view, to);
  AddReadings(view, to);
}

void Inside::AddMemory(const gpu::RankView& view, Rank& to) const {
  const schema::GpuMemory& rows = view.tables.gpu_memory;
  const merge::ClockMap clock(context_.tables().clock, view.rank);
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    if (rows.allocated_bytes[i] == 0 && rows.reserved_bytes[i] == 0) continue;  // Unknown.
    const std::int64_t at = clock.ToCluster(rows.time_ns[i]);
    if (at < begin_ns_ || at > end_ns_) continue;
    Level& level = rows.device[i] == analysis::kHostMemory ? to.host : to.gpu;
    if (!level.any()) {
      level.allocated.assign(limits_.memory_columns, kUnknownCell);
      level.reserved.assign(limits_.memory_columns, kUnknownCell);
    }
    const std::size_t column = Column(at, limits_.memory_columns);
    const auto most = [&](std::int64_t& cell, std::uint64_t bytes) {
      if (bytes > 0) cell = std::max(cell, static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, INT64_MAX)));
    };
    most(level.allocated[column], rows.allocated_bytes[i]);
    most(level.reserved[column], rows.reserved_bytes[i]);
  }
  for (Level* level : {&to.gpu, &to.host})
    for (auto* values : {&level->allocated, &level->reserved})
      for (std::size_t i = 1; i < values->size(); ++i)
        if ((*values)[i] == kUnknownCell) (*values)[i] = (*values)[i - 1];
}

void Inside::AddReadings(const gpu::RankView& view, Rank& to) const {
  const schema::GpuSamples& rows = view.tables.gpu_samples;
  const merge::ClockMap clock(context_.tables().clock, view.rank);
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    const std::int64_t at = clock.ToCluster(rows.time_ns[i]);
    if (at < begin_ns_ || at > end_ns_) continue;
    to.readings.push_back(
        {at, rows.sm_clock_mhz[i], rows.utilization_percent[i], rows.power_mw[i], rows.temperature_c[i]});
  }
}

PageJson Inside::Tables() const {
  PageJson all = PageJson::array();
  for (std::size_t k = 0; k < kTables.size(); ++k) {
    std::vector<bool> known(kTables[k]->columns->list().size(), false);
    PageJson ranks = PageJson::array();
    for (std::size_t r = 0; r < filled_.size(); ++r) {
      if (filled_[r].tables.empty() || filled_[r].tables[k].rows.empty()) continue;
      ranks.push_back(ranks_[r]);
      for (const tables::TableRow& row : filled_[r].tables[k].rows)
        for (std::size_t c = 0; c < row.size(); ++c)
          if (!std::holds_alternative<std::monostate>(row[c])) known[c] = true;
    }
    if (ranks.empty()) continue;
    // Of one rank's rows; what only rows of several ranks have stays unknown and is no column.
    PageJson columns = PageJson::array(), rows = PageJson::array();
    const auto& list = kTables[k]->columns->list();
    for (std::size_t c = 0; c < list.size(); ++c)
      if (c == 0 || (known[c] && !list[c].detail))
        columns.push_back(
            {{"name", list[c].name}, {"kind", tables::NameOf(list[c].kind)}, {"what", list[c].description}});
    for (const Rank& rank : filled_) {
      if (rank.tables.empty()) continue;
      for (const tables::TableRow& row : rank.tables[k].rows) {
        PageJson cells = PageJson::array();
        for (std::size_t c = 0; c < row.size(); ++c)
          if (c == 0 || (known[c] && !list[c].detail)) cells.push_back(Plain(row[c]));
        rows.push_back(std::move(cells));
      }
    }
    all.push_back({{"name", kTables[k]->name},
                   {"title", kTables[k]->title},
                   {"answers", kTables[k]->answers},
                   {"ranks", std::move(ranks)},
                   {"columns", std::move(columns)},
                   {"rows", std::move(rows)}});
  }
  return all;
}

PageJson Inside::Memory() const {
  PageJson lines = PageJson::array();
  for (std::size_t r = 0; r < filled_.size(); ++r)
    for (const auto& [where, level] : {std::pair{"gpu", &filled_[r].gpu}, std::pair{"host", &filled_[r].host}})
      if (level->any())
        lines.push_back({{"rank", ranks_[r]},
                         {"where", where},
                         {"allocated", Packed(level->allocated)},
                         {"reserved", Packed(level->reserved)}});
  if (lines.empty()) return nullptr;
  return {{"columns", limits_.memory_columns}, {"lines", std::move(lines)}};
}

PageJson Inside::Sensors() const {
  std::size_t most = 0;
  PageJson ranks = PageJson::array();
  for (std::size_t r = 0; r < filled_.size(); ++r) {
    most = std::max(most, filled_[r].readings.size());
    if (!filled_[r].readings.empty()) ranks.push_back(ranks_[r]);
  }
  if (most == 0) return nullptr;
  // No more columns than readings: an empty column says nothing.
  const std::size_t columns = std::min(limits_.sensor_columns, std::max<std::size_t>(1, most / 2));
  std::vector<std::int64_t> clock, utilization, power, temperature;
  for (const Rank& rank : filled_) {
    if (rank.readings.empty()) continue;
    const std::size_t first = clock.size();
    std::vector<std::int64_t> sums(columns, 0), counts(columns, 0);
    for (auto* values : {&clock, &utilization, &power, &temperature}) values->resize(first + columns, kUnknownCell);
    for (const Reading& reading : rank.readings) {
      const std::size_t at = Column(reading.time_ns, columns);
      std::int64_t& lowest = clock[first + at];
      if (reading.sm_clock_mhz != kNone)
        lowest = lowest == kUnknownCell ? reading.sm_clock_mhz : std::min<std::int64_t>(lowest, reading.sm_clock_mhz);
      if (reading.utilization_percent != kNone) sums[at] += reading.utilization_percent, ++counts[at];
      if (reading.power_mw != kNone) power[first + at] = std::max<std::int64_t>(power[first + at], reading.power_mw);
      if (reading.temperature_c != kNone)
        temperature[first + at] = std::max<std::int64_t>(temperature[first + at], reading.temperature_c);
    }
    for (std::size_t c = 0; c < columns; ++c)
      if (counts[c] > 0) utilization[first + c] = sums[c] / counts[c];
  }
  PageJson measures;
  for (const auto& [name, values] : {std::pair{"sm_clock_mhz", &clock}, std::pair{"utilization_percent", &utilization},
                                     std::pair{"power_mw", &power}, std::pair{"temperature_c", &temperature}})
    measures[name] = std::all_of(values->begin(), values->end(), [](std::int64_t v) { return v == kUnknownCell; })
                         ? PageJson(nullptr)
                         : Packed(*values);
  return {{"columns", columns}, {"ranks", std::move(ranks)}, {"measures", std::move(measures)}};
}

PageJson Inside::Json() const {
  return {{"begin_ns", begin_ns_ < end_ns_ ? PageJson(begin_ns_) : PageJson(nullptr)},
          {"end_ns", begin_ns_ < end_ns_ ? PageJson(end_ns_) : PageJson(nullptr)},
          {"all_ranks", context_.ranks().size()},
          {"shown_ranks", ranks_.size()},
          {"tables", Tables()},
          {"memory", Memory()},
          {"sensors", Sensors()}};
}

}  // namespace lockstep::report
