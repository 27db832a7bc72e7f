#include "ingest/flight_recorder/dump.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ingest/flight_recorder/combine.h"

namespace lockstep::flight_recorder {
namespace {

using hang::OperationState;

std::string EntryText(int record, const std::string& name, int collective, int message, const std::string& state,
                      const std::string& group = "0", const std::string& more = "") {
  return R"({"record_id":)" + std::to_string(record) + R"(,"pg_id":0,"process_group":[")" + group +
         R"(","default_pg"],"collective_seq_id":)" + std::to_string(collective) + R"(,"p2p_seq_id":)" +
         std::to_string(message) + R"(,"profiling_name":")" + name + R"(","state":")" + state +
         R"(","input_sizes":[[2,3]],"output_sizes":[[2,3]],"input_dtypes":["Float"],"is_p2p":)" +
         (message > 0 ? "true" : "false") + more + "}";
}

std::string DumpText(const std::vector<std::string>& entries, const std::string& status = "", int ranks = 2) {
  std::string text = R"({"version":"2.10","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[)";
  for (int rank = 0; rank < ranks; ++rank) text += (rank > 0 ? ", " : "") + std::to_string(rank);
  text += R"(]"}},"pg_status":{)" + status + R"(},"entries":[)";
  for (std::size_t i = 0; i < entries.size(); ++i) text += (i > 0 ? "," : "") + entries[i];
  return text + "]}";
}

Dump DumpOf(const std::string& text) {
  Result<Dump> dump = ReadDump(text);
  EXPECT_TRUE(dump.ok()) << (dump.ok() ? "" : dump.error().what);
  return dump.ok() ? std::move(dump).value() : Dump();
}

hang::Progress ProgressOf(const std::vector<std::string>& texts) {
  std::vector<RankDump> dumps;
  for (const std::string& text : texts) dumps.push_back({static_cast<std::int32_t>(dumps.size()), 0, DumpOf(text)});
  std::vector<std::string> notes;
  return Combine(dumps, notes);
}

TEST(FlightRecorder, KindsHaveOneName) {
  std::string backend;
  for (const auto& [name, kind] :
       {std::pair("nccl:_all_gather_base", "all_gather"), std::pair("gloo:all_reduce", "all_reduce"),
        std::pair("xccl:allreduce", "all_reduce"), std::pair("nccl:_broadcast_oop", "broadcast"),
        std::pair("nccl:send 0->1", "send"), std::pair("ucc:all_to_all_single", "all_to_all"),
        std::pair("nccl:all_reduce_barrier", "barrier"), std::pair("reduce_scatter", "reduce_scatter")})
    EXPECT_EQ(KindOf(name, &backend), kind) << name;
}

TEST(FlightRecorder, SaysWhoseCallsItShows) {
  using Names = std::vector<std::string>;
  const std::string nccl = DumpText({EntryText(0, "nccl:all_reduce", 1, 0, "completed")}), none = DumpText({});
  EXPECT_EQ(ProgressOf({nccl, nccl}).ranks[1].shows, Names{"NCCL"});
  EXPECT_EQ(ProgressOf({nccl, DumpText({EntryText(0, "gloo:all_reduce", 1, 0, "completed")})}).ranks[0].shows,
            (Names{"NCCL", "gloo"}));
  // An empty dump shows nothing.
  EXPECT_EQ(ProgressOf({nccl, none}).ranks[1].shows, Names{});
  EXPECT_EQ(ProgressOf({nccl, none}).ranks[1].state, hang::RankState::kMissing);
}

