// Whose recording a call switches.

#include "tests/unit/runtime/probe/probe_child.h"

namespace lockstep::probe {
namespace {

// A process goes with the one that started it, until it decides itself; it never switches another one's.
TEST(ProbeWindow, EachProcessHasItsOwn) {
  TestSegment segment;
  ProbeChild child(segment.path(), {"family"});
  EXPECT_EQ(child.Line(), "11 00 11 10 10");
  EXPECT_EQ(child.Line(), "00 01");
  ASSERT_EQ(child.Wait(), 0);
  // The first child's ranges: one before its parent stopped, one after that had started again.
  int ranges[3] = {};
  for (const TestRecord& record : segment.ReadKind(RecordKind::kRange)) ++ranges[record.process];
  EXPECT_EQ(ranges[0], 1);
  EXPECT_EQ(ranges[1], 2);
  // Each writes its own switches.
  int switches[3] = {};
  for (const TestRecord& record : segment.ReadKind(RecordKind::kWindow)) ++switches[record.process];
  EXPECT_EQ(switches[0], 5);
  EXPECT_EQ(switches[1], 1);
  EXPECT_EQ(switches[2], 1);
}

// What the agent asks for at a boundary is asked of every process, once.
TEST(ProbeWindow, EveryProcessAnswersTheAgent) {
  TestSegmentOptions options;
  options.recording = false;
  TestSegment segment(options);
  segment.header().window.kind = WindowKind::kTimer;
  segment.header().window.start_requested = static_cast<std::uint32_t>(WindowCause::kTimer) + 1;
  ASSERT_EQ(RunScenario(segment, {"steps"}), 0);
  ASSERT_EQ(RunScenario(segment, {"steps"}), 0);
  int on[2] = {};
  for (const TestRecord& record : segment.ReadKind(RecordKind::kWindow)) {
    EXPECT_EQ(record.As<WindowRecord>().cause, WindowCause::kTimer);
    ++on[record.process];
  }
  EXPECT_EQ(on[0], 1);
  EXPECT_EQ(on[1], 1);
}

}  // namespace
}  // namespace lockstep::probe
