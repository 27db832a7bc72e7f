#include "merge/timeline/phases.h"

#include <gtest/gtest.h>

#include "trace/file/strings.h"

namespace lockstep::merge {
namespace {

std::vector<PhaseStretch> Flat(std::vector<PhaseStretch> ranges) { return Innermost(ranges); }

void Expect(const std::vector<PhaseStretch>& got, const std::vector<PhaseStretch>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].window, expected[i].window) << i;
    EXPECT_EQ(got[i].category, expected[i].category) << i;
  }
}

TEST(Innermost, NestedRangesGiveWayAndComeBack) {
  Expect(Flat({{{0, 100}, 2}, {{10, 40}, 1}, {{20, 30}, 3}, {{60, 70}, 1}}),
         {{{0, 10}, 2}, {{10, 20}, 1}, {{20, 30}, 3}, {{30, 40}, 1}, {{40, 60}, 2}, {{60, 70}, 1}, {{70, 100}, 2}});
}

TEST(Innermost, RangesThatOverlapWithoutNesting) {
  // The later one wins until it ends; of the earlier nothing is left by then.
  Expect(Flat({{{0, 50}, 1}, {{30, 80}, 2}}), {{{0, 30}, 1}, {{30, 80}, 2}});
  Expect(Flat({{{0, 90}, 1}, {{10, 50}, 2}, {{20, 30}, 3}, {{95, 99}, 4}}),
         {{{0, 10}, 1}, {{10, 20}, 2}, {{20, 30}, 3}, {{30, 50}, 2}, {{50, 90}, 1}, {{95, 99}, 4}});
}

TEST(Innermost, TouchingStretchesOfOneCategoryAreOne) {
  Expect(Flat({{{0, 10}, 1}, {{10, 20}, 1}, {{20, 20}, 2}}), {{{0, 20}, 1}});
}

struct Tables {
  schema::RankTables head, events;
  trace::StringInterner<schema::Strings, schema::StringBytes> strings{head.strings, head.string_bytes};
  void Range(std::string_view name, std::int64_t begin, std::int64_t end, std::uint8_t category,
             std::uint32_t thread = 0) {
    schema::Ranges::Row row{};
    row.begin_ns = begin;
    row.duration_ns = end - begin;
    row.thread = thread;
    row.name = strings.Intern(name);
    row.category = category;
    events.ranges.Append(row);
  }
};

std::int64_t Phase(const schema::TlStepPhases& table, std::int64_t index, std::uint8_t phase) {
  std::int64_t ns = 0;
  for (std::size_t i = 0; i < table.rows(); ++i)
    if (table.index[i] == index && table.phase[i] == phase) ns += table.phase_ns[i];
  return ns;
}

schema::TlStepPhases PhasesOf(const Tables& t, const std::vector<RankStep>& steps, Interval total, std::int32_t rank,
                              IntervalSet unrecorded = {}) {
  PhaseRanges ranges(0, std::move(unrecorded));
  ranges.Add(t.events.ranges);
  return ranges.Table(steps, total, rank);
}

TEST(Phases, OfTheTrainingThreadClippedToSteps) {
  Tables t;
  t.Range("forward", 50, 150, 2);
  t.Range("c10d::all_reduce", 100, 130, 5);
  t.Range("user's own", 160, 170, 5);
  t.Range("elsewhere", 0, 1000, 3, 1);
  t.Range("label", 0, 1000, 0);
  const std::vector<RankStep> steps = {{0, {0, 110}, true, false, -1}, {1, {110, 200}, true, false, -1}};
  const schema::TlStepPhases table = PhasesOf(t, steps, {0, 200}, 7, {{100, 130}});
  EXPECT_EQ(Phase(table, 0, 2), 50);
  EXPECT_EQ(Phase(table, 0, 5), 10);
  EXPECT_EQ(Phase(table, 1, 2), 20);
  EXPECT_EQ(Phase(table, 1, 5), 30);
  EXPECT_EQ(Phase(table, 1, 3), 0);
  EXPECT_EQ(Phase(table, -1, 2), 70);
  EXPECT_EQ(Phase(table, -1, kPhaseUnrecordedComm), 30);
  for (const std::int32_t rank : table.rank) EXPECT_EQ(rank, 7);
}

TEST(Phases, NoCategoriesNoRows) {
  Tables t;
  t.Range("label", 0, 10, 0);
  EXPECT_EQ(PhasesOf(t, {{0, {0, 10}, true, false, -1}}, {0, 10}, 0).rows(), 0u);
}

}  // namespace
}  // namespace lockstep::merge
