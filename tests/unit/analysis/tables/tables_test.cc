// What every table shares: windows, pooling, cuts, notes, the three renderings.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/tables/engine/cells.h"
#include "hand_made.h"

namespace lockstep::tables {
namespace {

using test::At;
using test::FindRow;
using test::HandMade;
using test::Make;
using test::TimelineOf;

Cell S(std::string_view text) { return std::string(text); }
Cell I(std::int64_t value) { return value; }

TEST(Tables, UnknownNamesListAll) {
  const HandMade rank;
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 100}});
  const auto table = MakeTable("kernel", timeline, {});
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::kUsage);
  for (const TableKind& kind : TableKinds()) EXPECT_NE(table.error().hint.find(kind.name), std::string::npos);
}

TEST(Tables, UnknownRanksAreUsage) {
  const HandMade rank;
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 100}});
  TableOptions options;
  options.ranks = {0, 3};
  const auto table =
      MakeTable("kernels", timeline, options, [&](std::int32_t) -> Result<schema::RankTables> { return rank.tables; });
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().code, ErrorCode::kUsage);
  EXPECT_NE(table.error().what.find("rank 3"), std::string::npos);
}

TEST(Tables, EveryTableBearsARankWithoutAnything) {
  const HandMade a, b;
  merge::Timeline timeline = TimelineOf({&a, &b}, {{0, 100}, {0, 100}});
  for (const TableKind& kind : TableKinds()) {
    const Table table = Make(kind.name, timeline, {&a, &b});
    const std::vector<TableColumn>& columns = kind.columns->list();
    EXPECT_EQ(columns[0].name, "rank") << kind.name;
    for (const auto& row : table.rows) EXPECT_EQ(row.size(), columns.size()) << kind.name;
    EXPECT_FALSE(table.rows.empty() && table.notes.empty()) << kind.name << " says nothing at all";
    EXPECT_FALSE(RenderTableText(table, false, 80).empty());
    EXPECT_TRUE(nlohmann::json::accept(RenderTableJson(table))) << kind.name;
  }
}

TEST(Tables, UnreadableRanksAreSaidAndTheOthersShown) {
  HandMade rank;
  rank.Kernel("k", 10, 30);
  const merge::Timeline timeline = TimelineOf({&rank, &rank}, {{0, 100}, {0, 100}});
  const auto table = MakeTable("kernels", timeline, {}, [&](std::int32_t r) -> Result<schema::RankTables> {
    if (r == 1) return Error{ErrorCode::kIo, "no such device", "", ""};
    return rank.tables;
  });
  ASSERT_TRUE(table.ok());
  EXPECT_TRUE(table.value().incomplete);
  EXPECT_EQ(At(table.value(), 0, "total_ns"), I(20));
  ASSERT_FALSE(table.value().notes.empty());
  EXPECT_EQ(table.value().notes[0], "rank 1: not read: no such device");
}

TEST(Tables, StepsNarrowByLaunchOnTheHostAndByStartOnTheGpu) {
  HandMade rank;
  rank.Step(5, 100, 200);
  rank.Step(6, 200, 300);
  rank.Step(7, 300, 400);
  rank.Op(0, "aten::a", 150, 160);
  rank.Op(0, "aten::a", 250, 260);
  rank.Kernel("k", 199, 230, 0, 155);
  rank.Kernel("k", 201, 204, 0, 255);
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 1000}});
  TableOptions options;
  options.first_step = options.last_step = 6;
  Table table = Make("kernels", timeline, {&rank}, options);
  EXPECT_EQ(At(table, 0, "count"), I(1));
  EXPECT_EQ(At(table, 0, "total_ns"), I(3));
  table = Make("ops", timeline, {&rank}, options);
  EXPECT_EQ(At(table, 0, "calls"), I(1));
  EXPECT_EQ(At(table, 0, "gpu_total_ns"), I(3));

  options.first_step = options.last_step = 9;
  table = Make("kernels", timeline, {&rank}, options);
  EXPECT_TRUE(table.rows.empty());
  ASSERT_EQ(table.notes.size(), 1u);
  EXPECT_EQ(table.notes[0], "rank 0: has none of the steps asked for");
}

TEST(Tables, PooledRowsComeFirstAndRanksOnlyWhenAskedFor) {
  HandMade a, b;
  a.Kernel("k", 0, 10);
  b.Kernel("k", 0, 30);
  b.Kernel("other", 40, 41);
  const merge::Timeline timeline = TimelineOf({&a, &b}, {{0, 100}, {0, 100}});
  Table table = Make("kernels", timeline, {&a, &b});
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0][0], S("all"));

  TableOptions every;
  every.every_rank = true;
  table = Make("kernels", timeline, {&a, &b}, every);
  ASSERT_EQ(table.rows.size(), 5u);
  EXPECT_EQ(table.rows[2][0], I(0));
  EXPECT_EQ(table.rows[3][0], I(1));

  TableOptions one;
  one.ranks = {1};
  one.top = 1;
  table = Make("kernels", timeline, {&a, &b}, one);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0][0], I(1));
  EXPECT_EQ(table.notes.back(), "1 row more: --top 0 shows all");
}

