// Whole run directories: which file stands for which rank, what is missing or
// bad, and that the result depends on nothing else.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "merge/merge.h"
#include "merge/readers/outcome.h"
#include "merge/readers/run_files.h"
#include "rank_builder.h"
#include "trace/file/table_file.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

class RunDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() / ("lockstep-merge-" + std::to_string(::getpid()) + "-" + info->name());
    fs::create_directories(dir_ / "ranks");
    std::ofstream(dir_ / "manifest.json") << R"({"run_id":"r1","world_size":3,"command":["./my app","-x"]})";
  }
  void TearDown() override { fs::remove_all(dir_); }

  static RankBuilder Rank(std::int32_t rank) {
    RankBuilder builder(rank, 3);
    builder.Meta("run_id", "r1");
    for (std::int64_t i = 0; i < 20; ++i) {
      builder.Collective(CollectiveKind::kAllReduce, 1000 * i + 100 * rank, 1000 * i + 400);
      builder.Step(i, 1000 * i, 1000 * i + 1000);
    }
    return builder;
  }
  static std::string Name(std::int32_t rank) { return "rank-0000" + std::to_string(rank) + ".h5"; }
  void Write(const std::string& name, const schema::RankTables& tables) {
    const Status status = trace::WriteRankFile((dir_ / "ranks" / name).string(), tables);
    ASSERT_TRUE(status.ok()) << status.error().what;
  }
  void WriteAll() {
    for (std::int32_t rank = 0; rank < 3; ++rank) Write(Name(rank), Rank(rank).t);
  }
  Result<merge::Timeline> Merge(unsigned jobs = 0, std::int64_t first = -1, std::int64_t last = -1) {
    merge::MergeOptions options;
    options.run_dir = dir_.string();
    options.jobs = jobs;
    options.first_step = first;
    options.last_step = last;
    return merge::MergeRun(options);
  }
  // Loss name -> count; details appended to `details`.
  static std::map<std::string, std::uint64_t> Losses(const merge::Timeline& t, std::string* details = nullptr) {
    std::map<std::string, std::uint64_t> losses;
    for (std::size_t i = 0; i < t.tables.losses.rows(); ++i) {
      losses[std::string(t.Text(t.tables.losses.name[i]))] += t.tables.losses.count[i];
      if (details != nullptr) details->append(t.Text(t.tables.losses.detail[i])).append("\n");
    }
    return losses;
  }
  void Corrupt(const std::string& name, std::uintmax_t keep) { fs::resize_file(dir_ / "ranks" / name, keep); }

  fs::path dir_;
};

TEST_F(RunDirectory, Whole) {
  WriteAll();
  const auto merged = Merge();
  ASSERT_TRUE(merged.ok()) << merged.error().what;
  const merge::Timeline& t = merged.value();
  EXPECT_TRUE(Losses(t).empty());
  EXPECT_EQ(t.tables.collectives.rows(), 20u);
  EXPECT_EQ(t.Meta("command"), "'./my app' -x");
  EXPECT_EQ(t.Meta("world_size"), "3");
  EXPECT_EQ(t.Meta("window_last_step"), "19");
  EXPECT_EQ(t.FirstMember(20) - t.FirstMember(19), 3u);
  EXPECT_EQ(t.tables.ranks.events[1], 20u);
  const auto opened = merge::OpenTimeline(dir_.string());
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened.value().tables.collective_ranks.wait_ns, t.tables.collective_ranks.wait_ns);
  const auto rank = opened.value().ReadRank(1);
  ASSERT_TRUE(rank.ok());
  EXPECT_EQ(rank.value().mpi_calls.rows(), 20u);
  EXPECT_FALSE(opened.value().ReadRank(7).ok());
}

TEST_F(RunDirectory, ColumnsOfKernelsTakeNoMemoryWithoutKernels) {
  WriteAll();
  RankBuilder one = Rank(1);
  one.t.collectives.kernel[3] = 7;
  Write(Name(1), one.t);
  const auto run = merge::OpenRun(dir_.string(), 1);
  ASSERT_TRUE(run.ok()) << run.error().what;
  const schema::Collectives& without = run.value().ranks[0].head.collectives;
  EXPECT_EQ(without.rows(), 20u);
  EXPECT_EQ(without.kernel.capacity(), 0u);
  EXPECT_EQ(without.kernel_operations.capacity(), 0u);
  EXPECT_EQ(without.enqueue_begin_ns.capacity(), 0u);
  ASSERT_EQ(run.value().ranks[1].head.collectives.kernel.size(), 20u);
  EXPECT_EQ(run.value().ranks[1].head.collectives.kernel[3], 7u);
}

