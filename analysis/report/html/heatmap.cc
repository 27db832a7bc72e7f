#include "analysis/report/html/heatmap.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/core/statistics.h"

namespace lockstep::report {
namespace {

// For cells that represent several values.
constexpr int kBitsOfBins = 9;

// Measures of rows of ranks.
enum Measure : std::size_t { kDelay, kStep, kCompute, kBlocked, kWait, kTransfer, kIdle, kMeasures };
using Cells = std::vector<std::int64_t>[kMeasures];

class Heatmap {
 public:
  Heatmap(const analysis::Context& context, const std::vector<std::int32_t>& named, const HeatmapLimits& limits)
      : context_(context) {
    const auto binned = [](std::size_t n, std::size_t most) { return std::max<std::size_t>(1, (n + most - 1) / most); };
    per_row_ = binned(context.ranks().size(), limits.rows);
    per_column_ = binned(context.steps().size(), limits.columns);
    rows_ = (context.ranks().size() + per_row_ - 1) / per_row_;
    columns_ = (context.steps().size() + per_column_ - 1) / per_column_;
    pinned_at_.assign(context.ranks().size(), analysis::kNowhere);
    const auto& blocked = context.tables().step_ranks.blocked_ns;
    blocked_ = std::any_of(blocked.begin(), blocked.end(), [](std::int64_t ns) { return ns > 0; });
    if (per_row_ == 1) return;
    for (std::size_t i = 0; i < std::min(named.size(), limits.pinned); ++i) {
      pinned_.push_back(named[i]);
      pinned_at_[context.Position(named[i])] = i;
    }
  }

  PageJson Make() {
    for (auto& measure : cells_) measure.assign(rows_ * columns_, kUnknownCell);
    for (auto& measure : pinned_cells_) measure.assign(pinned_.size() * columns_, kUnknownCell);
    for (std::size_t s = 0; s < context_.steps().size(); ++s) AddStep(s);
    AddDelays();
    PageJson json;
    json["ranks_per_row"] = per_row_;
    json["steps_per_column"] = per_column_;
    json["rank_count"] = context_.ranks().size();
    json["step_count"] = context_.steps().size();
    std::vector<std::int64_t> ranks, steps, flags(columns_, 0);
    for (std::size_t row = 0; row < rows_; ++row) ranks.push_back(context_.ranks()[row * per_row_]);
    const auto& table = context_.tables().steps;
    for (std::size_t s = 0; s < context_.steps().size(); ++s) {
      const std::size_t row = context_.steps()[s];
      if (s % per_column_ == 0) steps.push_back(table.index[row]);
      flags[s / per_column_] |=
          (table.warmup[row] ? 1 : 0) | (table.complete[row] ? 0 : 2) | (context_.InWindow(table.index[row]) ? 0 : 4);
    }
    json["ranks"] = Packed(ranks);
    json["steps"] = Packed(steps);
    json["flags"] = Packed(flags);
    json["measures"] = Measures(cells_);
    if (!pinned_.empty()) json["pinned"] = {{"ranks", pinned_}, {"measures", Measures(pinned_cells_)}};
    return json;
  }

 private:
  // Takes the cells; null where no cell is known.
  PageJson Measures(Cells& cells) const {
    static constexpr const char* kNames[kMeasures] = {"delay_ns", "step_ns",     "compute_ns", "blocked_ns",
                                                      "wait_ns",  "transfer_ns", "idle_ns"};
    PageJson json;
    for (std::size_t m = 0; m < kMeasures; ++m) {
      if (std::all_of(cells[m].begin(), cells[m].end(), [](std::int64_t v) { return v == kUnknownCell; })) {
        json[kNames[m]] = nullptr;
        continue;
      }
      if (per_row_ * per_column_ > 1) RoundTo(kBitsOfBins, cells[m]);
      json[kNames[m]] = Packed(cells[m]);
    }
    return json;
  }

