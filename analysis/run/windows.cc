// Describes what was recorded if that is not everything: one line under the verdict.

#include <algorithm>

#include "analysis/core/format.h"
#include "analysis/passes.h"
#include "analysis/rules/run.h"
#include "analysis/words/render.h"

namespace lockstep::analysis {
namespace {

std::string StepsOf(const CaptureWindow& window) {
  if (!window.first_step) return Duration(window.span_ns);
  const std::string first = std::to_string(*window.first_step);
  return window.first_step == window.last_step ? first : first + "-" + std::to_string(*window.last_step);
}

std::string RecordingSentence(const RunFacts& run) {
  if (run.window.windows.empty())
    return Told(run.window.outside_steps > 0 ? Word::kWindowsShareNoStep : Word::kWindowsShareNothing);
  std::string named;
  for (std::size_t i = 0; i < std::min(run.window.windows.size(), rules::kWindowsListed); ++i)
    named += (i == 0 ? "" : ", ") + StepsOf(run.window.windows[i]);
  const auto more =
      static_cast<std::int64_t>(run.window.windows.size()) - static_cast<std::int64_t>(rules::kWindowsListed);
  const CaptureWindow& first = run.window.windows.front();
  const bool one = run.window.windows.size() == 1;
  const bool cut =
      std::any_of(run.window.windows.begin(), run.window.windows.end(), [](const auto& window) { return window.cut; });
  return Told(Word::kWindowsRecorded, {{"of_steps", first.first_step.has_value()},
                                       {"one_step", one && first.first_step == first.last_step},
                                       {"windows", named},
                                       {"more", If(more > 0, Num{more})},
                                       {"outside", If(run.window.outside_steps > 0, Num{run.window.outside_steps})},
                                       {"cut", cut},
                                       {"one_window", one}});
}

}  // namespace

void DescribeWindows(const Context& context, Analysis& analysis) {
  RunFacts& run = analysis.run;
  const auto& windows = context.tables().windows;
  run.window.recording = context.timeline().Meta("recording");
  for (std::size_t i = 0; i < windows.rows(); ++i) {
    CaptureWindow window;
    if (windows.first_step[i] >= 0 && windows.end_step[i] > windows.first_step[i]) {
      window.first_step = windows.first_step[i];
      window.last_step = windows.end_step[i] - 1;
    }
    window.span_ns = windows.end_ns[i] - windows.begin_ns[i];
    window.outside_steps = windows.outside_steps[i];
    window.cut = windows.cut[i] != 0;
    run.window.windows.push_back(window);
  }
  run.window.outside_steps = std::max<std::int64_t>(context.timeline().MetaNumber("outside_steps", 0), 0);
  if (!run.window.recording.empty() && run.window.recording != "all")
    analysis.remarks.push_back(RecordingSentence(run));
  if (!run.ranks_left_out.empty())
    analysis.remarks.push_back(Told(
        Word::kRanksLeftOut, {{"ranks", Ranks{run.ranks_left_out}}, {"rank_list", ShortRankList(run.ranks_left_out)}}));
}

}  // namespace lockstep::analysis
