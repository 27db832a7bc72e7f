#include "merge/windows/windows.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "core/window.h"
#include "ingest/rank_files/rank_source.h"
#include "merge/saturated.h"

namespace lockstep::merge {
namespace {

bool Covers(const RecordedWindow& window, std::int64_t step) {
  return window.first_step <= step && step < window.end_step;
}

const RecordedWindow* WindowWith(const MatchRank& rank, std::int64_t step) {
  for (const RecordedWindow& window : *rank.windows)
    if (Covers(window, step)) return &window;
  return nullptr;
}

// The begin or end of the rank's step, if its file has it.
std::int64_t StepTime(const std::vector<RankStep>& steps, std::int64_t index, bool end, std::int64_t otherwise) {
  const RankStep* step = FindStep(steps, index);
  if (step == nullptr) return otherwise;
  return end ? step->window.end : step->window.begin;
}

// Consecutive steps between points at which some rank's window begins or ends.
struct Stretch {
  std::int64_t first, end;
  std::size_t ranks;
};

std::vector<Stretch> Stretches(const std::vector<MatchRank>& ranks) {
  std::set<std::int64_t> points;
  for (const MatchRank& rank : ranks)
    for (const RecordedWindow& window : *rank.windows) points.insert({window.first_step, window.end_step});
  std::vector<Stretch> stretches;
  for (auto at = points.begin(); at != points.end() && std::next(at) != points.end(); ++at) {
    Stretch stretch{*at, *std::next(at), 0};
    for (const MatchRank& rank : ranks) stretch.ranks += WindowWith(rank, stretch.first) != nullptr;
    if (stretch.ranks > 0) stretches.push_back(stretch);
  }
  return stretches;
}

bool AnyBeginsAt(const std::vector<MatchRank>& ranks, std::int64_t step) {
  for (const MatchRank& rank : ranks)
    for (const RecordedWindow& window : *rank.windows)
      if (window.first_step == step && window.end_step > step) return true;
  return false;
}

void BySteps(const std::vector<MatchRank>& ranks, const JobSteps& steps, JobWindows& out) {
  schema::TlWindows& table = out.table;
  // `pending`: steps that only some ranks have. `last_end`: the end of the previous stretch.
  std::int64_t pending = 0, last_end = -1;
  for (const Stretch& stretch : Stretches(ranks)) {
    const bool touches = stretch.first == last_end;
    if (!touches) pending = 0;
    last_end = stretch.end;
    if (stretch.ranks < ranks.size()) {
      const std::int64_t length = stretch.end - stretch.first;
      out.outside_steps += length;
      if (touches && table.rows() > 0 && table.end_step.back() == stretch.first)
        table.outside_steps.back() += length;
      else
        pending += length;
      continue;
    }
    if (table.rows() > 0 && table.end_step.back() == stretch.first && !AnyBeginsAt(ranks, stretch.first)) {
      table.end_step.back() = stretch.end;
      continue;
    }
    table.Append({.first_step = stretch.first,
                  .end_step = stretch.end,
                  .ranks = static_cast<std::uint32_t>(ranks.size()),
                  .outside_steps = pending});
    pending = 0;
  }
  for (std::size_t i = 0; i < table.rows(); ++i) {
    std::int64_t begin = schema::kNoTime, end = kForever;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const RecordedWindow* window = WindowWith(ranks[r], table.first_step[i]);
      const RecordedWindow* last = WindowWith(ranks[r], table.end_step[i] - 1);
      begin = std::max(
          begin, ranks[r].clock->ToCluster(StepTime(steps.ranks[r], table.first_step[i], false, window->local.begin)));
      end = std::min(end,
                     ranks[r].clock->ToCluster(StepTime(steps.ranks[r], table.end_step[i] - 1, true, last->local.end)));
      table.cut[i] |= last->cut;
    }
    table.begin_ns[i] = begin;
    table.end_ns[i] = std::max(begin, end);
  }
}

void ByTime(const std::vector<MatchRank>& ranks, JobWindows& out) {
  IntervalSet common;
  bool first = true, cut = false;
  for (const MatchRank& rank : ranks) {
    IntervalSet mine;
    for (const RecordedWindow& window : *rank.windows) {
      mine.push_back({rank.clock->ToCluster(window.local.begin), rank.clock->ToCluster(window.local.end)});
      cut |= window.cut;
    }
    mine = Normalize(std::move(mine));
    common = first ? std::move(mine) : Intersect(common, mine);
    first = false;
  }
  for (const Interval& window : common)
    out.table.Append({.begin_ns = window.begin,
                      .end_ns = window.end,
                      .first_step = -1,
                      .end_step = -1,
                      .ranks = static_cast<std::uint32_t>(ranks.size()),
                      .cut = cut && window == common.back()});
}

void Whole(const std::vector<MatchRank>& ranks, const JobSteps& steps, JobWindows& out) {
  Interval window = ranks[0].window;
  for (const MatchRank& rank : ranks)
    window = {std::max(window.begin, rank.window.begin), std::min(window.end, rank.window.end)};
  const bool any = !steps.common.empty();
  out.table.Append({.begin_ns = window.begin,
                    .end_ns = std::max(window.begin, window.end),
                    .first_step = any ? steps.common.front() : -1,
                    .end_step = any ? steps.common.back() + 1 : -1,
                    .ranks = static_cast<std::uint32_t>(ranks.size())});
}

}  // namespace