TEST_F(RunDirectory, SameDigestForAnyNumberOfThreads) {
  WriteAll();
  std::vector<std::uint64_t> first;
  for (const unsigned jobs : {1u, 2u, 4u}) {
    ASSERT_TRUE(Merge(jobs).ok());
    const auto file = trace::TableFile::Open((dir_ / "timeline.h5").string());
    ASSERT_TRUE(file.ok());
    const auto digests = file.value().Digests();
    ASSERT_TRUE(digests.ok());
    std::vector<std::uint64_t> values;
    for (const auto& digest : digests.value()) values.push_back(digest.value);
    if (first.empty()) first = values;
    EXPECT_EQ(values, first) << jobs;
  }
}

TEST_F(RunDirectory, StepsNarrowTheWindow) {
  WriteAll();
  const auto merged = Merge(1, 5, 9);
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged.value().tables.rank_totals.begin_ns[0], 5000);
  EXPECT_EQ(merged.value().tables.rank_totals.end_ns[0], 10000);
  EXPECT_EQ(merged.value().tables.steps.rows(), 20u);
}

TEST_F(RunDirectory, MissingRank) {
  Write(Name(0), Rank(0).t);
  Write(Name(2), Rank(2).t);
  const auto merged = Merge();
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(Losses(merged.value()), (std::map<std::string, std::uint64_t>{{"RankMissing", 1}}));
  EXPECT_EQ(merged.value().tables.ranks.state, (std::vector<std::uint8_t>{0, 3, 0}));
  EXPECT_EQ(merged.value().Meta("unmatched_collectives"), "0");
}

// Each rank up to the largest one would become a row of its own.
TEST_F(RunDirectory, ARankThatNoJobHasIsDamage) {
  WriteAll();
  RankBuilder damaged(2'147'483'000, 3);
  damaged.Meta("run_id", "r1");
  Write(Name(1), damaged.t);
  const auto merged = Merge();
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged.value().tables.ranks.rows(), 3u);
  std::string details;
  EXPECT_EQ(Losses(merged.value(), &details)["RankCutShort"], 1u);
  EXPECT_NE(details.find("rank 2147483000 is impossible"), std::string::npos) << details;
}

TEST_F(RunDirectory, UnreadableFilesAreOneLossThatNamesThem) {
  WriteAll();
  for (const char* text :
       {"", "not a trace at all, but long enough to look at", "\x89HDF\r\n\x1a\n and nothing behind"}) {
    std::ofstream(dir_ / "ranks" / Name(1), std::ios::trunc) << text;
    const auto merged = Merge();
    ASSERT_TRUE(merged.ok());
    std::string details;
    EXPECT_EQ(Losses(merged.value(), &details), (std::map<std::string, std::uint64_t>{{"FileUnreadable", 1}}));
    EXPECT_NE(details.find("rank-00001.h5"), std::string::npos) << details;
  }
}

TEST_F(RunDirectory, CutFilesNeverCrash) {
  WriteAll();
  const auto whole = fs::file_size(dir_ / "ranks" / Name(1));
  fs::copy(dir_ / "ranks" / Name(1), dir_ / "kept");
  std::uint64_t index_bytes[2];  // The first of the last 56 bytes.
  std::ifstream kept(dir_ / "kept", std::ios::binary);
  kept.seekg(static_cast<std::streamoff>(whole) - 56);
  kept.read(reinterpret_cast<char*>(index_bytes), sizeof index_bytes);
  const std::uintmax_t hdf5_end = whole - 56 - index_bytes[0] - index_bytes[1];
  for (std::uintmax_t keep = 0; keep < whole; keep += whole / 40 + 1) {
    fs::copy(dir_ / "kept", dir_ / "ranks" / Name(1), fs::copy_options::overwrite_existing);
    Corrupt(Name(1), keep);
    const auto merged = Merge();
    ASSERT_TRUE(merged.ok()) << keep;
    // Behind HDF5's end lies only the index, which nobody needs.
    if (keep < hdf5_end) {
      EXPECT_FALSE(Losses(merged.value()).empty()) << keep;
      EXPECT_GE(merged.value().tables.rank_totals.rows(), 2u);
    } else {
      EXPECT_TRUE(Losses(merged.value()).empty()) << keep;
      EXPECT_EQ(merged.value().tables.rank_totals.rows(), 3u);
    }
  }
}

