// Columns that a file lacks, for each column there is.

#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "trace/file/schema_text.h"
#include "trace/file/table_file.h"

namespace lockstep::trace {
namespace {

template <typename Table>
void FillRows(Table& table) {
  table.ForEachColumn([](const schema::ColumnInfo&, auto& values) { values.assign(5, 7); });
}

// Takes the columns out whose place in their table is even or odd.
template <typename Tables>
void TakeOut(const std::string& path, std::size_t parity) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  Tables().ForEachTable([&](const auto& table) {
    for (std::size_t c = 0; c < table.kInfo.column_count; ++c) {
      const std::string name = std::string(table.kInfo.name) + "/" + std::string(table.kColumns[c].name);
      if (c % 2 != parity) continue;
      EXPECT_GE(H5Ldelete(file, name.c_str(), H5P_DEFAULT), 0) << name;
    }
  });
  H5Fclose(file);
}

template <typename Tables>
void CheckEveryColumn(Status (*write)(const std::string&, const Tables&, RunParallel)) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("lockstep-missing-" + std::to_string(getpid()) + ".h5")).string();
  for (const std::size_t parity : {0, 1}) {
    Tables tables;
    tables.ForEachTable([](auto& table) { FillRows(table); });
    ASSERT_TRUE(write(path, tables, {}).ok());
    TakeOut<Tables>(path, parity);
    const auto file = TableFile::Open(path);
    ASSERT_TRUE(file.ok());
    std::size_t taken = 0;
    tables.ForEachTable([&](const auto& table) {
      using Table = std::remove_cvref_t<decltype(table)>;
      // Nothing is left of a table whose only column was taken.
      if (Table::kColumnCount == 1 && parity == 0) return;
      auto read = file.value().template Read<Table>();
      ASSERT_TRUE(read.ok()) << read.error().what;
      std::size_t place = 0;
      read.value().ForEachColumn([&](const schema::ColumnInfo& column, const auto& values) {
        using T = typename std::remove_cvref_t<decltype(values)>::value_type;
        const bool there = place++ % 2 != parity;
        taken += !there;
        ASSERT_EQ(values.size(), 5u) << Table::kInfo.name << "/" << column.name;
        for (const T value : values)
          EXPECT_EQ(value, there ? T{7} : static_cast<T>(column.unknown())) << Table::kInfo.name << "/" << column.name;
      });
    });
    EXPECT_EQ(file.value().MissingColumns().size(), taken);
  }
  std::filesystem::remove(path);
}

TEST(MissingColumn, ReadsAsUnknownInRankFiles) { CheckEveryColumn<schema::RankTables>(WriteRankFile); }
TEST(MissingColumn, ReadsAsUnknownInTimelines) { CheckEveryColumn<schema::TimelineTables>(WriteTimelineFile); }

// What the words say of it is what is filled in, and the other way round.
TEST(MissingColumn, DescriptionsNameTheUnknownValue) {
  std::size_t with = 0;
  const auto check = [&](const auto& infos) {
    for (const schema::TableInfo& table : infos)
      for (std::size_t c = 0; c < table.column_count; ++c) {
        const schema::ColumnInfo& column = table.columns[c];
        const std::string text = DescriptionOf(column);
        EXPECT_FALSE(text.empty()) << table.name << "/" << column.name;
        if (column.role == schema::Role::kEnum || column.sentinel.kind == schema::Sentinel::kAbsent) continue;
        ++with;
        const std::int64_t unknown = column.unknown();
        const std::string value = unknown == schema::kNoTime ? "kNoTime"
                                  : unknown == schema::kNone && column.type == schema::ColumnType::kU32
                                      ? "kNone"
                                      : std::to_string(unknown);
        EXPECT_NE(text.find("; " + value + " "), std::string::npos) << table.name << "/" << column.name << ": " << text;
      }
  };
  check(schema::kRankTableInfos);
  check(schema::kTimelineTableInfos);
  EXPECT_GT(with, 100u);
}

}  // namespace
}  // namespace lockstep::trace
