// Parts of the exporters that whole-program tests reach only by chance: lanes, order of rows, hostile text.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "export/common/json_writer.h"
#include "export/common/rank_events.h"
#include "export/common/table_stream.h"
#include "export/common/text.h"
#include "export/common/tracks.h"
#include "export/kineto/kineto_comm.h"
#include "trace/file/strings.h"

namespace lockstep::exporters {
namespace {

TEST(Tracks, WhatOverlapsWithoutNestingGoesBeside) {
  std::mt19937 random(7);
  struct Extra {
    std::vector<std::pair<std::int64_t, std::int64_t>> written;  // Begin, end.
    std::vector<std::size_t> open;
  };
  for (int round = 0; round < 50; ++round) {
    std::vector<std::pair<std::int64_t, std::int64_t>> slices;
    for (int i = 0; i < 200; ++i) {
      const auto begin = static_cast<std::int64_t>(random() % 300);
      slices.emplace_back(begin, begin + static_cast<std::int64_t>(random() % 40));
    }
    std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    Tracks<Extra> tracks;
    std::int64_t latest = 0;
    std::size_t closed = 0;
    std::map<Tracks<Extra>::Lane*, std::int64_t> last;
    const auto close = [&](Tracks<Extra>::Lane& lane, std::int64_t ns) {
      EXPECT_EQ(lane.extra.written[lane.extra.open.back()].second, ns);
      EXPECT_GE(ns, last[&lane]) << "time goes back on a lane";
      last[&lane] = ns;
      lane.extra.open.pop_back();
      ++closed;
    };
    for (const auto& [begin, end] : slices) {
      EXPECT_GE(begin, latest);
      latest = begin;
      auto* lane = tracks.Open(EventKind::kRange, {Section::kRanges, 1}, begin, end, close);
      ASSERT_NE(lane, nullptr);
      EXPECT_GE(begin, last[lane]);
      last[lane] = begin;
      for (const std::size_t outer : lane->extra.open) EXPECT_GE(lane->extra.written[outer].second, end);
      lane->extra.open.push_back(lane->extra.written.size());
      lane->extra.written.emplace_back(begin, end);
    }
    tracks.CloseAll(close);
    EXPECT_EQ(closed, slices.size());
  }
}

TEST(Tracks, PartsOfACollectiveStayInItAndOthersDoNot) {
  Tracks<int> tracks;
  const auto close = [](Tracks<int>::Lane&, std::int64_t) {};
  const TrackKey key{Section::kInstances, 1};
  auto* first = tracks.Open(EventKind::kInstance, key, 0, 100, close);
  EXPECT_EQ(tracks.Open(EventKind::kWait, key, 0, 40, close), first);
  EXPECT_EQ(tracks.Open(EventKind::kTransfer, key, 40, 100, close), first);
  auto* second = tracks.Open(EventKind::kInstance, key, 10, 90, close);  // Would nest, but is another one.
  EXPECT_NE(second, first);
  EXPECT_EQ(tracks.Open(EventKind::kWait, key, 10, 20, close), second);
  EXPECT_EQ(tracks.Open(EventKind::kInstance, key, 100, 110, close), first);
}

TEST(Tracks, TooManyBesideEachOther) {
  Tracks<int> tracks;
  const auto close = [](Tracks<int>::Lane&, std::int64_t) {};
  int placed = 0;
  for (int i = 0; i < 1000; ++i)
    placed += tracks.Open(EventKind::kRange, {Section::kRanges, 1}, i, 2000 + i, close) != nullptr;
  EXPECT_EQ(placed, 256);
}

// Begins as the stream gives them.
std::vector<std::int64_t> Order(const std::vector<std::int64_t>& begins, bool whole) {
  schema::RankTables tables;
  for (const std::int64_t begin : begins) tables.api.Append({.begin_ns = begin, .duration_ns = 1});
  const auto reader = ingest::ReadFromMemory(tables);
  const auto where = [](const schema::Api::Row& row) { return Place{row.begin_ns, row.begin_ns + row.duration_ns}; };
  TableStream<schema::Api, decltype(where)> stream(*reader, EventKind::kApi, whole, where);
  std::vector<std::int64_t> given;
  while (stream.Ready()) {
    Event event{};
    stream.Fill(event);
    EXPECT_EQ(begins[event.number], stream.place.begin_ns);
    given.push_back(stream.place.begin_ns);
    stream.Pop();
  }
  return given;
}

TEST(TableStream, RowsOfNeighbouringPiecesAreSorted) {
  std::mt19937 random(3);
  std::vector<std::int64_t> begins;
  for (std::int64_t i = 0; i < 400'000; ++i) begins.push_back(i * 10 + static_cast<std::int64_t>(random() % 300'000));
  std::vector<std::int64_t> sorted = begins;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(Order(begins, false), sorted);
}

TEST(TableStream, AnyOrderWhereTheWholeTableIsHeld) {
  std::vector<std::int64_t> begins;
  for (std::int64_t i = 0; i < 200'000; ++i) begins.push_back(200'000 - i);
  std::vector<std::int64_t> sorted(begins.rbegin(), begins.rend());
  EXPECT_EQ(Order(begins, true), sorted);
}

TEST(TableStream, EmptyAndWithoutTimes) {
  EXPECT_TRUE(Order({}, false).empty());
  schema::RankTables tables;
  tables.api.Append({.begin_ns = schema::kNoTime});
  tables.api.Append({.begin_ns = 5});
  const auto reader = ingest::ReadFromMemory(tables);
  const auto where = [](const schema::Api::Row& row) { return Place{row.begin_ns, row.begin_ns}; };
  TableStream<schema::Api, decltype(where)> stream(*reader, EventKind::kApi, false, where);
  ASSERT_TRUE(stream.Ready());
  EXPECT_EQ(stream.place.begin_ns, 5);
  stream.Pop();
  EXPECT_FALSE(stream.Ready());
}

TEST(Bins, EachBeginsWhereTheOneBeforeEnds) {
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    EXPECT_EQ(BinOf(static_cast<std::uint64_t>(FirstOf(bin))), bin);
    if (bin == 0) continue;
    EXPECT_EQ(BinOf(static_cast<std::uint64_t>(FirstOf(bin) - 1)), bin - 1);
  }
  EXPECT_LT(BinOf(INT64_MAX), kBins);
}