TEST_F(RunDirectory, CopiesAndStrangers) {
  WriteAll();
  fs::copy(dir_ / "ranks" / Name(1), dir_ / "ranks" / "rank-00007.h5");
  fs::remove(dir_ / "ranks" / Name(2));
  RankBuilder other(2, 3);
  other.Meta("run_id", "another");
  Write(Name(2), other.t);
  std::ofstream(dir_ / "ranks" / "notes.txt") << "mine";
  const auto merged = Merge();
  ASSERT_TRUE(merged.ok());
  std::string details;
  EXPECT_EQ(Losses(merged.value(), &details),
            (std::map<std::string, std::uint64_t>{{"RankDuplicated", 1}, {"RankMissing", 1}, {"RunMixed", 1}}));
  EXPECT_NE(details.find("rank-00007.h5"), std::string::npos) << details;
}

TEST_F(RunDirectory, HelpersOfASlotAreNotDoubledRanks) {
  WriteAll();
  RankBuilder helper(1, 3);
  Write("rank-00001.p2.h5", helper.t);
  const auto merged = Merge();
  ASSERT_TRUE(merged.ok());
  EXPECT_TRUE(Losses(merged.value()).empty());
  EXPECT_EQ(merged.value().tables.ranks.events[1], 20u);
}

TEST_F(RunDirectory, NothingToRead) {
  const auto merged = Merge();
  ASSERT_FALSE(merged.ok());
  EXPECT_EQ(merged.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(merged.error().hint.empty());
}

TEST_F(RunDirectory, OpenOrMergeMergesOnlyWhatChanged) {
  WriteAll();
  merge::MergeOptions options;
  options.run_dir = dir_.string();
  ASSERT_TRUE(merge::OpenOrMerge(options).ok());
  const auto mark = fs::file_time_type::clock::now() + std::chrono::hours(1);
  const auto remade = [&] {
    fs::last_write_time(dir_ / "timeline.h5", mark);
    EXPECT_TRUE(merge::OpenOrMerge(options).ok());
    return fs::last_write_time(dir_ / "timeline.h5") != mark;
  };
  EXPECT_FALSE(remade());
  options.last_step = 4;
  EXPECT_TRUE(remade());
  EXPECT_FALSE(remade());
  fs::remove(dir_ / "ranks" / Name(2));
  EXPECT_TRUE(remade());
}

// With the signal that ended each; 0: nothing says how it ended.
std::vector<merge::RunRank> RanksEndedBy(const std::vector<int>& signals) {
  std::vector<merge::RunRank> ranks(signals.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    RankBuilder builder(static_cast<std::int32_t>(r), static_cast<std::int32_t>(ranks.size()));
    // The last value of a key is not looked for: write them once.
    builder.t.meta.key.erase(builder.t.meta.key.begin() + 4);
    builder.t.meta.value.erase(builder.t.meta.value.begin() + 4);
    if (signals[r] != 0) builder.Meta("exit_signal", std::to_string(signals[r]));
    ranks[r].rank = static_cast<std::int32_t>(r);
    ranks[r].head = builder.t;
  }
  return ranks;
}

TEST(Outcome, TheRankThatFailedEndedEarly) {
  const std::vector<merge::RunRank> ranks = RanksEndedBy({15, 9, 15});
  const auto outcomes = merge::FindOutcomes(ranks, {0, 0, 0}, {100, 100, 90});
  EXPECT_FALSE(outcomes[0].ended_early);
  EXPECT_TRUE(outcomes[1].ended_early);
  EXPECT_EQ(outcomes[1].why, "signal 9");
  EXPECT_EQ(outcomes[1].exit_code, -9);
  EXPECT_FALSE(outcomes[2].ended_early) << "the launcher ended it";
}

TEST(Outcome, WhoLeftBeforeAnotherFailedEndedEarly) {
  std::vector<merge::RunRank> ranks = RanksEndedBy({0, 0});
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    RankBuilder builder(static_cast<std::int32_t>(r), 2);
    builder.t.meta.key.clear();
    builder.t.meta.value.clear();
    builder.Meta("exit_code", r == 0 ? "3" : "0");
    ranks[r].head = builder.t;
  }
  const auto early = [&](std::int64_t end0, std::int64_t end1) {
    const auto outcomes = merge::FindOutcomes(ranks, {0, 0}, {end0, end1});
    return std::pair(outcomes[0].ended_early, outcomes[1].ended_early);
  };
  EXPECT_EQ(early(10'000'000'000, 5'000'000'000), std::pair(false, true));
  EXPECT_EQ(early(5'000'000'000, 10'000'000'000), std::pair(true, false));
  EXPECT_EQ(early(5'000'000'000, 4'999'000'000), std::pair(true, false)) << "together, as far as their records tell";
  EXPECT_TRUE(merge::FindOutcomes({}, {}, {}).empty());
}

