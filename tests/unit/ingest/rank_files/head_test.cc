// What a merge keeps of a rank file: every column of the tables that it keeps, but for those that are left out by name.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "ingest/rank_files/rank_source.h"
#include "trace/file/table_file.h"

namespace lockstep::ingest {
namespace {

constexpr std::size_t kRows = 3;

TEST(RankFileHead, HasEachColumnThatIsNotLeftOutByName) {
  const std::set<std::string> left_out = {
      "collectives/count",     "collectives/call",     "collectives/reduction", "collectives/algorithm",
      "collectives/protocol",  "collectives/channels", "collectives/buffer",    "p2p/call",
      "p2p/last_incomplete_ns"};
  schema::RankTables written;
  written.ForEachTable([](auto& table) { table.Resize(kRows); });
  const std::string path =
      (std::filesystem::temp_directory_path() / ("lockstep-head-" + std::to_string(getpid()) + ".h5")).string();
  ASSERT_TRUE(trace::WriteRankFile(path, written).ok());
  const auto sources = OpenRankSources(path);
  ASSERT_TRUE(sources.ok()) << sources.error().what;
  const ReadTables head = sources.value().front()->ReadHead();
  std::filesystem::remove(path);
  EXPECT_TRUE(head.damaged.empty());
  std::size_t tables = 0, missing = 0;
  head.tables.ForEachTable([&](const auto& table) {
    const bool kept = table.kInfo.Is(schema::kHead) || table.kInfo.Is(schema::kHeadInPart);
    tables += kept;
    table.ForEachColumn([&](const schema::ColumnInfo& column, const auto& values) {
      const std::string name = std::string(table.kInfo.name) + "/" + std::string(column.name);
      const bool is_left_out = left_out.contains(name);
      missing += is_left_out && values.empty();
      EXPECT_EQ(values.size(), kept && !is_left_out ? kRows : 0) << name;
    });
  });
  EXPECT_GT(tables, 10u);
  EXPECT_EQ(missing, left_out.size());  // The names are those of columns.
}

}  // namespace
}  // namespace lockstep::ingest
