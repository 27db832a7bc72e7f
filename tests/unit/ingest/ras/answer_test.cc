#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "ingest/ras/json_answer.h"
#include "ingest/ras/text_answer.h"

namespace lockstep::ras {
namespace {

std::vector<Answer> Of(Result<std::vector<Answer>> read) {
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().what);
  return read.ok() ? std::move(read).value() : std::vector<Answer>(1);
}

// As NVIDIA's documentation shows it.
constexpr std::string_view kJson = R"(OK
{
  "nccl_version": "2.29.1",
  "timestamp": "2025-12-19 13:06:53",
  "communicators_count": 1,
  "communicators": [
    {
      "hash": "0x0e94423cfbb2ef4a",
      "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
      "size": 2,
      "ranks_count": 1,
      "missing_ranks_count": 1,
      "ranks": [
        {
          "rank": 0,
          "host": "172.16.64.245",
          "pid": 1524344,
          "cuda_dev": 0,
          "nvml_dev": 3,
          "status": {"init_state": 0, "async_error": 1, "finalize_called": true, "destroy_flag": false, "abort_flag": false},
          "collective_counts": {"Broadcast": 0, "ReduceScatter": 2, "AllReduce": 7, "SendRecv": 9}
        }
      ],
      "missing_ranks": [
        {
          "rank": 1,
          "host": "unknown",
          "pid": -1,
          "cuda_dev": 1,
          "nvml_dev": 1
          "status": {
            "unresponsive": true,
            "considered_dead": false
          }
        }
      ]
    }
  ],
  "ras": {"collection_time_sec": 0.000, "timeouts_count": 0}
}
)";

TEST(RasJson, EverythingOfAnAnswerAndCommasThatAreMissing) {
  const std::vector<Answer> answers = Of(ReadJsonAnswers(kJson));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].told_ns, 1766149613'000000000);  // date -u -d "2025-12-19 13:06:53" +%s
  ASSERT_EQ(answers[0].communicators.size(), 1u);
  const Communicator& communicator = answers[0].communicators[0];
  EXPECT_EQ(communicator.hash, "e94423cfbb2ef4a");
  EXPECT_EQ(communicator.size, 2);
  ASSERT_EQ(communicator.ranks.size(), 2u);
  const CommRank &here = communicator.ranks[0], &missing = communicator.ranks[1];
  EXPECT_EQ(here.process, (Process{"172.16.64.245", 0, 3, 1524344}));
  EXPECT_EQ(here.status, Status::kFinalize);
  EXPECT_EQ(here.error, "unhandled CUDA error");
  EXPECT_EQ(here.counts,
            (std::map<std::string, std::int64_t>{{"broadcast", 0}, {"reduce_scatter", 2}, {"all_reduce", 7}}));
  EXPECT_TRUE(missing.silent);
  EXPECT_FALSE(missing.dead);
  EXPECT_FALSE(missing.process.known());
}

TEST(RasJson, SeveralAndWhatIsCutOff) {
  const std::string two = std::string(kJson) + std::string(kJson);
  EXPECT_EQ(Of(ReadJsonAnswers(two)).size(), 2u);
  const std::vector<Answer> cut = Of(ReadJsonAnswers(two.substr(0, two.size() - 40)));
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_TRUE(cut[0].cut_off);
  for (std::size_t bytes = 0; bytes + 1 < kJson.size(); bytes += 7)
    EXPECT_FALSE(ReadJsonAnswers(kJson.substr(0, bytes)).ok()) << bytes;
}