  void Put(Measure measure, std::size_t position, std::size_t step, std::int64_t value) {
    const std::size_t column = step / per_column_;
    std::int64_t& cell = cells_[measure][position / per_row_ * columns_ + column];
    cell = std::max(cell, value);
    if (pinned_at_[position] == analysis::kNowhere) return;
    std::int64_t& own = pinned_cells_[measure][pinned_at_[position] * columns_ + column];
    own = std::max(own, value);
  }

  void AddStep(std::size_t s) {
    const auto& table = context_.tables().step_ranks;
    for (std::size_t p = 0; p < context_.ranks().size(); ++p) {
      const std::size_t cell = context_.Cell(context_.steps()[s], p);
      if (cell == analysis::kNowhere) continue;
      const analysis::IdentityTerms terms = context_.TermsOf(cell);
      Put(kStep, p, s, table.end_ns[cell] - table.begin_ns[cell]);
      if (!terms.device_unknown) Put(kCompute, p, s, terms.compute_ns);
      if (blocked_) Put(kBlocked, p, s, terms.blocked_ns);
      Put(kWait, p, s, terms.exposed_wait_ns);
      Put(kTransfer, p, s, terms.exposed_transfer_ns + terms.exposed_unsplit_ns);
      if (!terms.device_unknown) Put(kIdle, p, s, terms.idle_ns);
    }
  }

  // Behind the first rank to arrive, lower median over the step's collectives. Step by step: of thousands of ranks
  // the arrivals of one step are kept at a time.
  void AddDelays() {
    const auto& t = context_.tables().collectives;
    const auto& members = context_.tables().collective_ranks;
    std::unordered_map<std::int64_t, std::size_t> position_of;
    for (std::size_t s = 0; s < context_.steps().size(); ++s)
      position_of.emplace(context_.tables().steps.index[context_.steps()[s]], s);
    std::vector<std::pair<std::size_t, std::size_t>> by_step;  // Position of the step, row of collectives.
    for (std::size_t c = 0; c < t.rows(); ++c) {
      if (!context_.Comparable(c)) continue;
      if (const auto step = position_of.find(t.step[c]); step != position_of.end())
        by_step.emplace_back(step->second, c);
    }
    std::stable_sort(by_step.begin(), by_step.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::vector<std::int64_t>> delays(context_.ranks().size());
    for (std::size_t i = 0; i < by_step.size(); ++i) {
      const std::size_t c = by_step[i].second;
      for (std::size_t m = context_.timeline().FirstMember(c); m < context_.timeline().FirstMember(c + 1); ++m)
        if (const std::size_t p = context_.Position(members.rank[m]); p != analysis::kNowhere)
          delays[p].push_back(members.arrival_ns[m] - t.first_arrival_ns[c]);
      if (i + 1 < by_step.size() && by_step[i + 1].first == by_step[i].first) continue;
      for (std::size_t p = 0; p < delays.size(); ++p) {
        if (!delays[p].empty()) Put(kDelay, p, by_step[i].first, LowerMedian(delays[p]));
        delays[p].clear();
      }
    }
  }

  const analysis::Context& context_;
  std::size_t per_row_, per_column_, rows_, columns_;
  bool blocked_ = false;  // Some rank is, in some step: else there is nothing to show.
  std::vector<std::int32_t> pinned_;
  std::vector<std::size_t> pinned_at_;  // Of a rank's position: its row there.
  Cells cells_, pinned_cells_;
};

}  // namespace

PageJson HeatmapOf(const analysis::Context& context, const std::vector<std::int32_t>& named,
                   const HeatmapLimits& limits) {
  if (context.steps().empty() || context.ranks().empty()) return nullptr;
  return Heatmap(context, named, limits).Make();
}

PageJson StepLengthsOf(const analysis::Context& context) {
  if (context.usable_steps().empty()) return nullptr;
  std::vector<std::int64_t> index, lengths;
  for (const std::size_t row : context.usable_steps()) {
    index.push_back(context.tables().steps.index[row]);
    lengths.push_back(context.tables().steps.step_ns[row]);
  }
  return {{"index", Packed(index)}, {"step_ns", Packed(lengths)}};
}

}  // namespace lockstep::report
