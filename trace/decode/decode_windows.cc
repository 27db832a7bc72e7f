// Capture windows: when the slot recorded, and which steps are therefore whole.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trace/decode/process_decoder.h"
#include "trace/decode/sort_rows.h"

namespace lockstep::trace {
namespace {

using schema::kNoTime;

// A window that the end of the run closes was cut, unless it was to last until then.
bool CutByEnd(WindowCause begin) { return begin != WindowCause::kRunBegin && begin != WindowCause::kManual; }

}  // namespace

void ProcessDecoder::OnWindow(Thread& thread, const WindowRecord& record) {
  const std::int64_t ns = thread.clock.Ns(record.ticks);
  thread.life.Cover(ns, ns);
  window_marks_.push_back({ns, record.step, record.cause, (record.head.flags & 1) != 0, record.cut != 0});
}

// The time between two step ranges belongs to the later step (mostly loading data), so a range's step begins where the
// previous one ended, or where recording was switched on for it.
void ProcessDecoder::ExtendStepRanges() {
  constexpr std::uint8_t kStepRange = schema::StepSource::kRange;
  const StepMark* before = nullptr;
  for (StepMark& mark : marks_) {
    if (mark.source != kStepRange) continue;
    if (!mark.ends && (before == nullptr || before->ends)) {
      const std::int64_t since = before == nullptr ? kNoTime : before->ns;
      std::int64_t begin = before != nullptr && before->index == mark.index ? before->ns : kNoTime;
      for (const WindowMark& window : window_marks_) {
        if (window.ns < since || window.ns > mark.ns) continue;
        // Recording was off in between: what was recorded before belongs to another window.
        begin = window.on && window.step == mark.index ? window.ns : kNoTime;
      }
      if (begin != kNoTime && begin < mark.ns) {
        const bool same = before != nullptr && before->ns == begin && before->thread == mark.thread;
        mark.cpu_ns = same ? before->cpu_ns : -1;
        mark.others_cpu_us = same ? before->others_cpu_us : 0;
        mark.ns = begin;
      }
    }
    before = &mark;
  }
}

// Threads that number steps together (a request each) may write them out of order by microseconds, so the n-th number
// gets the n-th time.
void ProcessDecoder::OrderMarks() {
  std::map<std::uint8_t, std::vector<StepMark*>> by_source;
  for (StepMark& mark : marks_)
    if (!mark.ends) by_source[mark.source].push_back(&mark);
  for (auto& [source, marks] : by_source) {
    const auto before = [](const StepMark* a, const StepMark* b) { return a->index < b->index; };
    if (std::is_sorted(marks.begin(), marks.end(), before)) continue;
    bool threads = false;
    for (const StepMark* mark : marks) threads |= mark->thread != marks[0]->thread;
    if (!threads) continue;
    std::vector<StepMark> sorted;
    for (const StepMark* mark : marks) sorted.push_back(*mark);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const StepMark& a, const StepMark& b) { return a.index < b.index; });
    const auto same = [](const StepMark& a, const StepMark& b) { return a.index == b.index; };
    // Each thread marks its own steps.
    if (std::adjacent_find(sorted.begin(), sorted.end(), same) != sorted.end()) continue;
    for (std::size_t i = 0; i < marks.size(); ++i) {
      sorted[i].ns = marks[i]->ns;
      *marks[i] = sorted[i];
    }
  }
}

void ProcessDecoder::MakeWindows(const std::vector<WindowMark>& marks, std::int64_t end_ns) {
  schema::Windows& windows = tables_.windows;
  const WindowMark* open = nullptr;
  const auto close = [&](std::int64_t ns, std::int64_t step, WindowCause cause, bool cut) {
    windows.Append({.begin_ns = open->ns,
                    .end_ns = std::max(ns, open->ns),
                    .first_step = open->step,
                    .end_step = open->step < 0 && step < 0 ? -1 : std::max(open->step, step),
                    .begin_cause = static_cast<std::uint8_t>(open->cause),
                    .end_cause = static_cast<std::uint8_t>(cause),
                    .cut = cut});
    open = nullptr;
  };
  for (const WindowMark& mark : marks) {
    if (mark.on && open == nullptr)
      open = &mark;
    else if (!mark.on && open != nullptr)
      close(mark.ns, mark.step, mark.cause, mark.cut);
  }
  if (open != nullptr) close(end_ns, -1, WindowCause::kRunEnd, CutByEnd(open->cause));
  KeepWholeSteps();
  DropRangesOutside();
  TellFirstKernels();
}