TEST(RasJson, WhatIsOddIsUnknown) {
  const std::vector<Answer> answers = Of(ReadJsonAnswers(
      R"({"communicators": [{"size": 4000000000000, "ranks": [{"rank": -5}, {"rank": 3, "collective_counts": {"AllReduce": -1}},
         {"rank": 3}, 7, {"rank": 99999999999}], "missing_ranks": {}}, 5], "timestamp": "2025-13-40"})"));
  ASSERT_EQ(answers[0].communicators.size(), 2u);
  const Communicator& odd = answers[0].communicators[0];
  ASSERT_EQ(odd.ranks.size(), 1u);
  EXPECT_EQ(odd.ranks[0].rank, 3);
  EXPECT_TRUE(odd.ranks[0].counts.empty());
  EXPECT_LE(odd.size, kMostRanks);
  EXPECT_EQ(answers[0].told_ns, kNotKnown);
  for (const char* time : {"4026-01-01 00:00:00", "2026-01-01 9999:00:00", "2026-01-32 00:00:00", "2026-01-01", ""})
    EXPECT_EQ(Of(ReadJsonAnswers(R"({"communicators": [], "timestamp": ")" + std::string(time) + "\"}"))[0].told_ns,
              kNotKnown)
        << time;
  EXPECT_FALSE(ReadJsonAnswers(R"({"traceEvents": []})").ok());
  EXPECT_FALSE(ReadJsonAnswers("[]").ok());
}

TEST(RasNames, KindsAndHashes) {
  EXPECT_EQ(KindOf("ReduceScatter"), "reduce_scatter");
  EXPECT_EQ(KindOf("AlltoAll"), "all_to_all");
  EXPECT_EQ(PlainHash("0x00ab"), "ab");
  EXPECT_EQ(PlainHash("00ab"), "ab");
  EXPECT_EQ(PlainHash(""), "");
  EXPECT_EQ(PlainHash("0x0"), "");
}

std::string Text(const std::string& table, const std::string& errors, const std::string& warnings) {
  return "NCCL version 2.28.3 compiled with CUDA 13.0\n\nJob summary\n===========\n\n"
         "  Nodes  Processes         GPUs  Processes     GPUs\n"
         "(total)   per node  per process    (total)  (total)\n"
         "      4          8            1         32       32\n\n"
         "Communicators... (0.00s)\n=============\n\n"
         "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
         "    #  in group  per comm  per node  per comm  in group\n" +
         table + "\nErrors\n======\n\n" + errors + "Warnings\n========\n\n" + warnings;
}

const std::string kTable = "    0         1         4         8        32        32   RUNNING  MISMATCH\n";

// As the documentation shows it, of NCCL before 2.26.
TEST(RasText, WhoIsNotNamedFollowsFromTheNumber) {
  const std::vector<Answer> answers = Of(ReadTextAnswers(
      Text(kTable, "",
           "#0-0 (27a079b828ff1a75) MISMATCH\n  Communicator ranks have different collective operation counts\n"
           "  26 ranks have launched up to operation 6650\n  6 ranks have launched up to operation 6649\n"
           "  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210\n"
           "  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210\n"
           "  Rank 3 -- GPU 3 (NVML 7) managed by process 483075 on node fe80::1\n"
           "  Rank 4 -- GPU 4 managed by process 483076 on node 172.16.64.210\n"
           "  Rank 5 -- [process information not found]\n"
           "  Rank 7 -- GPU 7 managed by process 483079 on node 172.16.64.210\n\n")));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].gpus, 32);
  EXPECT_FALSE(answers[0].cut_off);
  ASSERT_EQ(answers[0].communicators.size(), 1u);
  const Communicator& communicator = answers[0].communicators[0];
  EXPECT_EQ(communicator.hash, "27a079b828ff1a75");
  ASSERT_EQ(communicator.ranks.size(), 32u);
  EXPECT_EQ(communicator.ranks[3].process, (Process{"fe80::1", 3, 7, 483075}));
  for (const std::int32_t rank : {0, 2, 3, 4, 5, 7}) {
    const auto place = static_cast<std::size_t>(rank);
    EXPECT_EQ(communicator.ranks[place].counts, (std::map<std::string, std::int64_t>{{"", 6649}})) << rank;
  }
  EXPECT_EQ(communicator.ranks[1].counts, (std::map<std::string, std::int64_t>{{"", 6650}}));
  EXPECT_EQ(communicator.ranks[31].counts, (std::map<std::string, std::int64_t>{{"", 6650}}));
}

