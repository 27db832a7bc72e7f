#include "analysis/tables/engine/view_index.h"

#include <algorithm>
#include <limits>

#include "merge/timeline/gpu_windows.h"
#include "merge/timeline/totals_row.h"
#include "trace/file/strings.h"

namespace lockstep::tables {
namespace {

constexpr Interval kAlways{std::numeric_limits<std::int64_t>::min() / 2, std::numeric_limits<std::int64_t>::max() / 2};

class ViewMaker {
 public:
  ViewMaker(const ViewIndex& index, const TableOptions& options, gpu::RankView& view)
      : index_(index), timeline_(index.timeline()), options_(options), view_(view) {}

  void Make() {
    view_.timeline = &timeline_;
    view_.members = index_.MembersOf(view_.rank);
    view_.partners = index_.PartnersOf(view_.rank);
    view_.charges = index_.charges();
    view_.hta = timeline_.Meta("classes") == "hta";
    view_.classes = merge::ClassifyKernels(view_.tables, view_.tables.collectives, view_.hta);
    if (options_.first_step >= 0 || options_.last_step >= 0)
      StepsAskedFor();
    else
      AnalysisWindow();
    HostWindows();
  }

 private:
  void AddStep(std::uint32_t row) {
    const auto& steps = timeline_.tables.step_ranks;
    const Interval window{steps.begin_ns[row], steps.end_ns[row]};
    if (!steps.complete[row] || window.end < window.begin) return;
    view_.steps.push_back({steps.index[row], window});
  }

  void StepsAskedFor() {
    const auto& steps = timeline_.tables.step_ranks;
    const std::int64_t last = options_.last_step < 0 ? std::numeric_limits<std::int64_t>::max() : options_.last_step;
    for (const std::uint32_t row : index_.StepsOf(view_.rank))
      if (steps.index[row] >= options_.first_step && steps.index[row] <= last) AddStep(row);
    std::vector<Interval> windows;
    for (const gpu::RankView::Step& step : view_.steps) windows.push_back(step.window);
    view_.windows = Normalize(std::move(windows));
  }

  // The ends are in rank_totals; gaps between capture windows are not.
  void AnalysisWindow() {
    const auto& totals = timeline_.tables.rank_totals;
    Interval whole = kAlways;
    if (const std::size_t row = merge::TotalsRow(totals, view_.rank); row < totals.rows())
      whole = {totals.begin_ns[row], totals.end_ns[row]};
    const auto& parts = timeline_.tables.windows;
    const auto& steps = timeline_.tables.step_ranks;
    if (parts.rows() > 1) {
      const merge::ClockMap clock(timeline_.tables.clock, view_.rank);
      std::vector<Interval> windows;
      for (std::size_t i = 0; i < parts.rows(); ++i) {
        Interval part{0, 0};
        for (const std::uint32_t row : index_.StepsOf(view_.rank)) {
          if (parts.first_step[i] < 0 || steps.index[row] < parts.first_step[i] ||
              steps.index[row] >= parts.end_step[i] || !steps.complete[row])
            continue;
          if (part.begin >= part.end) part = {steps.begin_ns[row], steps.end_ns[row]};
          part.end = std::max(part.end, steps.end_ns[row]);
        }
        if (part.begin >= part.end) part = {clock.ToLocal(parts.begin_ns[i]), clock.ToLocal(parts.end_ns[i])};
        windows.push_back({std::max(part.begin, whole.begin), std::min(part.end, whole.end)});
      }
      view_.windows = Normalize(std::move(windows));
    }
    const std::string_view kind = timeline_.Meta("window");
    // Of others' traces totals are from the first to the last event of the GPU; host work before and after is the
    // steps'.
    if (kind == "gpu_events")
      for (const std::uint32_t row : index_.StepsOf(view_.rank))
        if (steps.complete[row])
          whole = {std::min(whole.begin, steps.begin_ns[row]), std::max(whole.end, steps.end_ns[row])};
    if (view_.windows.empty()) view_.windows = {whole};
    view_.whole = parts.rows() <= 1 && (kind.empty() || kind == "gpu_events" || kind == "captured");
    for (const std::uint32_t row : index_.StepsOf(view_.rank)) {
      if (!steps.complete[row]) continue;
      for (const Interval& window : view_.windows)
        if (steps.begin_ns[row] >= window.begin && steps.end_ns[row] <= window.end) AddStep(row);
    }
  }

