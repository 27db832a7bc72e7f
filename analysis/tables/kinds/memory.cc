// Memory of each device: its peak, when it was, and whether it grows from step to step.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "analysis/core/device.h"
#include "analysis/rules/causes.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {
namespace memory {

using enum schema::MemoryKind::Value;

const struct Columns : TableColumns {
  using TableColumns::TableColumns;
  Column memory =
      Add("memory", kText, "gpu, or host: the process's resident memory, or the framework's on the host", kKey);
  Column device = AddDetail("device", kId, "device ordinal");
  Column peak_allocated = Add("peak_allocated_bytes", kBytes, "most that was allocated in the window", kMax);
  Column peak_step = Add("peak_step", kId, "step in which that was");
  Column peak_reserved = Add("peak_reserved_bytes", kBytes, "most that the allocator held", kMax);
  Column unused = Add("unused_at_peak_bytes", kBytes,
                      "held but not allocated when allocated memory was at its peak: fragmentation and cache", kMax);
  Column capacity = AddDetail("capacity_bytes", kBytes, "the device's memory", kMin);
  Column capacity_share =
      Add("capacity_share", kFraction, "most that was held (else allocated) of it; unknown if it is more", kMax);
  Column growth = Add("growth_bytes_per_step", kBytes,
                      "median slope of what is allocated at the begin of a step (Theil-Sen), warm-up steps out");
  Column growth_low = AddDetail("growth_low_bytes_per_step", kBytes, "95 % interval of it (Sen)");
  Column growth_high = AddDetail("growth_high_bytes_per_step", kBytes, "95 % interval of it");
  Column grows = Add("grows", kText, "yes: the whole interval is above 0; unknown with fewer than 5 steps");
  Column largest = AddDetail("largest_allocation_bytes", kBytes, "largest single block", kMax);
  Column allocations = AddDetail("allocations", kCount, "allocations in the window", kSum);
  Column frees = AddDetail("frees", kCount, "frees in the window", kSum);
  Column samples = AddDetail("samples", kCount, "readings of the allocator's or the process's counters", kSum);
  Column worst_rank = Add("worst_rank", kId, "of the ranks together: the one with the highest peak");
} col("rank; all: the ranks together, the largest of each");

struct Event {
  std::int64_t time_ns;
  std::uint8_t kind;
  std::int64_t bytes, allocated, reserved;  // allocated, reserved: -1 unknown.
};

struct Slope {
  bool known = false;
  double middle = 0, low = 0, high = 0;
};

// Median of the slopes of all pairs, and the interval that Kendall's statistic gives
// (P. K. Sen, J. Am. Stat. Assoc. 63, 1968). Needs no normal errors: memory moves in blocks.
Slope TheilSen(const std::vector<std::pair<std::int64_t, std::int64_t>>& all) {
  std::vector<std::pair<std::int64_t, std::int64_t>> points;
  const std::size_t stride = all.size() / rules::kMemorySlopePoints + 1;
  for (std::size_t i = 0; i < all.size(); i += stride) points.push_back(all[i]);
  const std::size_t n = points.size();
  std::vector<double> slopes;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i + 1; j < n; ++j)
      if (points[j].first != points[i].first)
        slopes.push_back(static_cast<double>(points[j].second - points[i].second) /
                         static_cast<double>(points[j].first - points[i].first));
  Slope slope;
  std::sort(slopes.begin(), slopes.end());
  const auto pairs = static_cast<double>(slopes.size()), steps = static_cast<double>(n);
  const double half = rules::kSenIntervalQuantile * std::sqrt(steps * (steps - 1) * (2 * steps + 5) / 18);
  const double below = std::floor((pairs - half) / 2), above = std::ceil((pairs + half) / 2);
  // Five steps and fewer have too few pairs for an interval.
  if (below < 1 || above >= pairs) return slope;
  slope.known = true;
  slope.middle = slopes.size() % 2 == 1 ? slopes[slopes.size() / 2]
                                        : (slopes[slopes.size() / 2 - 1] + slopes[slopes.size() / 2]) / 2;
  slope.low = slopes[static_cast<std::size_t>(below) - 1];
  slope.high = slopes[static_cast<std::size_t>(above)];
  return slope;
}

