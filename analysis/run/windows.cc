// Describes what was recorded if that is not everything: one line under the verdict.

#include <fmt/format.h>

#include <algorithm>

#include "analysis/core/format.h"
#include "analysis/passes.h"

namespace lockstep::analysis {
namespace {

constexpr std::size_t kMaxWindowsNamed = 3;

std::string StepsOf(const CaptureWindow& window) {
  if (!window.first_step) return Duration(window.span_ns);
  return *window.first_step == *window.last_step ? fmt::format("{}", *window.first_step)
                                                 : fmt::format("{}-{}", *window.first_step, *window.last_step);
}

std::string RecordingSentence(const RunFacts& run) {
  if (run.window.windows.empty())
    return run.window.outside_steps > 0 ? "The ranks' capture windows have no step in common."
                                        : "The ranks' capture windows have nothing in common, or none was opened.";
  std::string text;
  for (std::size_t i = 0; i < std::min(run.window.windows.size(), kMaxWindowsNamed); ++i)
    text += (i == 0 ? "" : ", ") + StepsOf(run.window.windows[i]);
  if (run.window.windows.size() > kMaxWindowsNamed)
    text += " and " + Plural(static_cast<std::int64_t>(run.window.windows.size() - kMaxWindowsNamed), "more window");
  const CaptureWindow& first = run.window.windows.front();
  const bool steps = first.first_step.has_value(),
             one = run.window.windows.size() == 1 && first.first_step == first.last_step;
  text = fmt::format("Recorded: {}{} of each rank", !steps ? "" : one ? "step " : "steps ", text);
  if (run.window.outside_steps > 0)
    text += fmt::format("; {} outside the common window left out", Plural(run.window.outside_steps, "step"));
  const bool cut =
      std::any_of(run.window.windows.begin(), run.window.windows.end(), [](const auto& window) { return window.cut; });
  if (cut) text += run.window.windows.size() == 1 ? "; the window was cut short" : "; the last window was cut short";
  return text + ".";
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
    analysis.remarks.push_back(fmt::format(
        "{} {} not recorded (--ranks): waiting for {} is not seen.", run.ranks_left_out.size() == 1 ? "Rank" : "Ranks",
        ShortRankList(run.ranks_left_out) + (run.ranks_left_out.size() == 1 ? " was" : " were"),
        run.ranks_left_out.size() == 1 ? "it" : "them"));
}

}  // namespace lockstep::analysis
