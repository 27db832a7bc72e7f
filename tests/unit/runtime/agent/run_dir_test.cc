#include "runtime/agent/rundir/run_dir.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "temp_dir.h"

namespace lockstep::agent {
namespace {

namespace fs = std::filesystem;

launch::LaunchEnv Slot(std::int32_t rank, std::uint64_t run, bool weak = false) {
  launch::LaunchEnv env;
  env.source = launch::LaunchSource::kOpenMpi;
  env.rank = rank;
  env.world_size = 8;
  env.run_id = "test:" + std::to_string(run);
  env.run_hash = run;
  env.run_id_weak = weak;
  return env;
}

class RunDirTest : public testing::Test {
 protected:
  RunDirTest() : before_(fs::current_path()) { fs::current_path(dir_.path()); }
  ~RunDirTest() override { fs::current_path(before_); }
  TempDir dir_;
  fs::path before_;
};

TEST_F(RunDirTest, SlotsThatComeAtOnceMeetInOneDirectory) {
  std::vector<std::string> paths(8);
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < 8; ++rank)
    threads.emplace_back(
        [&, rank] { paths[static_cast<std::size_t>(rank)] = ClaimRunDir(Slot(rank, 0xabc), "").value().path; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(paths.begin(), paths.end()).size(), 1u);
  EXPECT_TRUE(fs::exists(paths[0] + "/ranks"));
  // "-2" and so on: somebody had that second's name, came late with it, and took it away again.
  EXPECT_NE(paths[0].find("-0abc"), std::string::npos) << paths[0];
  int directories = 0;
  for (const auto& entry : fs::directory_iterator("lockstep.out"))
    directories += entry.is_directory() && !entry.is_symlink();
  EXPECT_EQ(directories, 1);
}

TEST_F(RunDirTest, OutputDirectoryIsSharedBySlotsOfOneRunOnly) {
  const RunDir a = ClaimRunDir(Slot(0, 1), "out").value(), b = ClaimRunDir(Slot(1, 1), "out/").value(),
               c = ClaimRunDir(Slot(1, 2), "out").value(), d = ClaimRunDir(Slot(0, 2), "out").value();
  EXPECT_EQ(a.path, "out");
  EXPECT_EQ(b.path, "out");
  EXPECT_TRUE(a.notice.empty());
  EXPECT_EQ(c.path, "out-2");
  EXPECT_EQ(d.path, "out-2");
  EXPECT_NE(c.notice.find("out-2"), std::string::npos);
  EXPECT_TRUE(a.latest.empty());
}

TEST_F(RunDirTest, OutputThatHoldsSomethingElseIsNotTouched) {
  fs::create_directories("import");
  std::ofstream("import/manifest.json") << "{}";
  EXPECT_EQ(ClaimRunDir(Slot(0, 1), "import").value().path, "import-2");
  fs::create_directories("notes");
  std::ofstream("notes/readme") << "x";
  EXPECT_EQ(ClaimRunDir(Slot(0, 1), "notes").value().path, "notes");
}

TEST_F(RunDirTest, TheSameIdAgainIsAnotherRun) {
  const std::string first = ClaimRunDir(Slot(0, 5), "").value().absolute;
  EXPECT_EQ(ClaimRunDir(Slot(1, 5), "").value().absolute, first);
  const std::string second = ClaimRunDir(Slot(1, 5), "").value().absolute;
  EXPECT_NE(second, first);
  EXPECT_EQ(ClaimRunDir(Slot(0, 5), "").value().absolute, second);
}

TEST_F(RunDirTest, AnUnwritablePlaceFallsBackAndSaysSo) {
  std::ofstream("lockstep.out") << "a file where the directory should be";
  fs::create_directories("tmp");
  ::setenv("TMPDIR", (dir_.path() + "/tmp").c_str(), 1);
  const auto dir = ClaimRunDir(Slot(0, 9), "");
  ::unsetenv("TMPDIR");
  ASSERT_TRUE(dir.ok());
  EXPECT_TRUE(dir.value().absolute.starts_with(fs::canonical(dir_.path()).string() + "/tmp/")) << dir.value().absolute;
  EXPECT_NE(dir.value().notice.find("lockstep.out cannot be written"), std::string::npos);
}

TEST_F(RunDirTest, NothingWritableIsAnError) {
  std::ofstream("lockstep.out") << "x";
  std::ofstream("tmp") << "x";
  ::setenv("TMPDIR", (dir_.path() + "/tmp").c_str(), 1);
  const auto dir = ClaimRunDir(Slot(0, 9), "");
  ::unsetenv("TMPDIR");
  EXPECT_FALSE(dir.ok());
}

TEST_F(RunDirTest, LatestFollowsTheNewest) {
  const RunDir a = ClaimRunDir(Slot(0, 1), "").value();
  PointLatest(a);  // Without a manifest it is not rank 0's.
  EXPECT_FALSE(fs::exists("lockstep.out/latest"));
  std::ofstream(a.path + "/manifest.json");
  PointLatest(a);
  EXPECT_EQ(fs::canonical("lockstep.out/latest"), fs::canonical(a.path));
  const RunDir b = ClaimRunDir(Slot(0, 2), "").value();
  std::ofstream(b.path + "/manifest.json");
  PointLatest(b);
  EXPECT_EQ(fs::canonical("lockstep.out/latest"), fs::canonical(b.path));
}

TEST_F(RunDirTest, AbandonLeavesOthersAlone) {
  const RunDir a = ClaimRunDir(Slot(0, 1), "out").value(), b = ClaimRunDir(Slot(1, 1), "out").value();
  AbandonRunDir(a);
  EXPECT_TRUE(fs::exists("out/ranks"));
  AbandonRunDir(b);
  EXPECT_FALSE(fs::exists("out"));
}

launch::LaunchEnv Torchrun(std::int32_t rank, const std::string& key, std::int32_t world = 8) {
  launch::LaunchEnv env = Slot(rank, 77, true);
  env.source = launch::LaunchSource::kTorchrun;
  env.world_size = world;
  env.launch_key = key;
  return env;
}

TEST_F(RunDirTest, ARerunWithTheSameIdIsAnotherRun) {
  const RunDir a0 = ClaimRunDir(Torchrun(0, "first"), "").value();
  WriteClaim(a0, false);  // At once, before the others are there.
  const RunDir a1 = ClaimRunDir(Torchrun(1, "first"), "").value();
  EXPECT_EQ(a1.absolute, a0.absolute);
  // Slots that the first run never had, while it runs and when it is over.
  const RunDir b5 = ClaimRunDir(Torchrun(5, "second"), "").value();
  EXPECT_NE(b5.absolute, a0.absolute);
  WriteClaim(a1, true);
  const RunDir b6 = ClaimRunDir(Torchrun(6, "second"), "").value(), a7 = ClaimRunDir(Torchrun(7, "first"), "").value();
  EXPECT_EQ(b6.absolute, b5.absolute);
  EXPECT_EQ(a7.absolute, a0.absolute);
  EXPECT_EQ(ClaimRunDir(Torchrun(2, "first", 4), "out").value().path, "out");
  EXPECT_EQ(ClaimRunDir(Torchrun(3, "second", 4), "out").value().path, "out-2");
  EXPECT_EQ(ClaimRunDir(Torchrun(3, "first", 4), "out").value().path, "out");
}

// Two launchers on one machine that are nodes of one launch, and both again.
TEST_F(RunDirTest, NodesOfOneMachineAreOneRun) {
  const auto of = [](std::int32_t rank, const std::string& key, std::int32_t node) {
    launch::LaunchEnv env = Torchrun(rank, key, 4);
    env.launch_node = node;
    return env;
  };
  const RunDir a = ClaimRunDir(of(0, "left", 0), "").value();
  WriteClaim(a, true);  // Before the other node is there.
  EXPECT_EQ(ClaimRunDir(of(2, "right", 1), "").value().absolute, a.absolute);
  const RunDir b = ClaimRunDir(of(1, "left again", 0), "").value();
  EXPECT_NE(b.absolute, a.absolute);
  EXPECT_EQ(ClaimRunDir(of(3, "right again", 1), "").value().absolute, b.absolute);
}

// As slots of another node, or of a launcher without a key: no word of this node about the launch.
TEST_F(RunDirTest, WithoutAKeyARunThatLivesIsJoinedAndOneThatIsOverIsNot) {
  std::string first;
  {
    const RunDir a = ClaimRunDir(Torchrun(0, ""), "").value();
    first = a.absolute;
    EXPECT_NE(ClaimRunDir(Torchrun(1, "", 4), "").value().absolute, first) << "of another size";
    const RunDir b = ClaimRunDir(Torchrun(1, ""), "").value();
    EXPECT_EQ(b.absolute, first);
    WriteClaim(b, true);
    EXPECT_EQ(ClaimRunDir(Torchrun(2, ""), "").value().absolute, first);
  }
  // Their agents are gone without a word. Older than a start takes:
  for (const auto& entry : fs::directory_iterator("lockstep.out")) {
    if (!entry.is_symlink()) continue;
    const timespec times[2] = {{::time(nullptr) - 120, 0}, {::time(nullptr) - 120, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, entry.path().c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
  }
  EXPECT_NE(ClaimRunDir(Torchrun(3, ""), "").value().absolute, first);
}

TEST_F(RunDirTest, LinksOfStrangersAreNotFollowed) {
  const RunDir a = ClaimRunDir(Slot(0, 3), "").value();
  std::string link;
  for (const auto& entry : fs::directory_iterator("lockstep.out"))
    if (entry.is_symlink()) link = entry.path();
  fs::create_directories("elsewhere/20200101-000000-0003");
  for (const std::string target : {"../elsewhere/20200101-000000-0003", "../elsewhere", "..", "/"}) {
    fs::remove(link);
    fs::create_symlink(target, link);
    const RunDir b = ClaimRunDir(Slot(1, 3), "").value();
    EXPECT_EQ(fs::path(b.absolute).parent_path(), fs::canonical("lockstep.out")) << target;
    EXPECT_TRUE(fs::is_empty("elsewhere/20200101-000000-0003"));
  }
}

TEST_F(RunDirTest, RanksThatIsALinkIsNotUsed) {
  fs::create_directories("out");
  fs::create_directories("elsewhere");
  fs::create_directory_symlink("../elsewhere", "out/ranks");
  ::setenv("TMPDIR", dir_.path().c_str(), 1);
  const auto dir = ClaimRunDir(Slot(0, 4), "out");
  ::unsetenv("TMPDIR");
  ASSERT_TRUE(dir.ok());
  EXPECT_NE(dir.value().notice.find("link"), std::string::npos);
  EXPECT_TRUE(fs::is_empty("elsewhere"));
}

}  // namespace
}  // namespace lockstep::agent