TEST(Outcome, WhoLeavesInsideMpiHasFailed) {
  std::vector<merge::RunRank> ranks = RanksEndedBy({15, 0, 15});
  RankBuilder builder(1, 3);
  builder.t.meta.key.clear();
  builder.t.meta.value.clear();
  builder.Meta("exit_code", "0");
  builder.Meta("inside_mpi", "1");
  ranks[1].head = builder.t;
  const auto outcomes = merge::FindOutcomes(ranks, {0, 0, 0}, {1'500'000'000, 500'000'000, 1'500'000'000});
  EXPECT_TRUE(outcomes[1].ended_early);
  EXPECT_EQ(outcomes[1].why, "exit code 0 without MPI_Finalize");
  EXPECT_FALSE(outcomes[0].ended_early || outcomes[2].ended_early) << "the launcher ended them";
}

TEST(Outcome, RanksOfWhichNothingIsKnownEndedEarlyIfTheLauncherEndedTheOthersLater) {
  const auto outcomes = merge::FindOutcomes(RanksEndedBy({15, 0, 0, 15}), std::vector<std::int64_t>(4, 0),
                                            {5'000'000'000, 4'000'000'000, 4'999'900'000, 4'500'000'000});
  EXPECT_FALSE(outcomes[0].ended_early);
  EXPECT_TRUE(outcomes[1].ended_early);
  EXPECT_EQ(outcomes[1].why, "its records end 1000 ms before the others'");
  EXPECT_FALSE(outcomes[2].ended_early) << "it was there until the end";
  EXPECT_FALSE(outcomes[3].ended_early) << "the launcher ended it";
}

TEST(Outcome, ADeadHostsRanksEndedEarlyTogether) {
  const auto outcomes_of = [](const std::vector<int>& signals, const std::vector<std::string>& boots = {}) {
    std::vector<merge::RunRank> ranks = RanksEndedBy(signals);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      RankBuilder builder(static_cast<std::int32_t>(r), static_cast<std::int32_t>(ranks.size()));
      builder.t.meta.key.clear();
      builder.t.meta.value.clear();
      builder.Meta("node", !boots.empty() ? "node" : r < 2 ? "node1" : "node2");
      if (!boots.empty()) builder.Meta("boot_id", boots[r]);
      if (signals[r] != 0) builder.Meta("exit_signal", std::to_string(signals[r]));
      ranks[r].head = builder.t;
    }
    return merge::FindOutcomes(ranks, std::vector<std::int64_t>(5, 0),
                               {5'000'000'000, 5'000'000'000, 4'000'000'000, 4'999'900'000, 4'999'900'000});
  };
  auto outcomes = outcomes_of({15, 15, 0, 0, 0});
  EXPECT_FALSE(outcomes[0].ended_early || outcomes[1].ended_early);
  EXPECT_TRUE(outcomes[2].ended_early && outcomes[3].ended_early && outcomes[4].ended_early);
  EXPECT_EQ(outcomes[3].why, "its records end with those of its host's other ranks");
  // One that was ended by the launcher was on a host that lived.
  outcomes = outcomes_of({15, 15, 0, 0, 15});
  EXPECT_TRUE(outcomes[2].ended_early);
  EXPECT_FALSE(outcomes[3].ended_early || outcomes[4].ended_early);
  // Hosts that call themselves the same are not one.
  outcomes = outcomes_of({15, 15, 0, 0, 0}, {"a", "a", "b", "b", "b"});
  EXPECT_FALSE(outcomes[0].ended_early || outcomes[1].ended_early);
  EXPECT_TRUE(outcomes[2].ended_early && outcomes[3].ended_early && outcomes[4].ended_early);
}

TEST(Outcome, NobodyEndedEarlyOfAJobOfWhichNothingIsKnownOrThatTheLauncherEnded) {
  for (const auto& signals : {std::vector<int>{0, 0}, std::vector<int>{15, 15}})
    for (const auto& outcome : merge::FindOutcomes(RanksEndedBy(signals), {0, 0}, {5'000'000'000, 1'000'000'000}))
      EXPECT_FALSE(outcome.ended_early);
}

}  // namespace
}  // namespace lockstep::test