// On the GPU a window's last step ends where the first kernel after the window starts: meta
// window_next_kernel.WINDOW, "LAUNCH_NS START_NS".
void ProcessDecoder::TellFirstKernels() {
  const schema::Windows& windows = tables_.windows;
  std::map<std::size_t, GpuRecords::FirstAfter> first;
  for (const GpuRecords::FirstAfter& kernel : gpu_.first_after()) {
    // Launched after the last window that begins before it.
    const auto after = std::upper_bound(windows.begin_ns.begin(), windows.begin_ns.end(), kernel.launch_ns);
    if (after == windows.begin_ns.begin()) continue;
    const auto at = static_cast<std::size_t>(after - windows.begin_ns.begin()) - 1;
    const auto [known, fresh] = first.try_emplace(at, kernel);
    if (!fresh &&
        std::pair(kernel.launch_ns, kernel.start_ns) < std::pair(known->second.launch_ns, known->second.start_ns))
      known->second = kernel;
  }
  for (const auto& [window, kernel] : first)
    AddFact("window_next_kernel." + std::to_string(window),
            std::to_string(kernel.launch_ns) + " " + std::to_string(kernel.start_ns));
}

// A thread reads the switch every 128 records, so it records for a while after another thread switched it off: those
// ranges do not belong to the window.
void ProcessDecoder::DropRangesOutside() {
  const schema::Windows& windows = tables_.windows;
  const schema::Ranges& ranges = tables_.ranges;
  if (windows.rows() == 0) return;
  std::vector<std::uint32_t> kept;
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < ranges.rows(); ++i) {
    while (at + 1 < windows.rows() && windows.begin_ns[at + 1] <= ranges.begin_ns[i]) ++at;
    // Before the first window there is no recording that could write them.
    if (ranges.begin_ns[i] <= windows.end_ns[at]) kept.push_back(i);
  }
  if (kept.size() != ranges.rows()) TakeRows(tables_.ranges, kept);
}

// A step is complete if recording was on from its begin to its end; a window's
// numbers are those of its complete steps.
void ProcessDecoder::KeepWholeSteps() {
  schema::Windows& windows = tables_.windows;
  schema::Steps& steps = tables_.steps;
  if (windows.rows() == 0) return;
  std::size_t at = 0;
  std::vector<std::uint8_t> named(windows.rows(), 0), begun(windows.rows(), 0);
  for (std::size_t i = 0; i < steps.rows(); ++i) {
    // The last window that begins at or before the step. Steps are in order of time.
    while (at + 1 < windows.rows() && windows.begin_ns[at + 1] <= steps.begin_ns[i]) ++at;
    if (steps.begin_ns[i] < windows.begin_ns[at]) continue;
    begun[at] = 1;
    if (!steps.complete[i]) continue;
    if (steps.end_ns[i] > windows.end_ns[at]) {
      steps.complete[i] = 0;
      steps.cpu_ns[i] = steps.others_cpu_ns[i] = -1;
      steps.end_ns[i] = std::max(steps.begin_ns[i], windows.end_ns[at]);
      continue;
    }
    if (!named[at]) windows.first_step[at] = steps.index[i];
    named[at] = 1;
    windows.end_step[at] = steps.index[i] + 1;
  }
  // A window opened for a step that never came: nothing was cut.
  for (std::size_t i = 0; i < windows.rows(); ++i) {
    const auto begin = static_cast<WindowCause>(windows.begin_cause[i]);
    const bool by_step = begin == WindowCause::kSteps || begin == WindowCause::kSchedule;
    if (steps.rows() > 0 && by_step && !begun[i] &&
        windows.end_cause[i] == static_cast<std::uint8_t>(WindowCause::kRunEnd))
      windows.cut[i] = 0;
  }
  // The first steps of a window that began later are ordinary steps.
  constexpr std::int64_t kWarmupSteps = 2;
  if (windows.begin_cause[0] == static_cast<std::uint8_t>(WindowCause::kRunBegin)) return;
  for (std::size_t i = 0; i < steps.rows(); ++i)
    steps.warmup[i] = steps.warmup[i] != 0 && steps.index[i] < kWarmupSteps;
}

}  // namespace lockstep::trace
