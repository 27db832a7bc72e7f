#include "core/schema.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

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
        EXPECT_TRUE(!table.columns[c].text.empty() || table.columns[c].role == schema::Role::kEnum);
      }
    }
  }
}

// Every column of either file.
template <typename F>
void ForEachColumn(F&& f) {
  for (const schema::TableInfo& table : schema::kRankTableInfos)
    for (std::size_t c = 0; c < table.column_count; ++c) f(table, table.columns[c]);
  for (const schema::TableInfo& table : schema::kTimelineTableInfos)
    for (std::size_t c = 0; c < table.column_count; ++c) f(table, table.columns[c]);
}

// A unit in a name must be the column's unit, and what is in ns is a time that somebody has to convert or not.
TEST(Schema, UnitsAgreeWithNames) {
  ForEachColumn([](const schema::TableInfo& table, const schema::ColumnInfo& column) {
    const std::string name = std::string(table.name) + "/" + std::string(column.name);
    EXPECT_EQ(column.name.ends_with("_ns"), column.unit == "ns") << name;
    EXPECT_TRUE(column.unit == "bytes" || !column.name.ends_with("_bytes")) << name;
    const bool time = column.role == schema::Role::kMoment || column.role == schema::Role::kDuration;
    EXPECT_EQ(time, column.unit == "ns") << name;
    EXPECT_EQ(column.clock != schema::ClockOf::kTimeless, column.role == schema::Role::kMoment) << name;
  });
}

TEST(Schema, CodesAreUniqueAndNamed) {
  std::size_t codes = 0;
  ForEachColumn([&](const schema::TableInfo& table, const schema::ColumnInfo& column) {
    const std::string name = std::string(table.name) + "/" + std::string(column.name);
    ASSERT_EQ(column.enumeration != nullptr, column.role == schema::Role::kEnum) << name;
    if (column.enumeration == nullptr) return;
    EXPECT_FALSE(column.enumeration->name.empty()) << name;
    std::set<std::uint32_t> seen;
    for (std::size_t i = 0; i < column.enumeration->count; ++i, ++codes) {
      EXPECT_TRUE(seen.insert(column.enumeration->values[i].code).second) << name;
      EXPECT_FALSE(column.enumeration->values[i].name.empty()) << name;
    }
    // What is read from files without the column is one of its codes.
    EXPECT_TRUE(seen.empty() || seen.contains(static_cast<std::uint32_t>(column.unknown()))) << name;
  });
  EXPECT_GT(codes, 100u);
}

TEST(Schema, UnknownIsWhatTheColumnSays) {
  const auto column = [](const schema::TableInfo& table, std::string_view name) {
    for (std::size_t c = 0; c < table.column_count; ++c)
      if (table.columns[c].name == name) return table.columns[c];
    throw std::runtime_error("no such column");
  };
  const auto steps = [&](std::string_view name) { return column(schema::Steps::kInfo, name); };
  EXPECT_EQ(steps("cpu_ns").unknown(), -1);
  EXPECT_EQ(steps("cpu_ns").blank(), -1);
  EXPECT_EQ(steps("begin_ns").unknown(), schema::kNoTime);
  EXPECT_EQ(steps("thread").unknown(), schema::kNone);
  EXPECT_EQ(steps("complete").unknown(), 0);
  EXPECT_EQ(steps("complete").blank(), std::nullopt);
  // "None" that is an answer is shown, and so is each code.
  EXPECT_EQ(column(schema::Kernels::kInfo, "correlation").blank(), std::nullopt);
  EXPECT_EQ(column(schema::Processes::kInfo, "mpi_thread_level").unknown(), schema::MpiThreadLevel::kNoMpi);
  EXPECT_EQ(column(schema::Processes::kInfo, "mpi_thread_level").blank(), std::nullopt);
  EXPECT_EQ(column(schema::TlRanks::kInfo, "exit_code").blank(), schema::kNoExitCode);
}

// A piece has the columns that were asked for and no others: reading one that was not does not compile.
template <typename Rows>
constexpr bool kHasDevice = requires(const Rows& rows) {
  rows.device[0];
};
template <typename Rows>
constexpr bool kHasWork = requires(const Rows& rows) {
  rows.work[0];
};
using KernelDevices =
    schema::Kernels::Some<schema::Columns<schema::Kernels>(&schema::Kernels::begin_ns, &schema::Kernels::device)>;
static_assert(kHasDevice<schema::Kernels> && kHasWork<schema::Kernels>);
static_assert(kHasDevice<KernelDevices> && !kHasWork<KernelDevices>);

TEST(Schema, ColumnsAreThoseOfTheirMembers) {
  constexpr schema::Columns<schema::Kernels> kSome(&schema::Kernels::device, &schema::Kernels::vendor);
  std::set<std::string> names;
  for (std::size_t c = 0; c < schema::Kernels::kColumnCount; ++c)
    if (kSome.Has(c)) names.emplace(schema::Kernels::kColumns[c].name);
  EXPECT_EQ(names, (std::set<std::string>{"device", "vendor"}));
  for (std::size_t c = 0; c < schema::Kernels::kColumnCount; ++c)
    EXPECT_TRUE(schema::Columns<schema::Kernels>::All().Has(c));
  KernelDevices some;
  std::vector<std::string> visited;
  some.ForEachColumn([&](const schema::ColumnInfo& column, auto&) { visited.emplace_back(column.name); });
  EXPECT_EQ(visited, (std::vector<std::string>{"begin_ns", "device"}));
}

TEST(Schema, WhatNobodyNamesIsUnknown) {
  const auto unknown = [](auto& table) {
    table.Append({});
    table.Resize(2);
    std::size_t at = 0;
    table.ForEachColumn([&](const schema::ColumnInfo& column, const auto& values) {
      using Value = std::decay_t<decltype(values[0])>;
      ASSERT_EQ(values.size(), 2u);
      for (const Value value : values)
        EXPECT_EQ(value, static_cast<Value>(column.unknown())) << table.kInfo.name << "/" << column.name;
      ++at;
    });
    EXPECT_EQ(at, table.kColumnCount);
  };
  schema::RankTables rank;
  rank.ForEachTable(unknown);
  schema::TimelineTables timeline;
  timeline.ForEachTable(unknown);
  EXPECT_EQ(schema::Steps::Row().thread, schema::kNone);
  EXPECT_EQ(schema::Steps::Row().cpu_ns, -1);
  EXPECT_EQ(schema::Steps::Row().begin_ns, schema::kNoTime);
  EXPECT_EQ(schema::Steps::Row().complete, 0);
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
