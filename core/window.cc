#include "core/window.h"

namespace lockstep {
namespace {

StepPhase Inside(std::int64_t position, std::int64_t length) {
  if (position < 0 || position >= length) return StepPhase::kNone;
  return position == length - 1 ? StepPhase::kRecordLast : StepPhase::kRecord;
}

// torch.profiler.schedule of PyTorch 1.13 to 2.x, torch/profiler/profiler.py.
StepPhase PhaseOfSchedule(const WindowSpec& spec, std::int64_t step) {
  if (step < spec.skip_first) return StepPhase::kNone;
  const std::int64_t since = step - spec.skip_first, cycle = spec.wait + spec.warmup + spec.active;
  if (cycle <= 0 || (spec.repeat > 0 && since / cycle >= spec.repeat)) return StepPhase::kNone;
  const std::int64_t in_cycle = since % cycle;
  if (in_cycle < spec.wait) return StepPhase::kNone;
  if (in_cycle < spec.wait + spec.warmup) return StepPhase::kWarmup;
  return Inside(in_cycle - spec.wait - spec.warmup, spec.active);
}

}  // namespace

StepPhase PhaseOf(const WindowSpec& spec, std::int64_t step, std::int64_t first_step) noexcept {
  switch (spec.kind) {
    case WindowKind::kSteps: {
      const std::int64_t since = step - spec.begin_step;
      if (since < 0) return StepPhase::kNone;
      return Inside(spec.every_steps > 0 ? since % spec.every_steps : since, spec.end_step - spec.begin_step);
    }
    case WindowKind::kSchedule:
      return step < first_step ? StepPhase::kNone : PhaseOfSchedule(spec, step - first_step);
    case WindowKind::kTrigger: {
      // The window was re-armed while it was read: the old one is over, and the new one is still to come.
      const std::int64_t begin = spec.armed_begin.load(std::memory_order_acquire);
      const std::int64_t end = spec.armed_end.load(std::memory_order_acquire);
      if (begin < 0 || spec.armed_begin.load(std::memory_order_relaxed) != begin) return StepPhase::kNone;
      return Inside(step - begin, end - begin);
    }
    case WindowKind::kAll:
    case WindowKind::kRange:
    case WindowKind::kTimer:
    case WindowKind::kManual:
      break;
  }
  return StepPhase::kNone;
}

std::int64_t StepsWanted(const WindowSpec& spec) noexcept {
  if (spec.kind == WindowKind::kSteps && spec.every_steps == 0) return spec.end_step - spec.begin_step;
  if (spec.kind == WindowKind::kSchedule && spec.repeat > 0) return spec.repeat * spec.active;
  return -1;
}

}  // namespace lockstep
