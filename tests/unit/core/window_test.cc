// Which step is inside a window: steps, schedules, triggers.

#include "core/window.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

std::string Phases(const WindowSpec& spec, std::int64_t from, std::int64_t to, std::int64_t first = 0) {
  std::string text;
  for (std::int64_t i = from; i < to; ++i) text += static_cast<char>('0' + static_cast<int>(PhaseOf(spec, i, first)));
  return text;
}

TEST(Window, StepsOnce) {
  WindowSpec spec{};
  spec.kind = WindowKind::kSteps;
  spec.begin_step = 3, spec.end_step = 6;
  EXPECT_EQ(Phases(spec, 0, 9), "000223000");
  EXPECT_EQ(StepsWanted(spec), 3);
  // Numbers are absolute: a job that resumed at step 4 is inside at once.
  EXPECT_EQ(PhaseOf(spec, 4, 4), StepPhase::kRecord);
  EXPECT_EQ(PhaseOf(spec, -1, -1), StepPhase::kNone);
}

TEST(Window, StepsAgainAndAgain) {
  WindowSpec spec{};
  spec.kind = WindowKind::kSteps;
  spec.begin_step = 1, spec.end_step = 3, spec.every_steps = 5;
  EXPECT_EQ(Phases(spec, 0, 13), "0230002300023");
  EXPECT_EQ(PhaseOf(spec, 5'000'000'000'000'001, 0), StepPhase::kRecord);
  EXPECT_EQ(StepsWanted(spec), -1);
  spec.every_steps = 2;  // Windows that touch.
  EXPECT_EQ(Phases(spec, 0, 6), "023232");
}

TEST(Window, ScheduleCountsFromTheFirstStep) {
  WindowSpec spec{};
  spec.kind = WindowKind::kSchedule;
  spec.skip_first = 1, spec.wait = 1, spec.warmup = 1, spec.active = 2, spec.repeat = 2;
  EXPECT_EQ(Phases(spec, 0, 12), "001230123000");
  EXPECT_EQ(Phases(spec, 100, 112, 100), "001230123000");
  EXPECT_EQ(PhaseOf(spec, 99, 100), StepPhase::kNone);
  EXPECT_EQ(StepsWanted(spec), 4);
  spec.repeat = 0;
  EXPECT_EQ(Phases(spec, 9, 17), "01230123");
}

TEST(Window, TriggerOnlyWhereArmed) {
  WindowSpec spec{};
  spec.kind = WindowKind::kTrigger;
  spec.armed_begin = -1, spec.armed_end = 5;
  EXPECT_EQ(Phases(spec, 0, 4), "0000");
  spec.armed_begin = 2;
  EXPECT_EQ(Phases(spec, 0, 8), "00223000");
}

TEST(Window, OthersAreNotDecidedBySteps) {
  for (const WindowKind kind : {WindowKind::kAll, WindowKind::kRange, WindowKind::kTimer, WindowKind::kManual}) {
    WindowSpec spec{};
    spec.kind = kind;
    EXPECT_FALSE(StepsDecide(kind));
    EXPECT_EQ(PhaseOf(spec, 0, 0), StepPhase::kNone);
  }
}

}  // namespace
}  // namespace lockstep