TEST(FlightRecorder, AnEntry) {
  const Dump dump = DumpOf(
      DumpText({EntryText(4, "nccl:all_reduce", 9, 0, "started", "0",
                          R"(,"time_created_ns":50,"frames":[{"filename":"/x/site-packages/torch/distributed/c.py",
                                           "line":1,"name":"f"},{"filename":"/me/train.py","line":88,"name":"step"}])")}));
  ASSERT_EQ(dump.entries.size(), 1u);
  const Entry& entry = dump.entries[0];
  EXPECT_EQ(entry.call.kind, "all_reduce");
  EXPECT_EQ(entry.call.state, OperationState::kStarted);
  EXPECT_EQ(entry.call.elements_in, 6);
  EXPECT_EQ(entry.call.bytes, 24);
  EXPECT_EQ(entry.call.site, "train.py:88 step");
  EXPECT_EQ(entry.collective, 9);
  EXPECT_EQ(dump.groups.at(0).ranks, (std::vector<std::int32_t>{0, 1}));
}

TEST(FlightRecorder, WildNumbersAreUnknown) {
  std::string entry = EntryText(0, "nccl:all_reduce", 1, 0, "scheduled");
  entry.replace(entry.find("[[2,3]]"), 7, "[[9000000000000000000,9]]");
  EXPECT_EQ(DumpOf(DumpText({entry})).entries.at(0).call.elements_in, hang::kNotKnown);
}

TEST(FlightRecorder, RetiredMeansDoneWithGlooOnly) {
  const std::string retired = R"(,"retired":true)";
  EXPECT_EQ(
      DumpOf(DumpText({EntryText(0, "gloo:all_reduce", 1, 0, "scheduled", "0", retired)})).entries.at(0).call.state,
      OperationState::kCompleted);
  EXPECT_EQ(
      DumpOf(DumpText({EntryText(0, "nccl:all_reduce", 1, 0, "scheduled", "0", retired)})).entries.at(0).call.state,
      OperationState::kScheduled);
}

TEST(FlightRecorder, WhatIsNoDump) {
  for (const char* text : {"", "{}", "[]", "{\"entries\":3}", "{\"traceEvents\":[]}", "{\"entries\":[", "hello"})
    EXPECT_FALSE(ReadDump(text).ok()) << text;
  std::string deep(100'000, '[');
  EXPECT_FALSE(ReadDump("{\"entries\":" + deep).ok());
}

// Entries of a batch never change their state; the one at its end does.
TEST(FlightRecorder, ABatchHasTheStateOfItsEnd) {
  const auto batch = [](const std::string& state) {
    return DumpText({EntryText(0, "nccl:send 0->1", 0, 1, "scheduled"),
                     EntryText(1, "nccl:recv 0<-1", 0, 1, "scheduled"), EntryText(2, "nccl:coalesced", 0, 1, state)});
  };
  const hang::Progress done = ProgressOf({batch("completed")});
  for (const hang::Operation& message : done.groups.at(0).members.at(0).messages)
    EXPECT_EQ(message.state, OperationState::kCompleted);
  const hang::Progress open = ProgressOf({batch("scheduled")});
  ASSERT_EQ(open.groups.at(0).members.at(0).messages.size(), 2u);
  EXPECT_EQ(open.groups[0].members[0].messages[0].state, OperationState::kScheduled);
  EXPECT_EQ(open.groups[0].members[0].messages[0].peer, 1);
}

TEST(FlightRecorder, ABatchOfCollectivesIsOneCall) {
  const hang::Progress progress = ProgressOf({DumpText({EntryText(0, "nccl:_all_gather_base", 3, 0, "scheduled"),
                                                        EntryText(1, "nccl:_all_gather_base", 3, 0, "scheduled"),
                                                        EntryText(2, "nccl:coalesced", 3, 0, "completed")})});
  const hang::Member& member = progress.groups.at(0).members.at(0);
  ASSERT_EQ(member.calls.size(), 1u);
  EXPECT_EQ(member.calls[0].elements_in, 12);
  EXPECT_EQ(member.completed, 3);
}

// PyTorch counts messages and collectives of a group in the same place, whichever came last.
TEST(FlightRecorder, AStatusThatCountsMessagesIsNotBelieved) {
  const std::string status =
      R"("0":{"last_enqueued_collective":"70","last_started_collective":"-1","last_completed_collective":"60"})";
  const hang::Progress progress = ProgressOf({DumpText({EntryText(8, "nccl:all_reduce", 9, 0, "completed"),
                                                        EntryText(9, "nccl:send 0->1", 9, 70, "scheduled")},
                                                       status),
                                              DumpText({EntryText(8, "nccl:all_reduce", 9, 0, "completed")}, status)});
  EXPECT_EQ(progress.groups.at(0).members.at(0).entered, 9);
  EXPECT_EQ(progress.groups.at(0).members.at(1).entered, 9);
}

TEST(FlightRecorder, AStatusFillsWhatTheRingHasLost) {
  const std::string status =
      R"("0":{"last_enqueued_collective":12,"last_started_collective":-1,"last_completed_collective":10})";
  const hang::Progress progress =
      ProgressOf({DumpText({EntryText(500, "nccl:all_reduce", 12, 0, "scheduled")}, status),
                  DumpText({EntryText(500, "nccl:all_reduce", 12, 0, "scheduled")}, status)});
  const hang::Member& member = progress.groups.at(0).members.at(0);
  EXPECT_EQ(member.entered, 12);
  EXPECT_GE(member.completed, 10);
  EXPECT_LE(member.completed, 11);
}

TEST(FlightRecorder, AnEmptyDumpSaysNothing) {
  const hang::Progress progress =
      ProgressOf({DumpText({}), DumpText({EntryText(0, "nccl:all_reduce", 1, 0, "scheduled")})});
  EXPECT_EQ(progress.ranks.at(0).state, hang::RankState::kMissing);
  EXPECT_FALSE(progress.groups.at(0).members.at(0).known);
}

TEST(FlightRecorder, ARankWithoutACallHasEnteredNone) {
  // Its ring holds its first call, so it made no other.
  const hang::Progress progress = ProgressOf({DumpText({EntryText(0, "nccl:all_reduce", 1, 0, "scheduled", "0"),
                                                        EntryText(1, "nccl:all_reduce", 1, 0, "scheduled", "7")}),
                                              DumpText({EntryText(0, "nccl:all_reduce", 1, 0, "scheduled", "0")})});
  ASSERT_EQ(progress.groups.size(), 2u);
  EXPECT_EQ(progress.groups[1].name, "7");
}

TEST(FlightRecorder, OneNameAndOtherRanksAreTwoGroups) {
  hang::Progress progress = ProgressOf({DumpText({}, "", 2), DumpText({}, "", 3)});
  EXPECT_EQ(progress.groups.size(), 2u);
}

}  // namespace
}  // namespace lockstep::flight_recorder