TEST(Text, OnlyUtf8IsLeft) {
  std::string scratch;
  for (const std::string_view good : {"", "plain",
                                      "gr\xc3\xb6\xc3\x9f"
                                      "e",
                                      "\xe2\x98\x83", "\xf0\x9f\x98\x80", "\xed\x9f\xbf"})
    EXPECT_EQ(ValidUtf8(good, scratch), good);
  EXPECT_EQ(ValidUtf8("a\xff"
                      "b",
                      scratch),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(ValidUtf8("\xc3", scratch), "\xef\xbf\xbd");                                  // Cut.
  EXPECT_EQ(ValidUtf8("\xc0\xaf", scratch), "\xef\xbf\xbd\xef\xbf\xbd");                  // Overlong.
  EXPECT_EQ(ValidUtf8("\xed\xa0\x80", scratch), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // A surrogate.
  EXPECT_EQ(ValidUtf8("\xf4\x90\x80\x80", scratch), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Text, Escapes) {
  std::string out;
  AppendJsonText(out, std::string_view("a\"\\\n\x01\0z", 7));
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\u0001\\u0000z\"");
  out.clear();
  AppendCsvText(out, "a,\"b\"\nc");
  EXPECT_EQ(out, "\"a,\"\"b\"\"\nc\"");
  out.clear();
  for (const std::int64_t ns : {0ll, 1ll, 999ll, 1000ll, 1234567ll, -1ll, -1500ll}) {
    AppendMicroseconds(out, ns);
    out += ' ';
  }
  EXPECT_EQ(out, "0.000 0.001 0.999 1.000 1234.567 -0.001 -1.500 ");
}

TEST(JsonWriter, SetsCommasAndLineBreaks) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject("\n  ");
  json.Int("a", -1);
  json.Key("none");
  json.BeginArray("\n    ");
  json.EndArray("\n  ");
  json.Key("list");
  json.BeginArray("\n    ");
  for (const std::string_view text : {"x", "\"y"}) {
    json.BeginObject();
    json.Text("text", text);
    json.Microseconds("ts", 1500);
    json.EndObject();
  }
  json.EndArray();
  json.TextKey("\"k");
  json.BeginArray();
  json.Unsigned(1);
  json.Word("w");
  json.EndArray();
  json.EndObject("\n");
  EXPECT_EQ(out,
            "{\n  \"a\": -1,\n  \"none\": [\n  ],\n  \"list\": [\n    {\"text\": \"x\", \"ts\": 1.500},"
            "\n    {\"text\": \"\\\"y\", \"ts\": 1.500}],\n  \"\\\"k\": [1, \"w\"]\n}");
}

TEST(JsonWriter, TextMayBeEmptiedBetweenCalls) {
  std::string out, all;
  JsonWriter json(out);
  json.BeginArray();
  for (int i = 0; i < 3; ++i) {
    json.Int(i);
    all += std::exchange(out, {});
  }
  json.EndArray();
  EXPECT_EQ(all + out, "[0, 1, 2]");
}

TEST(Kineto, NamesOfBackendsAreEscaped) {
  schema::RankTables head;
  trace::StringInterner strings(head.strings, head.string_bytes);
  head.meta.Append({.key = strings.Intern("fact.torch_backend"), .value = strings.Intern("name=a\"b")});
  head.comms.Append({.global_id = 1, .size = 1, .name = strings.Intern("g")});
  std::string out;
  JsonWriter json(out);
  WriteGroupList(json, "\n", head, {});
  EXPECT_NE(out.find("\"backend_config\": \"cpu:a\\\"b\""), std::string::npos) << out;
}

}  // namespace
}  // namespace lockstep::exporters
