#include "runtime/agent/rings/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "core/own_file.h"
#include "core/segment_name.h"
#include "runtime/agent/recover/stale_segments.h"
#include "temp_dir.h"
#include "tests/unit/eventually.h"

namespace lockstep::agent {
namespace {

namespace fs = std::filesystem;

class SegmentTest : public testing::Test {
 protected:
  SegmentRequest Request() const {
    SegmentRequest request;
    request.tmpfs_dir = dir_.path();
    request.run_hash = 0xab;
    request.slot = 3;
    request.total_bytes = 8 << 20;
    request.main_ring_bytes = request.other_ring_bytes = 1 << 16;
    return request;
  }
  std::string Name(int number = 1) const {
    return dir_.path() + "/" + FormatSegmentName({::geteuid(), 0xab, 3, static_cast<int>(::getpid()), number});
  }
  TempDir dir_;
};

TEST_F(SegmentTest, NamesOfOthersAreLeftAlone) {
  std::ofstream(dir_.path() + "/precious") << "mine";
  fs::create_symlink("precious", Name());
  std::ofstream(Name(2)) << "another container's";
  auto segment = Segment::Create(Request());
  ASSERT_TRUE(segment.ok());
  EXPECT_EQ(segment.value().path(), Name(3));
  struct stat info {};
  ASSERT_EQ(::stat(Name(3).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(fs::file_size(dir_.path() + "/precious"), 4u);
  EXPECT_EQ(fs::file_size(Name(2)), 19u);
  segment.value().Remove();
  EXPECT_FALSE(fs::exists(Name(3)));
  EXPECT_TRUE(fs::is_symlink(Name()));
}

TEST_F(SegmentTest, OtherLimitsMakeItSmallAndNeverTooSmallForOneRing) {
  SegmentRequest request = Request();
  request.total_bytes = 64 << 20;
  request.main_ring_bytes = 8 << 20;
  request.most_bytes = 6 << 20;
  auto segment = Segment::Create(request);
  ASSERT_TRUE(segment.ok());
  EXPECT_LE(segment.value().view().bytes, request.most_bytes);
  EXPECT_GE(segment.value().view().header().main_ring_slots, 1024u);
  segment.value().Remove();
  request.most_bytes = 1;
  auto least = Segment::Create(request);
  ASSERT_TRUE(least.ok());
  EXPECT_LE(least.value().view().bytes, std::uint64_t{2} << 20);
  least.value().Remove();
}

TEST_F(SegmentTest, NamesComeBack) {
  for (const int number : {1, 2, 50}) {
    const SegmentName name{1000, 0xfedcba9876543210, 4095, 4194304, number};
    SegmentName parsed;
    ASSERT_TRUE(ParseSegmentName(FormatSegmentName(name), parsed));
    EXPECT_EQ(FormatSegmentName(parsed), FormatSegmentName(name));
  }
  SegmentName parsed;
  for (const char* text : {"lockstep-1000-fedcba9876543210-1-2-1", "lockstep-1000-fedcba9876543210-1-2x",
                           "lockstep-+1-fedcba9876543210-1-2", "lockstep-1000-fedcba9876543210-1-2/../x",
                           "lockstep-1000-fed-1-2", "lockstep-lib-abcdef"})
    EXPECT_FALSE(ParseSegmentName(text, parsed)) << text;
}

// As an application that outlives its agent, seen without its pid: a mapping made while the file was locked.
TEST_F(SegmentTest, AMappingKeepsASegmentInUse) {
  std::string path;
  {
    auto segment = Segment::Create(Request());
    ASSERT_TRUE(segment.ok());
    path = segment.value().path();
    EXPECT_TRUE(FindStaleSegments(dir_.path()).empty()) << "its agent lives";
  }
  int ready[2], end[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(end), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::open(path.c_str(), O_RDWR);
    if (TryLockShared(fd) != Locked::kYes || ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
      ::_exit(1);
    ::close(fd);
    ::close(end[1]);
    char byte = 'x';
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    ::_exit(::read(end[0], &byte, 1) == 0 ? 0 : 1);
  }
  ::close(end[0]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(FindStaleSegments(dir_.path()).empty());
  ::close(end[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const auto stale = FindStaleSegments(dir_.path());
  ASSERT_EQ(stale.size(), 1u);
  EXPECT_TRUE(RemoveStaleSegment(stale[0]));
  EXPECT_FALSE(fs::exists(path));
}

// Two commands at once: one looks for stale segments (`doctor`) or is removing this one, the other recovers its run.
TEST_F(SegmentTest, AnotherCommandIsNotAUser) {
  std::string path;
  {
    auto segment = Segment::Create(Request());
    ASSERT_TRUE(segment.ok());
    path = segment.value().path();
  }
  OwnedFd mine = OpenOwn(path, O_RDWR);
  EXPECT_FALSE(UseOfSegment(mine, path).used);
  EXPECT_TRUE(FindStaleSegments(dir_.path()).empty()) << "it is being recovered";
  std::atomic<bool> looks{false};
  std::thread other([&] {
    const OwnedFd file = OpenOwn(path, O_RDWR);
    looks = true;
    EXPECT_FALSE(UseOfSegment(file, path).used) << "the first command ends meanwhile";
    EXPECT_TRUE(FindStaleSegments(dir_.path()).empty());
  });
  EXPECT_TRUE(test::Eventually([&] { return looks.load(); }));
  mine.Reset();
  other.join();
  const auto stale = FindStaleSegments(dir_.path());
  ASSERT_EQ(stale.size(), 1u);
  const OwnedFd later = OpenOwn(path, O_RDWR);
  EXPECT_EQ(TryLockExclusive(later.get()), Locked::kYes) << "looking takes no lock";
}

}  // namespace
}  // namespace lockstep::agent
