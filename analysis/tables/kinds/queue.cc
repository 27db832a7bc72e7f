// How many operations wait in each stream: launched, not yet started.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/core/format.h"
#include "analysis/gpu/device_gaps.h"
#include "analysis/rules/causes.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/describe.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {
namespace queue {

using schema::kNone;

const struct Columns : TableColumns {
  Column device = Add("device", kId, "device, on ranks that use several", kKey);
  Column context = Add("context", kId, "context, where several have a stream of that number", kKey);
  Column stream = Add("stream", kId, "stream", kKey);
  Column ops = Add("operations", kCount, "launched in the window", kSum);
  Column mean = Add("mean_length", kNumber, "mean over time");
  Column p50 = AddDetail("p50_length", kCount, "not more for half of the time; not over ranks");
  Column p95 = Add("p95_length", kCount, "not more for 95 % of the time; not over ranks");
  Column max = Add("max_length", kCount, "most", kMax);
  Column empty_share = Add("empty_share", kFraction, "of the time nothing waited");
  Column below2_share = Add("below_2_share", kFraction, "of the time at most one waited: the host is hardly ahead");
  Column full_share =
      Add("blocked_share", kFraction, "of the time 1024 or more waited: further launches block the host");
  Column empty = AddDetail("empty_ns", kNs, "time with nothing waiting", kSum);
  Column below2 = AddDetail("below_2_ns", kNs, "time with at most one", kSum);
  Column blocked = AddDetail("blocked_ns", kNs, "time with 1024 or more", kSum);
  Column queued = AddDetail("queued_ns", kNs, "length times time", kSum);
  Column window = AddDetail("window_ns", kNs, "the window", kSum);
  Column points =
      AddDetail("point_count", kCount,
                "changes of the length; what follows is HTA's summary over them, which does not weigh with time");
  Column point_mean = AddDetail("point_mean", kNumber, "mean");
  Column point_std = AddDetail("point_std", kNumber, "standard deviation (n - 1)");
  Column point_min = AddDetail("point_min", kNumber, "least");
  Column point_p25 = AddDetail("point_p25", kNumber, "lower quartile, interpolated");
  Column point_p50 = AddDetail("point_p50", kNumber, "median, interpolated");
  Column point_p75 = AddDetail("point_p75", kNumber, "upper quartile, interpolated");
  Column point_max = AddDetail("point_max", kNumber, "most");
} col;

// Launches and starts of one stream, each in order of time.
struct Line {
  std::vector<std::int64_t> launches, starts;
};

// Calls f(time, length) at every change. Of one instant launches come before starts.
template <typename F>
void Walk(Line& line, F&& f) {
  for (std::vector<std::int64_t>* times : {&line.launches, &line.starts})
    if (!std::is_sorted(times->begin(), times->end())) std::sort(times->begin(), times->end());
  std::int64_t length = 0;
  std::size_t s = 0;
  for (std::size_t l = 0; l < line.launches.size() || s < line.starts.size();) {
    const bool launch = l < line.launches.size() && (s == line.starts.size() || line.launches[l] <= line.starts[s]);
    length += launch ? 1 : -1;
    const std::int64_t at = launch ? line.launches[l++] : line.starts[s++];
    f(at, length);
  }
}

// Time by length within the windows.
class LengthTimes {
 public:
  explicit LengthTimes(const std::vector<Interval>& windows) : windows_(windows) {}
  // Steps of the curve, in order: `length` holds until the next call's time.
  void Change(std::int64_t time_ns, std::int64_t length) {
    Hold(time_ns);
    length_ = std::max<std::int64_t>(length, 0);
    from_ = time_ns;
  }
  std::vector<std::int64_t> Close() {
    Hold(windows_.back().end);
    return std::move(ns_);
  }

 private:
  void Hold(std::int64_t until) {
    while (next_ < windows_.size() && from_ < until) {
      const Interval& window = windows_[next_];
      const std::int64_t begin = std::max(from_, window.begin), end = std::min(until, window.end);
      if (end > begin) {
        if (static_cast<std::size_t>(length_) >= ns_.size()) ns_.resize(static_cast<std::size_t>(length_) + 1);
        ns_[static_cast<std::size_t>(length_)] += end - begin;
      }
      if (window.end > until) break;
      from_ = std::max(from_, window.end);
      ++next_;
    }
    from_ = std::max(from_, until);
  }