TEST(RasText, TwoUnnamedClassesTellNothing) {
  const std::vector<Answer> answers = Of(
      ReadTextAnswers(Text(kTable, "",
                           "#0-0 (0a) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
                           "  16 ranks have launched up to operation 9\n  15 ranks have not launched any operations\n"
                           "  Rank 4 has launched up to operation 3 -- GPU 4 managed by process 4 on node n\n\n")));
  const Communicator& communicator = answers[0].communicators.at(0);
  EXPECT_EQ(communicator.ranks[4].counts, (std::map<std::string, std::int64_t>{{"all_reduce", 3}}));
  EXPECT_TRUE(communicator.ranks[5].counts.empty());
}

TEST(RasText, StatesErrorsAndProcessesThatAreGone) {
  const std::vector<Answer> answers = Of(ReadTextAnswers(
      Text("    0         1         4       7-8        32        31   RUNNING  INCOMPLETE,ERROR,MISMATCH\n"
           "    1         1         1       1-2         2         1   RUNNING  INCOMPLETE\n",
           "DEAD\n  2 job processes are considered dead (unreachable via the RAS network)\n"
           "  Process 3487984 on node 172.16.64.213 managing GPU 5\n  Process 9 on node x managing GPUs 1,2\n\n"
           "#0-0 (cf) INCOMPLETE\n  Missing communicator data from 2 ranks\n  The missing ranks: 21,22\n\n"
           "#0-0 (cf) ERROR\n  Asynchronous error on 1 rank\n"
           "  Rank 3 reported Unhandled CUDA error -- GPU 3 managed by process 3 on node n\n\n"
           "#1-0 (d0) INCOMPLETE\n  Missing communicator data from 1 rank\n"
           "  Rank 1 -- GPU 5 managed by process 3487984 on node 172.16.64.213\n\n",
           "TIMEOUT\n  Encountered 2 communication timeouts while gathering communicator data\n\n"
           "#0-0 (cf) MISMATCH\n  Communicator ranks have different status\n  28 ranks have status RUNNING\n"
           "  2 ranks have status FINALIZE\n  Rank 4 -- GPU 4 managed by process 4 on node n\n"
           "  Rank 20 -- GPU 4 managed by process 20 on node n\n")));
  ASSERT_EQ(answers[0].dead.size(), 2u);
  EXPECT_EQ(answers[0].dead_count, 2);
  EXPECT_EQ(answers[0].dead[0], (Process{"172.16.64.213", 5, 5, 3487984}));
  ASSERT_EQ(answers[0].communicators.size(), 2u);
  const Communicator& all = answers[0].communicators[0];
  EXPECT_TRUE(all.ranks[21].silent);
  EXPECT_TRUE(all.ranks[22].silent);
  EXPECT_FALSE(all.ranks[20].silent);
  EXPECT_EQ(all.ranks[3].error, "unhandled CUDA error");
  EXPECT_EQ(all.ranks[20].status, Status::kFinalize);
  EXPECT_EQ(all.ranks[19].status, Status::kRunning);
  EXPECT_TRUE(answers[0].communicators[1].ranks[1].silent);
}

TEST(RasText, CutOffSeveralAndOdd) {
  const std::string whole = Text(kTable, "", "");
  EXPECT_EQ(Of(ReadTextAnswers(whole + whole)).size(), 2u);
  EXPECT_TRUE(Of(ReadTextAnswers(whole.substr(0, whole.find("Warnings"))))[0].cut_off);
  EXPECT_FALSE(ReadTextAnswers("hello").ok());
  const std::vector<Answer> odd = Of(ReadTextAnswers(
      Text("    0 1 4 8 99999999999 32 RUNNING MISMATCH\n    1 1 1 1 2 2 RUNNING MISMATCH\n",
           "#1-0 (\n#9-0 (ab) INCOMPLETE\n  The missing rank: 1\n",
           "#1-0 (ab) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
           "  Rank 7 has launched up to operation 3 -- GPU 4 managed by process 4 on node n\n"
           "  Rank 1 has launched up to operation 99999999999999999999999 -- GPU 4\n  Rank x\n  9 ranks\n")));
  ASSERT_EQ(odd[0].communicators.size(), 1u);
  for (const CommRank& rank : odd[0].communicators[0].ranks) EXPECT_TRUE(rank.counts.empty());
}

}  // namespace
}  // namespace lockstep::ras
