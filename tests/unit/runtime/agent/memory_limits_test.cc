#include "runtime/agent/rings/memory_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

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

TEST_F(MemoryLimits, AnAddressSpaceBoundsTheRings) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  rlimit small = before;
  small.rlim_cur = std::uint64_t{64} << 30;
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &small), 0);
  EXPECT_LE(MostForRings(1), std::uint64_t{2} << 30);
  EXPECT_LE(MostForRings(4), MostForRings(1));
  ::setrlimit(RLIMIT_AS, &before);
}

}  // namespace
}  // namespace lockstep::agent