  void HostWindows() {
    if (view_.whole) {
      view_.host_windows = {kAlways};
      return;
    }
    if (timeline_.Meta("window") == "hta") {
      view_.host_windows = {{kAlways.begin, HtaUntil()}};
      return;
    }
    // As the host marked them; only steps that nobody marked (found by their
    // collectives) have no such rows.
    std::vector<Interval> windows;
    const auto& marked = view_.tables.steps;
    for (std::size_t i = 0; i < marked.rows(); ++i) {
      const auto at =
          std::lower_bound(view_.steps.begin(), view_.steps.end(), marked.index[i],
                           [](const gpu::RankView::Step& step, std::int64_t index) { return step.index < index; });
      const bool counts = at != view_.steps.end() && at->index == marked.index[i];
      if (counts && marked.end_ns[i] != schema::kNoTime) windows.push_back({marked.begin_ns[i], marked.end_ns[i]});
    }
    view_.host_windows = windows.empty() ? view_.windows : Normalize(std::move(windows));
  }

  // HTA drops what was launched after the last ProfilerStep began, if there are at least two.
  std::int64_t HtaUntil() const {
    const auto& indices = timeline_.tables.step_ranks.index;
    const bool several = std::any_of(indices.begin(), indices.end(), [&](std::int64_t i) { return i != indices[0]; });
    constexpr std::uint8_t kProfilerStep = schema::StepSource::kProfilerStep;
    std::int64_t until = schema::kNoTime;
    const auto& marked = view_.tables.steps;
    for (std::size_t i = 0; i < marked.rows(); ++i)
      if (marked.source[i] == kProfilerStep) until = std::max(until, marked.begin_ns[i]);
    if (!several || until == schema::kNoTime) return kAlways.end;
    return std::max(until, trace::MetaNumber(view_.tables, "last_profiler_step_ns", until));
  }

  const ViewIndex& index_;
  const merge::Timeline& timeline_;
  const TableOptions& options_;
  gpu::RankView& view_;
};

}  // namespace

ViewIndex::ViewIndex(const merge::Timeline& timeline) : timeline_(timeline) {
  members_ = ByRank(timeline.tables.collective_ranks.rank);
  steps_ = ByRank(timeline.tables.step_ranks.rank);
  const auto& index = timeline.tables.step_ranks.index;
  for (std::size_t r = 0; r + 1 < steps_.first.size(); ++r)
    std::stable_sort(steps_.rows.begin() + static_cast<std::ptrdiff_t>(steps_.first[r]),
                     steps_.rows.begin() + static_cast<std::ptrdiff_t>(steps_.first[r + 1]),
                     [&](std::uint32_t a, std::uint32_t b) { return index[a] < index[b]; });
}

ViewIndex::Rows ViewIndex::ByRank(const std::vector<std::int32_t>& rank) const {
  Rows by;
  by.first.assign(timeline_.tables.ranks.rows() + 1, 0);
  const auto row_of = [&](std::size_t i) { return timeline_.RankRow(rank[i]); };
  for (std::size_t i = 0; i < rank.size(); ++i)
    if (const std::int64_t row = row_of(i); row >= 0) ++by.first[static_cast<std::size_t>(row) + 1];
  for (std::size_t r = 1; r < by.first.size(); ++r) by.first[r] += by.first[r - 1];
  by.rows.resize(by.first.back());
  std::vector<std::size_t> next(by.first.begin(), by.first.end() - 1);
  for (std::size_t i = 0; i < rank.size(); ++i)
    if (const std::int64_t row = row_of(i); row >= 0)
      by.rows[next[static_cast<std::size_t>(row)]++] = static_cast<std::uint32_t>(i);
  return by;
}

std::span<const std::uint32_t> ViewIndex::Rows::Of(std::int64_t rank_row) const {
  if (rank_row < 0) return {};
  const auto row = static_cast<std::size_t>(rank_row);
  return {rows.data() + first[row], first[row + 1] - first[row]};
}
std::span<const std::uint32_t> ViewIndex::MembersOf(std::int32_t rank) const {
  return members_.Of(timeline_.RankRow(rank));
}
std::span<const std::uint32_t> ViewIndex::StepsOf(std::int32_t rank) const {
  return steps_.Of(timeline_.RankRow(rank));
}

const merge::RankP2pPartners* ViewIndex::PartnersOf(std::int32_t rank) const {
  const auto found = partners_.find(rank);
  return found == partners_.end() ? nullptr : &found->second;
}

gpu::RankView MakeRankView(const ViewIndex& index, std::int32_t rank, schema::RankTables tables,
                           const TableOptions& options) {
  gpu::RankView view;
  view.rank = rank;
  view.tables = std::move(tables);
  ViewMaker(index, options, view).Make();
  return view;
}

}  // namespace lockstep::tables
