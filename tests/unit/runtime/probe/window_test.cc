// Whose recording a call switches, and when.

#include <algorithm>
#include <cstring>
#include <set>

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

// Threads that begin and end ranges at the same moment: no request loses its begin, because another thread ends the
// last one that it knew of.
TEST(ProbeWindow, ARangeThatBeginsIsRecorded) {
  TestSegmentOptions options;
  options.recording = false;
  options.other_ring_slots = 1 << 14;
  for (int round = 0; round < 5; ++round) {
    TestSegment segment(options);
    segment.header().window.kind = WindowKind::kRange;
    std::strcpy(segment.header().window.range_name, "request");
    segment.header().window.range_source = kRangeSourceAny;
    ASSERT_EQ(RunScenario(segment, {"serve", "8", "2000", "always"}), 0);
  }
}

// The same for ranges that are steps, and for calls that are: one window, and every step of it.
class StepsOfThreads : public testing::TestWithParam<bool> {};

TEST_P(StepsOfThreads, MakeOneWindow) {
  constexpr std::int64_t kFirst = 100, kEnd = 1100;
  TestSegmentOptions options;
  options.recording = false;
  options.other_ring_slots = 1 << 14;
  for (int round = 0; round < 20; ++round) {
    TestSegment segment(options);
    segment.header().window.kind = WindowKind::kSteps;
    segment.header().window.begin_step = kFirst;
    segment.header().window.end_step = kEnd;
    if (GetParam()) std::strcpy(segment.header().window.step_range, "request");
    ASSERT_EQ(RunScenario(segment, {"serve", "8", "200", GetParam() ? "ranges" : "steps"}), 0);
    std::set<std::int64_t> begun;
    std::uint64_t last_begin = 0, last_end = 0;
    for (const TestRecord& record : segment.ReadKind(RecordKind::kStep)) {
      const auto step = record.As<StepRecord>();
      const bool ends = (step.head.flags & 0x80) != 0;
      if (!ends) begun.insert(step.index);
      std::uint64_t& last = ends ? last_end : last_begin;
      last = std::max(last, step.ticks);
    }
    // A call's number is taken before it is announced: each thread may be held up in between until the window is over.
    const std::int64_t late = GetParam() ? 0 : 8;
    ASSERT_GE(begun.size(), static_cast<std::size_t>(kEnd - kFirst - late));
    EXPECT_GE(*begun.begin(), kFirst);
    EXPECT_LT(*begun.rbegin(), kEnd);
    EXPECT_LE(last_begin, last_end);
    std::string switches;  // In no order.
    for (const TestRecord& record : segment.ReadKind(RecordKind::kWindow))
      switches += (record.flags & 1) != 0 ? "+" : "-";
    EXPECT_TRUE(switches == "+-" || switches == "-+") << switches;
  }
}
INSTANTIATE_TEST_SUITE_P(ProbeWindow, StepsOfThreads, testing::Bool());

}  // namespace
}  // namespace lockstep::probe