TEST(Tables, SortedByAnyColumnBeforeTheyAreCut) {
  HandMade a, b;
  a.Kernel("few", 0, 50);
  for (int i = 0; i < 3; ++i) a.Kernel("many", 60 + i, 61 + i), b.Kernel("many", 60 + i, 61 + i);
  b.Kernel("few", 0, 40);
  b.Kernel("middle", 50, 52);
  const merge::Timeline timeline = TimelineOf({&a, &b}, {{0, 100}, {0, 100}});
  TableOptions options;
  options.top = 2;
  EXPECT_EQ(At(Make("kernels", timeline, {&a, &b}, options), 0, "count"), I(2));  // By time.
  options.sort_by = "count";
  Table table = Make("kernels", timeline, {&a, &b}, options);
  EXPECT_EQ(At(table, 0, "count"), I(6));
  EXPECT_EQ(At(table, 1, "count"), I(2));
  options.sort_by = "kernel";
  options.top = 0;
  table = Make("kernels", timeline, {&a, &b}, options);
  EXPECT_EQ(At(table, 0, "kernel"), S("few"));
  EXPECT_EQ(At(table, 2, "kernel"), S("middle"));
  options.sort_by = "counts";
  const auto wrong =
      MakeTable("kernels", timeline, options, [&](std::int32_t) -> Result<schema::RankTables> { return a.tables; });
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::kUsage);
  EXPECT_NE(wrong.error().hint.find("count"), std::string::npos);
}

// A list's rows are its first by its own order: by another one they are the first of all.
TEST(Tables, AListIsSortedBeforeItIsCut) {
  HandMade rank;
  rank.Kernel("k", 0, 10);
  for (std::int64_t i = 0; i < 5; ++i) rank.Kernel("k", 100 + 20 * i + i, 115 + 20 * i);
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 300}});
  TableOptions options;
  const Table whole = Make("idle-gaps", timeline, {&rank}, options);
  ASSERT_GT(whole.rows.size(), 3u);
  options.top = 1;
  options.sort_by = "at_ns";
  const Table last = Make("idle-gaps", timeline, {&rank}, options);
  ASSERT_EQ(last.rows.size(), 1u);
  std::int64_t latest = 0;
  for (const TableRow& row : whole.rows) latest = std::max(latest, IntOf(row[ColumnOf(whole, "at_ns")]));
  EXPECT_EQ(At(last, 0, "at_ns"), I(latest));
}

