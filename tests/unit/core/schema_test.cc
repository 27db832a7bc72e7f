#include "core/schema.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/loss.h"
#include "core/mpi_ops.h"

namespace lockstep {
namespace {

TEST(Schema, NamesAreUniqueAndDescribed) {
  for (const auto& tables :
       {std::vector(std::begin(schema::kRankTableInfos), std::end(schema::kRankTableInfos)),
        std::vector(std::begin(schema::kTimelineTableInfos), std::end(schema::kTimelineTableInfos))}) {
    std::set<std::string> names;
    for (const schema::TableInfo& table : tables) {
      EXPECT_TRUE(names.emplace(table.name).second) << table.name;
      std::set<std::string> columns;
      for (std::size_t c = 0; c < table.column_count; ++c) {
        EXPECT_TRUE(columns.emplace(table.columns[c].name).second) << table.name << "/" << table.columns[c].name;
        EXPECT_FALSE(table.columns[c].description.empty());
      }
    }
  }
}

// A unit in a name must be the column's unit.
TEST(Schema, UnitsAgreeWithNames) {
  auto check = [](const schema::TableInfo& table) {
    for (std::size_t c = 0; c < table.column_count; ++c) {
      const schema::ColumnInfo& column = table.columns[c];
      if (column.name.ends_with("_ns")) {
        EXPECT_EQ(column.unit, "ns") << table.name << "/" << column.name;
      }
      if (column.name.ends_with("_bytes")) {
        EXPECT_EQ(column.unit, "bytes") << table.name << "/" << column.name;
      }
    }
  };
  for (const schema::TableInfo& table : schema::kRankTableInfos) check(table);
  for (const schema::TableInfo& table : schema::kTimelineTableInfos) check(table);
}

TEST(Schema, RowsRoundTrip) {
  schema::Steps steps;
  steps.Append({.index = 3, .begin_ns = 10, .end_ns = 20, .complete = 1});
  ASSERT_EQ(steps.rows(), 1u);
  EXPECT_EQ(steps.Get(0).index, 3);
  EXPECT_EQ(steps.Get(0).end_ns, 20);
}

TEST(MpiOps, NumbersAreUnique) {
  std::set<int> numbers;
  for (const MpiOpInfo& info : kMpiOps) EXPECT_TRUE(numbers.insert(static_cast<int>(info.op)).second) << info.name;
  EXPECT_EQ(FindMpiOp(static_cast<std::uint16_t>(MpiOp::kIallreduce))->kind, CollectiveKind::kAllReduce);
  EXPECT_EQ(FindMpiOp(9999), nullptr);
}

TEST(Losses, EachSaysWhatToDo) {
  for (const LossInfo& info : kLosses) {
    EXPECT_FALSE(info.sentence.empty());
    EXPECT_FALSE(info.remedy.empty()) << info.name;
  }
  EXPECT_EQ(FindLoss("RingFull")->severity, Severity::kDataLoss);
}

}  // namespace
}  // namespace lockstep