std::vector<RecordedWindow> WindowsOf(const schema::RankTables& head) {
  const schema::Windows& rows = head.windows;
  std::vector<RecordedWindow> windows;
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    // In damaged files windows may be out of order; then they are not used.
    if (rows.end_ns[i] < rows.begin_ns[i] || (i > 0 && rows.begin_ns[i] < rows.end_ns[i - 1])) continue;
    windows.push_back({{rows.begin_ns[i], rows.end_ns[i]}, rows.first_step[i], rows.end_step[i], rows.cut[i] != 0});
  }
  return windows;
}

bool RecordedInParts(const schema::RankTables& head) {
  const schema::Windows& rows = head.windows;
  if (rows.rows() == 0) {
    const std::string_view recording = ingest::MetaValue(head, "recording");
    return !recording.empty() && recording != "all";
  }
  return rows.rows() > 1 || rows.begin_cause[0] != static_cast<std::uint8_t>(WindowCause::kRunBegin) ||
         rows.end_cause[0] != static_cast<std::uint8_t>(WindowCause::kRunEnd);
}

JobWindows CommonWindows(const std::vector<MatchRank>& ranks, const JobSteps& steps) {
  JobWindows out;
  if (ranks.empty()) return out;
  bool windows = true, numbered = true;
  for (const MatchRank& rank : ranks) {
    out.in_parts |= rank.in_parts;
    windows &= rank.windows != nullptr;
    if (rank.windows == nullptr) continue;
    // A rank without any window has nothing in common with the others.
    for (const RecordedWindow& window : *rank.windows) numbered &= window.first_step >= 0 && window.end_step >= 0;
  }
  if (!out.in_parts || !windows) {
    Whole(ranks, steps, out);
    return out;
  }
  if (numbered)
    BySteps(ranks, steps, out);
  else {
    ByTime(ranks, out);
    std::map<std::int64_t, std::size_t> complete;
    for (const auto& of_rank : steps.ranks)
      for (const RankStep& step : of_rank) complete[step.index] += step.complete;
    for (const auto& [index, count] : complete) out.outside_steps += count > 0 && count < ranks.size();
  }
  if (out.outside_steps > 0)
    out.losses.push_back(MakeLoss(-1, Loss::kWindowDiffers, static_cast<std::uint64_t>(out.outside_steps), ""));
  return out;
}

std::vector<AnalysisPart> AnalysisParts(const JobWindows& windows, const std::vector<MatchRank>& ranks,
                                        const JobSteps& steps, std::int64_t first_step, std::int64_t last_step) {
  std::vector<AnalysisPart> parts;
  const schema::TlWindows& table = windows.table;
  const bool by_steps = !steps.common.empty();
  for (std::size_t i = 0; i < table.rows(); ++i) {
    AnalysisPart part;
    part.cluster_window = {table.begin_ns[i], table.end_ns[i]};
    if (by_steps) {
      bool any = false;
      for (const std::int64_t index : steps.common) {
        if (index < first_step || index > last_step) continue;
        if (table.first_step[i] >= 0 ? index < table.first_step[i] || index >= table.end_step[i] : false) continue;
        // Windows without step numbers: by the time of the step.
        if (table.first_step[i] < 0) {
          const std::int64_t begin =
              ranks[0].clock->ToCluster(StepTime(steps.ranks[0], index, false, schema::kNoTime / 2));
          if (begin < table.begin_ns[i] || begin >= table.end_ns[i]) continue;
        }
        if (!any) part.first_step = index;
        part.last_step = index;
        any = true;
      }
      if (!any) continue;
      Interval at{schema::kNoTime, schema::kNoTime};
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        const std::int64_t begin = StepTime(steps.ranks[r], part.first_step, false, schema::kNoTime);
        const std::int64_t end = StepTime(steps.ranks[r], part.last_step, true, schema::kNoTime);
        if (begin != schema::kNoTime) at.begin = std::max(at.begin, ranks[r].clock->ToCluster(begin));
        if (end != schema::kNoTime) at.end = std::max(at.end, ranks[r].clock->ToCluster(end));
      }
      if (at.begin != schema::kNoTime && at.end > at.begin) part.cluster_window = at;
    }
    parts.push_back(part);
  }
  return parts;
}

}  // namespace lockstep::merge