TEST(Tables, JobsNeverChangeTheResult) {
  std::vector<HandMade> ranks(40);
  std::vector<const HandMade*> pointers;
  std::vector<Interval> windows;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (int k = 0; k < 30; ++k) {
      const auto at = static_cast<std::int64_t>(k * 1000 + static_cast<int>(r * r) % 97);
      ranks[r].Op(0, "op" + std::to_string(k % 3), at, at + 50);
      ranks[r].Kernel("kernel" + std::to_string(k % 7), at + 100, at + 100 + static_cast<std::int64_t>(1 + r * 13 % 11),
                      0, at + 5);
    }
    pointers.push_back(&ranks[r]);
    windows.push_back({0, 100'000});
  }
  const merge::Timeline timeline = TimelineOf(pointers, windows);
  for (const TableKind& kind : TableKinds()) {
    std::string first;
    for (const unsigned jobs : {1u, 2u, 7u}) {
      TableOptions options;
      options.jobs = jobs;
      options.every_rank = true;
      const std::string json = RenderTableJson(Make(kind.name, timeline, pointers, options));
      if (first.empty()) first = json;
      EXPECT_EQ(json, first) << kind.name;
    }
  }
}

Table Sample() {
  Table table{"sample",
              "A sample",
              {{"rank", ColumnKind::kId, "rank"},
               {"name", ColumnKind::kText, "name"},
               {"n", ColumnKind::kCount, "count"},
               {"total_ns", ColumnKind::kNs, "time"},
               {"size_bytes", ColumnKind::kBytes, "bytes"},
               {"share", ColumnKind::kFraction, "share"},
               {"speed_bytes_per_s", ColumnKind::kNumber, "speed"},
               {"unknown", ColumnKind::kCount, "nothing"}},
              {{I(3), S("plain"), I(1234567), I(1500), I(2000), 0.25, 2.5e9, Cell()},
               {S("all"), S("a \"b\", c\nd \xc3\xa9 \xff"), I(-1), I(-20), I(-2000), 0.0, Cell(), Cell()}},
              {"one note"},
              {}};
  return table;
}

TEST(Tables, CsvQuotesWhatNeedsIt) {
  EXPECT_EQ(RenderTableCsv(Sample()),
            "rank,name,n,total_ns,size_bytes,share,speed_bytes_per_s,unknown\n"
            "3,plain,1234567,1500,2000,0.25,2500000000,\n"
            "all,\"a \"\"b\"\", c\\x0ad \xc3\xa9 \\xff\",-1,-20,-2000,0,,\n");
}

TEST(Tables, JsonHasPlainValuesAndNull) {
  const auto json = nlohmann::json::parse(RenderTableJson(Sample()));
  EXPECT_EQ(json["schema"], "lockstep.table/1");
  EXPECT_EQ(json["columns"][3]["name"], "total_ns");
  EXPECT_EQ(json["columns"][3]["kind"], "ns");
  EXPECT_EQ(json["rows"][0][2], 1234567);
  EXPECT_EQ(json["rows"][0][5], 0.25);
  EXPECT_TRUE(json["rows"][0][7].is_null());
  EXPECT_EQ(json["rows"][1][1], "a \"b\", c\nd \xc3\xa9 \xef\xbf\xbd");
  EXPECT_EQ(json["notes"][0], "one note");
}

TEST(Tables, TextFitsAndHidesWhatIsUnknown) {
  const std::string text = RenderTableText(Sample(), false, 80);
  EXPECT_NE(text.find("1 234 567"), std::string::npos) << text;
  EXPECT_NE(text.find("1.5 us"), std::string::npos) << text;
  EXPECT_NE(text.find("2.5 GB/s"), std::string::npos) << text;
  EXPECT_EQ(text.find("unknown"), std::string::npos) << text;
  EXPECT_EQ(text.find("\x1b"), std::string::npos);
  Table wide = Sample();
  wide.rows[0][1] = std::string(500, 'x');
  for (std::size_t at = 0, end = 0; (end = RenderTableText(wide, false, 100).find('\n', at)) != std::string::npos;
       at = end + 1)
    EXPECT_LE(end - at, 106u);  // Some of it is UTF-8.
}

TEST(Tables, TextShowsDetailsWhereThereIsRoomAndNamesTheRest) {
  Table table{"t",
              "T",
              {{"rank", ColumnKind::kId, ""},
               {"name", ColumnKind::kText, ""},
               {"zeros", ColumnKind::kCount, ""},
               {"much_detail", ColumnKind::kCount, "", Pool::kNone, true},
               {"total_ns", ColumnKind::kNs, ""}},
              {{I(0), S("some name"), I(0), I(7), I(3)}},
              {},
              {}};
  const std::string wide = RenderTableText(table, false, 100), narrow = RenderTableText(table, false, 30);
  EXPECT_NE(wide.find("much detail"), std::string::npos) << wide;
  EXPECT_NE(wide.find("zeros"), std::string::npos) << wide;
  EXPECT_EQ(narrow.find("much detail"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("rank"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("zeros,"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("much_detail"), std::string::npos) << narrow;
}

TEST(Tables, TextKeepsTheMeasureAtEveryWidth) {
  Table table{
      "t",
      "T",
      {{"rank", ColumnKind::kId, ""},
       {"name", ColumnKind::kText, "", Pool::kKey},
       {"size_bytes", ColumnKind::kBytes, "", Pool::kKey},
       {"metric", ColumnKind::kText, "", Pool::kKey},
       {"n", ColumnKind::kCount, "", Pool::kSum},
       {"total_ns", ColumnKind::kNs, "", Pool::kSum},
       {"mean_ns", ColumnKind::kNs, "", Pool::kNone, true},
       {"max_ns", ColumnKind::kNs, ""}},
      {{I(0), S("a name of some forty letters in one cell"), I(4096), S("launch_delay"), I(7), I(3), I(1), I(2)}},
      {},
      {}};
  const auto heads = [&](std::size_t width) {
    const std::string text = RenderTableText(table, false, width);
    return text.substr(2, text.find('\n', 2) - 2);
  };
  EXPECT_EQ(heads(80).find("max"), heads(80).size() - 3) << heads(80);
  for (const std::size_t width : {30u, 40u, 60u})
    EXPECT_NE(heads(width).find("total"), std::string::npos) << heads(width);
  for (const std::string column : {"max", "mean", "n"}) {
    table.sorted_by = column == "n" ? column : column + "_ns";
    for (const std::size_t width : {30u, 40u, 60u})
      EXPECT_NE(heads(width).find("  " + column), std::string::npos) << heads(width);
  }
}

TEST(TablesDoc, GeneratedPartIsTheRegistry) {
  std::FILE* file = std::fopen(LOCKSTEP_SOURCE_DIR "/docs/tables.md", "r");
  ASSERT_NE(file, nullptr);
  std::string doc;
  for (int c = 0; (c = std::fgetc(file)) != EOF;) doc += static_cast<char>(c);
  std::fclose(file);
  const std::string begin = "<!-- lockstep analyze --table columns: begin -->\n",
                    end = "<!-- lockstep analyze --table columns: end -->\n";
  const std::size_t from = doc.find(begin), to = doc.find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  EXPECT_TRUE(doc.substr(from + begin.size(), to - from - begin.size()) == TablesMarkdown())
      << "docs/tables.md is out of date: replace what is between the markers by the output of lockstep analyze --table "
         "columns";
}

}  // namespace
}  // namespace lockstep::tables
