// The table windows, and which steps they leave whole.

#include "decode_fixture.h"

namespace lockstep::trace {
namespace {

WindowRecord Switch(bool on, std::uint64_t ticks, std::int64_t step, WindowCause cause, bool cut = false) {
  return {{RecordKind::kWindow, static_cast<std::uint8_t>(on), 1},
          cause,
          static_cast<std::uint8_t>(cut),
          0,
          ticks,
          step,
          0};
}

class DecodeWindows : public DecodeTest {
 protected:
  using Rows = std::vector<std::vector<std::int64_t>>;
  static Rows WindowsOf(const schema::RankTables& t) {
    Rows rows;
    for (std::size_t i = 0; i < t.windows.rows(); ++i)
      rows.push_back({t.windows.begin_ns[i], t.windows.end_ns[i], t.windows.first_step[i], t.windows.end_step[i],
                      t.windows.begin_cause[i], t.windows.end_cause[i], t.windows.cut[i]});
    return rows;
  }
  static Rows StepsOf(const schema::RankTables& t) {
    Rows rows;
    for (std::size_t i = 0; i < t.steps.rows(); ++i)
      rows.push_back({t.steps.index[i], t.steps.begin_ns[i], t.steps.end_ns[i], t.steps.complete[i]});
    return rows;
  }
  static SpoolBuilder Spool(const ThreadRecords& records, const char* recording = "steps") {
    const std::string meta = std::string("clock_mode\traw\nrank\t0\nrecording\t") + recording + "\n";
    return SpoolBuilder().Meta(meta).Process().Thread().Records(records);
  }
  static SpoolBuilder& Agent(SpoolBuilder& spool, bool on, std::uint64_t ticks, WindowCause cause, bool cut = false) {
    const SpoolWindow row{ticks, -1, on ? 1u : 0u, static_cast<std::uint8_t>(cause), static_cast<std::uint8_t>(cut),
                          {}};
    return spool.Block(SpoolKind::kWindows, &row, sizeof row);
  }
};

TEST_F(DecodeWindows, ByStepsOfTheProbe) {
  ThreadRecords records;
  records.Add(Switch(true, 100, 10, WindowCause::kSteps)).Step(10, 100, -1).Step(11, 200, -1);
  records.Step(12, 300, -1, 0x80).Add(Switch(false, 300, 12, WindowCause::kSteps));
  const schema::RankTables t = Tables(Spool(records).End(1000));
  EXPECT_EQ(WindowsOf(t), (Rows{{100, 300, 10, 12, 1, 1, 0}}));
  EXPECT_EQ(StepsOf(t), (Rows{{10, 100, 200, 1}, {11, 200, 300, 1}}));
  EXPECT_EQ(t.steps.warmup, (std::vector<std::uint8_t>{0, 0}));  // Steps 10 and 11 are no first steps.
  EXPECT_EQ(LossCount(t, "WindowCut"), 0u);
}

TEST_F(DecodeWindows, AStepThatRecordingLeftIsNotComplete) {
  ThreadRecords records;
  records.Step(0, 100, -1).Add(Switch(false, 150, 0, WindowCause::kManual));
  records.Add(Switch(true, 250, 2, WindowCause::kManual)).Step(2, 300, -1).Step(3, 400, -1, 0x80);
  SpoolBuilder spool = Spool(records, "all");
  Agent(spool, true, 50, WindowCause::kRunBegin);
  Agent(spool, false, 900, WindowCause::kRunEnd);
  const schema::RankTables t = Tables(spool.End(1000));
  EXPECT_EQ(WindowsOf(t), (Rows{{50, 150, -1, 0, 0, 5, 0}, {250, 900, 2, 3, 5, 8, 0}}));
  EXPECT_EQ(StepsOf(t), (Rows{{0, 100, 150, 0}, {2, 300, 400, 1}}));
  EXPECT_EQ(LossCount(t, "StepIncomplete"), 1u);
}

// Two ranks, what one of them started, and what that started; the agent's switches are everybody's.
TEST_F(DecodeWindows, EachProcessHasItsOwnSwitch) {
  ThreadRecords rank, other, helper, decider, replaced;
  rank.Add(Switch(false, 150, -1, WindowCause::kManual)).Add(Switch(true, 500, -1, WindowCause::kManual));
  other.Range(0, 110, 120, 0).Range(0, 600, 610, 0);
  helper.Range(0, 110, 120, 0).Range(0, 160, 170, 0);
  decider.Add(Switch(false, 300, -1, WindowCause::kManual)).Add(Switch(true, 400, -1, WindowCause::kManual));
  replaced.Range(0, 460, 470, 0);
  SpoolBuilder spool;
  spool.Meta("clock_mode\traw\nrank\t0\nrecording\tall\n");
  spool.Process(0, 100, 0, 60, 1).Process(1, 101, 1, 61, 1).Process(2, 102, -1, 70, 100);
  // Began while its starter was off; then it is replaced by another program of the same number.
  spool.Process(3, 103, -1, 200, 102).Process(4, 103, -1, 450, 102);
  const ThreadRecords* records[] = {&rank, &other, &helper, &decider, &replaced};
  for (std::uint32_t i = 0; i < 5; ++i) spool.Thread(i, 100 + i, i).Records(*records[i], i);
  Agent(spool, true, 50, WindowCause::kRunBegin);
  Agent(spool, false, 900, WindowCause::kRunEnd);
  const Decoded decoded = Decode(spool.End(1000));
  ASSERT_EQ(decoded.processes.size(), 5u);
  const auto windows = [&](const char* pid, std::int64_t begin_ns) {
    for (const DecodedProcess& each : decoded.processes)
      if (MetaOf(each.tables, "pid") == pid && each.tables.processes.begin_ns[0] == begin_ns)
        return WindowsOf(each.tables);
    return Rows{{-1}};
  };
  EXPECT_EQ(windows("100", 60), (Rows{{50, 150, -1, -1, 0, 5, 0}, {500, 900, -1, -1, 5, 8, 0}}));
  EXPECT_EQ(windows("101", 61), (Rows{{50, 900, -1, -1, 0, 8, 0}}));
  EXPECT_EQ(windows("102", 70), windows("100", 60));
  EXPECT_EQ(windows("103", 200), (Rows{{400, 900, -1, -1, 5, 8, 0}}));
  EXPECT_EQ(windows("103", 450), windows("103", 200));
  // Of the helper's two ranges the one that its starter's window holds.
  for (const DecodedProcess& each : decoded.processes) {
    const std::string pid = MetaOf(each.tables, "pid");
    EXPECT_EQ(each.tables.ranges.rows(), pid == "101"                                               ? 2u
                                         : pid == "102" || each.tables.processes.begin_ns[0] == 450 ? 1u
                                                                                                    : 0u);
  }
}

TEST_F(DecodeWindows, ADeadAgentsWindowEndsWithTheLastSign) {
  ThreadRecords records;
  records.Add(Switch(true, 100, 5, WindowCause::kSteps)).Step(5, 100, -1).Step(6, 200, -1).Range(0, 210, 260, 0);
  const schema::RankTables t = Tables(Spool(records));
  EXPECT_EQ(WindowsOf(t), (Rows{{100, 260, 5, 6, 1, 8, 1}}));
  EXPECT_EQ(LossCount(t, "WindowCut"), 1u);
}

TEST_F(DecodeWindows, WithoutAWordItWasOneWindow) {
  const schema::RankTables t = TablesOf(ThreadRecords().Step(0, 100, -1).Step(1, 200, -1, 0x80));
  EXPECT_EQ(WindowsOf(t), (Rows{{100, 1'000'000, 0, 1, 0, 8, 0}}));
}

TEST_F(DecodeWindows, NoneWasOpened) {
  const schema::RankTables t = Tables(Spool(ThreadRecords().World(0, 7, 2, 0)).End(1000));
  EXPECT_EQ(t.windows.rows(), 0u);
}

TEST_F(DecodeWindows, RangesOfThreadsThatSawTheSwitchLateAreDropped) {
  ThreadRecords records;
  records.Add(Switch(true, 100, -1, WindowCause::kRange)).Range(0, 110, 190, 0);
  records.Add(Switch(false, 200, -1, WindowCause::kRange)).Range(0, 205, 230, 0);
  const schema::RankTables t = Tables(Spool(records).End(1000));
  EXPECT_EQ(t.ranges.begin_ns, (std::vector<std::int64_t>{110}));
}

TEST_F(DecodeWindows, StepRangesTakeWhatLiesBeforeThem) {
  ThreadRecords records;  // On at the end of the range before: data loading from 100 on.
  records.Add(Switch(true, 100, 5, WindowCause::kSteps)).Step(5, 130, -1, 1).Step(6, 200, -1, 0x81);
  records.Step(6, 240, -1, 1).Step(7, 300, -1, 0x81).Add(Switch(false, 300, 7, WindowCause::kSteps));
  const schema::RankTables t = Tables(Spool(records).End(1000));
  EXPECT_EQ(StepsOf(t), (Rows{{5, 100, 200, 1}, {6, 200, 300, 1}}));
}

TEST_F(DecodeWindows, ThreadsThatNumberTogetherAreOneSequence) {
  ThreadRecords one, two;
  one.Step(0, 100, -1).Step(2, 190, -1);
  two.Step(1, 195, -1).Step(3, 200, -1);
  const schema::RankTables t =
      Tables(SpoolBuilder().Meta().Process().Thread(0, 100).Thread(1, 101).Records(one, 0).Records(two, 1).End(1000));
  ASSERT_EQ(t.steps.rows(), 4u);
  EXPECT_EQ(t.steps.index, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(t.steps.begin_ns, (std::vector<std::int64_t>{100, 190, 195, 200}));
}

}  // namespace
}  // namespace lockstep::trace
