#include "runtime/agent/rings/memory_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/agent/slot/convert.h"

namespace lockstep::agent {
namespace {

namespace fs = std::filesystem;

class MemoryLimits : public testing::Test {
 protected:
  ~MemoryLimits() override { fs::remove_all(mount_); }
  void Write(const std::string& file, const std::string& text) {
    fs::create_directories(fs::path(mount_ + "/" + file).parent_path());
    std::ofstream(mount_ + "/" + file) << text << "\n";
  }
  const std::string mount_ = testing::TempDir() + "memory_limits." + std::to_string(::getpid());
};

TEST_F(MemoryLimits, OfVersion2IsTheLeastOfAGroupAndThoseAroundIt) {
  Write("user/job/step/memory.max", "max");
  Write("user/job/memory.max", "183500800");
  Write("user/memory.max", "4000000000");
  EXPECT_EQ(CgroupMemoryLimit("0::/user/job/step\n", mount_), 183500800u);
  EXPECT_EQ(CgroupMemoryLimit("0::/user\n", mount_), 4000000000u);
  EXPECT_EQ(CgroupMemoryLimit("0::/other\n", mount_), kNoLimit);
  EXPECT_EQ(CgroupMemoryLimit("0::/\n", mount_), kNoLimit);
  EXPECT_EQ(CgroupMemoryLimit("", mount_), kNoLimit);
  EXPECT_EQ(CgroupMemoryLimit("garbage\n7:\n", mount_), kNoLimit);
}

// A container sees the path of its host, and below the mount only its own files.
TEST_F(MemoryLimits, OfAContainerIsThatOfTheMount) {
  Write("memory.max", "1000000");
  EXPECT_EQ(CgroupMemoryLimit("0::/system.slice/docker-1.scope\n", mount_), 1000000u);
}

TEST_F(MemoryLimits, OfVersion1AndOfBoth) {
  Write("memory/a/memory.limit_in_bytes", "175000000");
  Write("memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(CgroupMemoryLimit("9:name=systemd:/a\n4:memory:/a\n0::/\n", mount_), 175000000u);
  EXPECT_EQ(CgroupMemoryLimit("4:cpu,memory:/b\n", mount_), kNoLimit);
  Write("unified/a/memory.max", "5000000");
  EXPECT_EQ(CgroupMemoryLimit("4:memory:/a\n0::/a\n", mount_), 5000000u);
}

// The least of what each group has left: usage is that of all below it, and files are dropped when memory is wanted.
TEST_F(MemoryLimits, RoomIsWhatNeitherProgramsNorRingsTake) {
  Write("job/memory.max", "100000000");
  Write("job/memory.current", "90000000");
  Write("job/memory.stat", "anon 20000000\ninactive_file 60000000\nactive_file 5000000");
  Write("job/step/memory.max", "max");
  Write("job/step/memory.current", "90000000");
  EXPECT_EQ(CgroupMemoryRoom("0::/job/step\n", mount_), 70000000u);
  Write("job/step/memory.max", "95000000");
  EXPECT_EQ(CgroupMemoryRoom("0::/job/step\n", mount_), 5000000u) << "of its files nothing is known";
  EXPECT_EQ(CgroupMemoryRoom("0::/other\n", mount_), kNoLimit);
  Write("memory/a/memory.limit_in_bytes", "50000000");
  Write("memory/a/memory.usage_in_bytes", "60000000");
  Write("memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 20000000");
  EXPECT_EQ(CgroupMemoryRoom("4:memory:/a\n", mount_), 10000000u);
  Write("memory/a/memory.stat", "total_inactive_file 0");
  EXPECT_EQ(CgroupMemoryRoom("4:memory:/a\n", mount_), 0u);
}

TEST_F(MemoryLimits, OomKillsAreThoseOfTheNearestGroup) {
  Write("job/step/memory.events", "low 0\nmax 7\noom 5\noom_kill 2\noom_group_kill 1");
  Write("job/memory.events", "oom_kill 9");
  const OomKills before = CountOomKills("0::/job/step\n", mount_);
  EXPECT_EQ(before.group, mount_ + "/job/step");
  EXPECT_EQ(before.count, 2u);
  EXPECT_EQ(OomKillsSince(before, before), "");
  Write("job/step/memory.events", "oom 6\noom_kill 3");
  EXPECT_EQ(OomKillsSince(before, CountOomKills("0::/job/step\n", mount_)),
            "the memory cgroup " + mount_ +
                "/job/step counted 1 oom kill during the job: give it more memory, or run fewer ranks in it");
  EXPECT_EQ(CountOomKills("0::/elsewhere\n", mount_).group, "") << "none is known";
  EXPECT_EQ(OomKillsSince(CountOomKills("", mount_), CountOomKills("", mount_)), "");
  Write("memory/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4");
  EXPECT_EQ(CountOomKills("4:memory:/a/b\n", mount_).count, 4u);
}

// Sets one for its own lifetime.
class Limited {
 public:
  Limited(decltype(RLIMIT_AS) resource, std::uint64_t bytes) : resource_(resource) {
    ::getrlimit(resource, &before_);
    rlimit small = before_;
    small.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(resource, &small), 0);
  }
  ~Limited() { ::setrlimit(resource_, &before_); }

 private:
  decltype(RLIMIT_AS) resource_;
  rlimit before_{};
};

TEST_F(MemoryLimits, WhereLockstepTakesTooMuchOfItProgramsStartAlone) {
  constexpr std::uint64_t kMiB = 1 << 20;
  EXPECT_EQ(TooSmallFor(kNoLimit, kNoLimit, kMiB, 64), "");
  EXPECT_EQ(TooSmallFor(128 * kMiB, 256 * kMiB, kMiB, 8), "");
  EXPECT_NE(TooSmallFor(40 * kMiB, kNoLimit, kMiB, 1), "");
  EXPECT_NE(TooSmallFor(kNoLimit, 30 * kMiB, kMiB, 1), "");
  EXPECT_EQ(TooSmallFor(kNoLimit, 32 * kMiB, kMiB, 1), "");
  EXPECT_EQ(TooSmallFor(kNoLimit, 32 * kMiB, kMiB, 2), "its memory cgroup has 33.6 MB for 2 ranks");
  EXPECT_NE(TooSmallFor(kNoLimit, 80 * kMiB, 5 * kMiB, 1), "");
}

TEST_F(MemoryLimits, AnAddressSpaceBoundsTheRings) {
  const Limited space(RLIMIT_AS, std::uint64_t{64} << 30);
  EXPECT_LE(MostForRings(1), std::uint64_t{2} << 30);
  EXPECT_LE(MostForRings(4), MostForRings(1));
}

TEST_F(MemoryLimits, TheSizeOfAFileBoundsTheRings) {
  const Limited size(RLIMIT_FSIZE, 2048000);
  EXPECT_LE(MostForRings(1), 2048000u);
}

TEST_F(MemoryLimits, AConversionNeedsHalfOfWhatIsLeft) {
  EXPECT_EQ(NoRoomToConvert(1000, 1), "");
  EXPECT_NE(NoRoomToConvert(std::uint64_t{1} << 48, 1).find(" of memory, and the m"), std::string::npos);
  EXPECT_NE(NoRoomToConvert(std::uint64_t{1} << 30, 1 << 18), "") << "each of as many at the same time";
}

TEST_F(MemoryLimits, AnAddressSpaceBoundsAConversion) {
  const Limited space(RLIMIT_AS, std::uint64_t{64} << 30);
  EXPECT_EQ(NoRoomFor(1000, 1000, 1), "");
  const std::string why = NoRoomFor(1000, std::uint64_t{65} << 30, 1);
  EXPECT_TRUE(why.ends_with("and the address space (ulimit -v) has 0 B left")) << why;
}

}  // namespace
}  // namespace lockstep::agent