  const std::vector<Interval>& windows_;
  std::size_t next_ = 0;
  std::int64_t length_ = 0, from_ = std::numeric_limits<std::int64_t>::min();
  std::vector<std::int64_t> ns_;
};

void Derive(TableRow& row, const TableTotals&) {
  const std::int64_t window = IntOf(row[col.window]);
  row[col.empty_share] = Share(IntOf(row[col.empty]), window);
  row[col.below2_share] = Share(IntOf(row[col.below2]), window);
  row[col.full_share] = Share(IntOf(row[col.blocked]), window);
  row[col.mean] = Share(IntOf(row[col.queued]), window);
}

std::int64_t LengthAt(const std::vector<std::int64_t>& ns, std::int64_t all, double fraction) {
  std::int64_t so_far = 0;
  for (std::size_t length = 0; length < ns.size(); ++length) {
    so_far += ns[length];
    if (static_cast<double>(so_far) >= fraction * static_cast<double>(all)) return static_cast<std::int64_t>(length);
  }
  return static_cast<std::int64_t>(ns.size()) - 1;
}

bool MoreOperations(const TableRow& a, const TableRow& b) {
  return InOrder(a, b, {Down(col.ops), Up(col.device), Up(col.context), Up(col.stream)});
}

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const gpu::DeviceActivity activity(rank);
  const auto& timeline = activity.timeline;
  if (timeline.ops.empty()) return table.Note(gpu::NoGpuEvents());
  const auto& api = rank.tables.api;
  std::vector<Line> all(timeline.streams.size()), inside(timeline.streams.size());
  std::int64_t unlinked = 0;
  for (const gpu::GpuOp& op : timeline.ops) {
    if (!op.busy) continue;
    if (op.api == kNone) {
      unlinked += rank.InWindow(op.begin_ns);
      continue;
    }
    const std::int64_t launch = api.begin_ns[op.api];
    // An operation that, by disagreeing clocks, started before its launch waited for no time.
    all[op.stream].launches.push_back(launch);
    all[op.stream].starts.push_back(std::max(op.begin_ns, launch));
    if (!rank.InHostWindow(launch)) continue;
    inside[op.stream].launches.push_back(launch);
    inside[op.stream].starts.push_back(op.begin_ns);
  }
  const bool devices = timeline.Devices().size() > 1;
  for (std::size_t s = 0; s < all.size(); ++s) {
    if (inside[s].launches.empty()) continue;
    LengthTimes times(activity.windows);
    if (activity.windows.empty()) continue;
    Walk(all[s], [&](std::int64_t at, std::int64_t length) { times.Change(at, length); });
    const std::vector<std::int64_t> ns = times.Close();
    std::vector<std::int64_t> points;
    points.reserve(2 * inside[s].launches.size());
    Walk(inside[s], [&](std::int64_t, std::int64_t length) { points.push_back(length); });

    TableRow& row = table.AddRow(rank.rank);
    const gpu::GpuStream& stream = timeline.streams[s];
    row[col.device] = IntOrUnknown(stream.device, devices);
    row[col.context] = IntOrUnknown(
        stream.context, std::any_of(timeline.streams.begin(), timeline.streams.end(), [&](const gpu::GpuStream& other) {
          return other.device == stream.device && other.stream == stream.stream && other.context != stream.context;
        }));
    row[col.stream] = Int(stream.stream);
    row[col.ops] = Int(static_cast<std::int64_t>(inside[s].launches.size()));
    std::int64_t window = 0, queued = 0, blocked = 0, longest = 0;
    for (std::size_t length = 0; length < ns.size(); ++length) {
      window += ns[length];
      queued += ns[length] * static_cast<std::int64_t>(length);
      if (static_cast<std::int64_t>(length) >= rules::kStreamQueueLaunches) blocked += ns[length];
      if (ns[length] > 0) longest = static_cast<std::int64_t>(length);
    }
    const std::int64_t empty = ns.empty() ? 0 : ns[0];
    row[col.empty] = Int(empty);
    row[col.below2] = Int(empty + (ns.size() > 1 ? ns[1] : 0));
    row[col.blocked] = Int(blocked);
    row[col.queued] = Int(queued);
    row[col.window] = Int(window);
    if (window > 0) {
      row[col.p50] = Int(LengthAt(ns, window, 0.5));
      row[col.p95] = Int(LengthAt(ns, window, 0.95));
      row[col.max] = Int(longest);
    }
    const Description d = Describe(points);
    row[col.points] = Int(d.count);
    row[col.point_mean] = d.mean;
    if (d.count > 1) row[col.point_std] = d.std;
    row[col.point_min] = Int(d.min);
    row[col.point_p25] = d.p25;
    row[col.point_p50] = d.p50;
    row[col.point_p75] = d.p75;
    row[col.point_max] = Int(d.max);
  }
  if (unlinked > 0)
    table.Note(
        fmt::format("{} without launching call in the trace left out", analysis::Plural(unlinked, "GPU operation")));
}

}  // namespace queue
}  // namespace

const TableKind kQueueTable = {.name = "queue",
                               .title = "Operations launched and not yet started, per stream",
                               .answers = "how far launches run ahead of the GPU, per stream",
                               .columns = &queue::col,
                               .rank_rows = queue::RankRows,
                               .before = queue::MoreOperations,
                               .derive = queue::Derive};

}  // namespace lockstep::tables
