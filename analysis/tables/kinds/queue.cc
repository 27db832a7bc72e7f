// How many operations wait in each stream: launched, not yet started.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/core/format.h"
#include "analysis/gpu/device_gaps.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/describe.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {

constexpr std::uint32_t kNone = schema::kNone;
// A stream takes so many launches; the next one blocks its caller (HTA's constant, CUDA's default).
constexpr std::int64_t kFull = 1024;

enum Column : std::size_t {
  kRank,
  kDevice,
  kContext,
  kStream,
  kOps,
  kMean,
  kP50,
  kP95,
  kMax,
  kEmptyShare,
  kBelow2Share,
  kFullShare,
  kEmpty,
  kBelow2,
  kBlocked,
  kQueued,
  kWindow,
  kPoints,
  kPointMean,
  kPointStd,
  kPointMin,
  kPointP25,
  kPointP50,
  kPointP75,
  kPointMax,
};

Table Head() {
  return {"queue",
          "Operations launched and not yet started, per stream",
          {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
           {"device", ColumnKind::kId, "device, on ranks that use several", Pool::kKey},
           {"context", ColumnKind::kId, "context, where several have a stream of that number", Pool::kKey},
           {"stream", ColumnKind::kId, "stream", Pool::kKey},
           {"operations", ColumnKind::kCount, "launched in the window", Pool::kSum},
           {"mean_length", ColumnKind::kNumber, "mean over time"},
           {"p50_length", ColumnKind::kCount, "not more for half of the time; not over ranks", Pool::kNone, true},
           {"p95_length", ColumnKind::kCount, "not more for 95 % of the time; not over ranks"},
           {"max_length", ColumnKind::kCount, "most", Pool::kMax},
           {"empty_share", ColumnKind::kFraction, "of the time nothing waited"},
           {"below_2_share", ColumnKind::kFraction, "of the time at most one waited: the host is hardly ahead"},
           {"blocked_share", ColumnKind::kFraction, "of the time 1024 or more waited: further launches block the host"},
           {"empty_ns", ColumnKind::kNs, "time with nothing waiting", Pool::kSum, true},
           {"below_2_ns", ColumnKind::kNs, "time with at most one", Pool::kSum, true},
           {"blocked_ns", ColumnKind::kNs, "time with 1024 or more", Pool::kSum, true},
           {"queued_ns", ColumnKind::kNs, "length times time", Pool::kSum, true},
           {"window_ns", ColumnKind::kNs, "the window", Pool::kSum, true},
           {"point_count", ColumnKind::kCount,
            "changes of the length; what follows is HTA's summary over them, which does not weigh with time",
            Pool::kNone, true},
           {"point_mean", ColumnKind::kNumber, "mean", Pool::kNone, true},
           {"point_std", ColumnKind::kNumber, "standard deviation (n - 1)", Pool::kNone, true},
           {"point_min", ColumnKind::kNumber, "least", Pool::kNone, true},
           {"point_p25", ColumnKind::kNumber, "lower quartile, interpolated", Pool::kNone, true},
           {"point_p50", ColumnKind::kNumber, "median, interpolated", Pool::kNone, true},
           {"point_p75", ColumnKind::kNumber, "upper quartile, interpolated", Pool::kNone, true},
           {"point_max", ColumnKind::kNumber, "most", Pool::kNone, true}},
          {},
          {}};
}

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

void Shares(std::vector<Cell>& row) {
  const std::int64_t window = IntOf(row[kWindow]);
  row[kEmptyShare] = Share(IntOf(row[kEmpty]), window);
  row[kBelow2Share] = Share(IntOf(row[kBelow2]), window);
  row[kFullShare] = Share(IntOf(row[kBlocked]), window);
  row[kMean] = Share(IntOf(row[kQueued]), window);
}

std::int64_t LengthAt(const std::vector<std::int64_t>& ns, std::int64_t all, double fraction) {
  std::int64_t so_far = 0;
  for (std::size_t length = 0; length < ns.size(); ++length) {
    so_far += ns[length];
    if (static_cast<double>(so_far) >= fraction * static_cast<double>(all)) return static_cast<std::int64_t>(length);
  }
  return static_cast<std::int64_t>(ns.size()) - 1;
}

bool ByStream(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  const auto key = [](const std::vector<Cell>& row) {
    return std::tuple(-IntOf(row[kOps]), IntOf(row[kDevice], -1), IntOf(row[kContext], -1), IntOf(row[kStream]));
  };
  return key(a) < key(b);
}

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const gpu::DeviceActivity activity(rank);
  const auto& timeline = activity.timeline;
  if (timeline.ops.empty()) {
    table.notes.emplace_back(gpu::NoGpuEvents());
    return;
  }
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
    // Where the clocks disagree an operation that started before its launch waited for no time.
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

    std::vector<Cell> row(kPointMax + 1);
    const gpu::GpuStream& stream = timeline.streams[s];
    row[kRank] = Int(rank.rank);
    row[kDevice] = IntOrUnknown(stream.device, devices);
    row[kContext] = IntOrUnknown(
        stream.context, std::any_of(timeline.streams.begin(), timeline.streams.end(), [&](const gpu::GpuStream& other) {
          return other.device == stream.device && other.stream == stream.stream && other.context != stream.context;
        }));
    row[kStream] = Int(stream.stream);
    row[kOps] = Int(static_cast<std::int64_t>(inside[s].launches.size()));
    std::int64_t window = 0, queued = 0, blocked = 0, longest = 0;
    for (std::size_t length = 0; length < ns.size(); ++length) {
      window += ns[length];
      queued += ns[length] * static_cast<std::int64_t>(length);
      if (static_cast<std::int64_t>(length) >= kFull) blocked += ns[length];
      if (ns[length] > 0) longest = static_cast<std::int64_t>(length);
    }
    const std::int64_t empty = ns.empty() ? 0 : ns[0];
    row[kEmpty] = Int(empty);
    row[kBelow2] = Int(empty + (ns.size() > 1 ? ns[1] : 0));
    row[kBlocked] = Int(blocked);
    row[kQueued] = Int(queued);
    row[kWindow] = Int(window);
    if (window > 0) {
      row[kP50] = Int(LengthAt(ns, window, 0.5));
      row[kP95] = Int(LengthAt(ns, window, 0.95));
      row[kMax] = Int(longest);
    }
    Shares(row);
    const Description d = Describe(points);
    row[kPoints] = Int(d.count);
    row[kPointMean] = d.mean;
    if (d.count > 1) row[kPointStd] = d.std;
    row[kPointMin] = Int(d.min);
    row[kPointP25] = d.p25;
    row[kPointP50] = d.p50;
    row[kPointP75] = d.p75;
    row[kPointMax] = Int(d.max);
    table.rows.push_back(std::move(row));
  }
  std::stable_sort(table.rows.begin(), table.rows.end(), ByStream);
  if (unlinked > 0)
    table.notes.push_back(
        fmt::format("{} without launching call in the trace left out", analysis::Plural(unlinked, "GPU operation")));
}

void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end) Shares(*end);
  std::stable_sort(table.rows.begin(), end, ByStream);
}

}  // namespace

const TableKind kQueueTable = {"queue", "how far launches run ahead of the GPU, per stream", Head, RankRows, Finish};

}  // namespace lockstep::tables