class Device {
 public:
  Device(const gpu::RankView& rank, std::vector<Event> events) : rank_(rank), events_(std::move(events)) {
    std::stable_sort(events_.begin(), events_.end(),
                     [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
    // Traces of older versions have no totals: only the balance since the first event is known.
    relative_ = std::none_of(events_.begin(), events_.end(), [](const Event& e) { return e.allocated >= 0; });
    if (!relative_) return;
    std::int64_t balance = 0, least = 0;
    for (Event& event : events_) {
      if (event.kind == kAllocate) balance += event.bytes;
      if (event.kind == kFree) balance -= event.bytes;
      least = std::min(least, balance);
      event.allocated = balance;
    }
    for (Event& event : events_) event.allocated -= least;
  }

  bool relative() const { return relative_; }

  // False: nothing in the window.
  bool Fill(TableRow& row) const {
    std::int64_t peak = -1, peak_at = 0, reserved = -1, unused = -1, largest = -1;
    std::int64_t allocations = 0, frees = 0, samples = 0;
    const Event* before = nullptr;  // What held when the window opened.
    bool any = false;
    const auto look = [&](const Event& event, std::int64_t at) {
      if (event.allocated > peak) {
        peak = event.allocated;
        peak_at = at;
        unused = event.reserved >= 0 ? std::max<std::int64_t>(0, event.reserved - event.allocated) : -1;
      }
      reserved = std::max(reserved, event.reserved);
    };
    for (const Event& event : events_) {
      if (!rank_.InHostWindow(event.time_ns)) {
        if (!any && event.kind != kPeak) before = &event;
        continue;
      }
      if (!any && before != nullptr) look(*before, event.time_ns);
      any = true;
      look(event, event.time_ns);
      allocations += event.kind == kAllocate, frees += event.kind == kFree;
      samples += event.kind == kSample || event.kind == kPeak;
      if (event.kind == kAllocate) largest = std::max(largest, event.bytes);
    }
    if (!any) return false;
    row[col.peak_allocated] = IntOrUnknown(peak, peak >= 0);
    row[col.peak_reserved] = IntOrUnknown(reserved, reserved >= 0);
    row[col.unused] = IntOrUnknown(unused, unused >= 0);
    row[col.largest] = IntOrUnknown(largest, largest >= 0);
    row[col.allocations] = Int(allocations), row[col.frees] = Int(frees), row[col.samples] = Int(samples);
    const auto& steps = rank_.tables.steps;
    for (std::size_t i = 0; i < steps.rows(); ++i)
      if (peak >= 0 && peak_at >= steps.begin_ns[i] && peak_at < steps.end_ns[i])
        row[col.peak_step] = Int(steps.index[i]);
    Growth(row);
    return true;
  }

 private:
  void Growth(TableRow& row) const {
    const auto& steps = rank_.tables.steps;
    const bool sampled = std::none_of(events_.begin(), events_.end(),
                                      [](const Event& e) { return e.kind == kAllocate || e.kind == kFree; });
    std::vector<std::pair<std::int64_t, std::int64_t>> levels;
    for (std::size_t i = 0; i < steps.rows(); ++i) {
      if (!steps.complete[i] || steps.warmup[i] || !rank_.InHostWindow(steps.begin_ns[i])) continue;
      const std::int64_t level = LevelAt(steps.begin_ns[i], steps.end_ns[i], sampled);
      if (level >= 0) levels.emplace_back(steps.index[i], level);
    }
    std::sort(levels.begin(), levels.end());
    const Slope slope = TheilSen(levels);
    if (!slope.known) return;
    row[col.growth] = slope.middle;
    row[col.growth_low] = slope.low, row[col.growth_high] = slope.high;
    row[col.grows] = Text(slope.low > 0 ? "yes" : "no");
  }

  // At a step's begin. Samples are taken right after the boundary that opens the step.
  std::int64_t LevelAt(std::int64_t begin_ns, std::int64_t end_ns, bool sampled) const {
    const auto after = std::upper_bound(events_.begin(), events_.end(), begin_ns,
                                        [](std::int64_t t, const Event& event) { return t < event.time_ns; });
    if (sampled) {
      for (auto at = after; at != events_.end() && at->time_ns < end_ns; ++at)
        if (at->kind == kSample) return at->allocated;
      return -1;
    }
    for (auto at = after; at != events_.begin();)
      if ((--at)->kind != kPeak && at->allocated >= 0) return at->allocated;
    return after != events_.end() && after->kind == kAllocate && after->allocated >= 0
               ? std::max<std::int64_t>(0, after->allocated - after->bytes)
               : -1;
  }

  const gpu::RankView& rank_;
  std::vector<Event> events_;
  bool relative_ = false;
};

bool Higher(const TableRow& a, const TableRow& b) {
  const bool gpu_a = TextOfCell(a[col.memory]) == "gpu", gpu_b = TextOfCell(b[col.memory]) == "gpu";
  if (gpu_a != gpu_b) return gpu_a;
  if (IntOf(a[col.peak_allocated]) != IntOf(b[col.peak_allocated]))
    return IntOf(a[col.peak_allocated]) > IntOf(b[col.peak_allocated]);
  return IntOf(a[col.device], -1) < IntOf(b[col.device], -1);
}

// 0 is unknown in the file.
std::int64_t KnownBytes(std::uint64_t bytes) {
  return bytes == 0
             ? -1
             : static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, std::numeric_limits<std::int64_t>::max()));
}

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const auto& memory = rank.tables.gpu_memory;
  std::map<std::uint16_t, std::vector<Event>> by_device;
  for (std::size_t i = 0; i < memory.rows(); ++i) {
    const std::uint8_t kind = memory.kind[i];
    std::int64_t allocated = KnownBytes(memory.allocated_bytes[i]);
    // If a free leaves nothing, 0 is the value and does not mean "unknown".
    if (allocated < 0 && kind == kFree && memory.reserved_bytes[i] > 0) allocated = 0;
    by_device[memory.device[i]].push_back(
        {memory.time_ns[i], kind, memory.bytes[i], allocated, KnownBytes(memory.reserved_bytes[i])});
  }
  if (by_device.empty())
    return table.Note(
        "no memory events: torch.profiler records them with profile_memory=True, lockstep run with its torch hooks");
  std::map<std::uint16_t, std::uint64_t> capacity;
  for (std::size_t i = 0; i < rank.tables.devices.rows(); ++i)
    capacity[rank.tables.devices.device[i]] = rank.tables.devices.memory_bytes[i];
  for (auto& [number, events] : by_device) {
    const Device device(rank, std::move(events));
    TableRow& row = table.AddRow(rank.rank);
    row[col.memory] = Text(number == analysis::kHostMemory ? "host" : "gpu");
    if (number != analysis::kHostMemory) row[col.device] = Int(number);
    if (!device.Fill(row)) {
      table.rows.pop_back();
      continue;
    }
    if (device.relative())
      table.Note("the trace has no totals: allocated memory counts from the least that was allocated");
    if (const auto known = capacity.find(number); known != capacity.end() && known->second > 0) {
      row[col.capacity] = Int(KnownBytes(known->second));
      const std::int64_t held = std::max(IntOf(row[col.peak_reserved]), IntOf(row[col.peak_allocated]));
      // Managed memory and a wrong size of the device make it no part of that.
      if (const std::int64_t whole = KnownBytes(known->second); held <= whole)
        row[col.capacity_share] = Share(held, whole);
      else
        table.Note("more memory is held than the device has: no share of it");
    }
  }
}

void PoolRow(const TableRow& of_rank, bool first, TableRow& pooled) {
  if (first || IntOf(of_rank[col.peak_allocated]) > IntOf(pooled[col.peak_allocated])) {
    pooled[col.worst_rank] = of_rank[col.rank];
    pooled[col.peak_step] = of_rank[col.peak_step];
    pooled[col.device] = of_rank[col.device];
  }
  if (!Known(of_rank[col.growth])) return;
  if (Known(pooled[col.growth]) && RealOf(pooled[col.growth]) >= RealOf(of_rank[col.growth])) return;
  for (const Column column : {col.growth, col.growth_low, col.growth_high, col.grows}) pooled[column] = of_rank[column];
}

}  // namespace memory
}  // namespace

const TableKind kMemoryTable = {
    .name = "memory",
    .title = "Memory",
    .answers = "peak and growth of memory, what the allocator holds unused, largest allocations",
    .columns = &memory::col,
    .rank_rows = memory::RankRows,
    .before = memory::Higher,
    .pool_row = memory::PoolRow};

}  // namespace lockstep::tables
