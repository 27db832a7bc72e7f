// Files that several processes write, and locks that tell the living from the dead.

#include "trace/file/part_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "trace/file/lock_file.h"

namespace lockstep::trace {
namespace {

namespace fs = std::filesystem;

class PartFiles : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-part-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string Path(const char* name) const { return (dir_ / name).string(); }
  std::size_t Entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }
  static std::string Text(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void Put(const std::string& path, const std::string& text) {
    PartFile file;
    ASSERT_EQ(file.Open(path), 0);
    ASSERT_EQ(file.Write(text), 0);
    ASSERT_EQ(file.Publish(), 0);
  }

  fs::path dir_;
};

TEST_F(PartFiles, AppearWholeOrNotAtAll) {
  Put(Path("a"), "before");
  {
    PartFile file;
    ASSERT_EQ(file.Open(Path("a")), 0);
    ASSERT_EQ(file.Write("half"), 0);
    EXPECT_EQ(Text(Path("a")), "before");
    EXPECT_TRUE(IsPart(fs::path(file.part()).filename().string()));
  }
  EXPECT_EQ(Text(Path("a")), "before");
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(PartFiles, OfManyWritersOneWinsWhole) {
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i)
    writers.emplace_back([this, i] {
      for (int n = 0; n < 20; ++n) Put(Path("a"), std::string(5000, static_cast<char>('a' + i)));
    });
  for (std::thread& writer : writers) writer.join();
  const std::string text = Text(Path("a"));
  EXPECT_EQ(text, std::string(5000, text[0]));
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(PartFiles, OfTheDeadAreRemovedAndOfTheLivingKept) {
  PartFile alive;
  ASSERT_EQ(alive.Open(Path("alive")), 0);
  PartDirectory living;
  ASSERT_EQ(living.Open(Path("living")), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    static PartFile file;
    static PartDirectory directory;
    const bool made = file.Open(Path("dead")) == 0 && directory.Open(Path("dead-too")) == 0 &&
                      ::mkdir((directory.directory() + "/below").c_str(), 0777) == 0;
    ::_exit(made ? 0 : 1);  // As kill -9 ends it: nothing is tidied.
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  std::ofstream(Path(".somebody.else.part")) << "x";
  std::ofstream(Path(".somebody.0123456789ABCDEF.part")) << "x";
  EXPECT_EQ(Entries(), 8u);
  RemoveLeftovers(dir_.string());
  EXPECT_EQ(Entries(), 5u);
  EXPECT_TRUE(fs::exists(alive.part()));
  EXPECT_TRUE(fs::exists(living.directory()));
}

TEST_F(PartFiles, WhatIsALinkIsNotRemoved) {
  std::ofstream(Path("precious")) << "x";
  fs::create_symlink(Path("precious"), Path(".a.0123456789abcdef.part"));
  RemoveLeftovers(dir_.string());
  EXPECT_EQ(Entries(), 2u);
}

TEST_F(PartFiles, DirectoriesAreNeverMixed) {
  PartDirectory first, second;
  ASSERT_EQ(first.Open(Path("d")), 0);
  ASSERT_EQ(second.Open(Path("d")), 0);
  std::ofstream(first.directory() + "/one") << "1";
  std::ofstream(second.directory() + "/two") << "2";
  EXPECT_EQ(first.Publish(), 0);
  EXPECT_NE(second.Publish(), 0);
  EXPECT_TRUE(fs::exists(Path("d/one")));
  EXPECT_FALSE(fs::exists(Path("d/two")));
  second.Drop();
  EXPECT_EQ(PartDirectory::Remove(Path("d")), 0);
  EXPECT_EQ(Entries(), 0u);
}

TEST_F(PartFiles, LocksSayWhoHasThem) {
  const std::string path = Path(".lock");
  FileLock one = FileLock::Try(path, FileLock::Mode::kExclusive);
  ASSERT_TRUE(one.held());
  one.NameOwner("test\x1b[31m");
  EXPECT_EQ(OwnerOf(path).find("test?[31m, process "), 0u);
  EXPECT_EQ(FileLock::Try(path, FileLock::Mode::kShared).state(), FileLock::State::kBusy);
  EXPECT_FALSE(LockIfUnused(path).held());
  one.Release(true);
  EXPECT_FALSE(fs::exists(path));
  FileLock shared = FileLock::Try(path, FileLock::Mode::kShared), too = FileLock::Try(path, FileLock::Mode::kShared);
  EXPECT_TRUE(shared.held() && too.held());
  EXPECT_FALSE(LockIfUnused(path).held());
}

TEST_F(PartFiles, LocksNeedNoDirectoryToBeWritten) {
  EXPECT_EQ(FileLock::Try(Path("absent/.lock"), FileLock::Mode::kExclusive).state(), FileLock::State::kNone);
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0666), 0);
  EXPECT_EQ(FileLock::Try(Path("pipe"), FileLock::Mode::kExclusive).state(), FileLock::State::kNone);
  fs::create_symlink(Path("elsewhere"), Path("link"));
  EXPECT_EQ(FileLock::Try(Path("link"), FileLock::Mode::kExclusive).state(), FileLock::State::kNone);
  EXPECT_FALSE(fs::exists(Path("elsewhere")));
}

// The one that holds it takes the file away; the next must not lock what is gone while a third makes a new one.
TEST_F(PartFiles, OneAtATimeAlthoughTheFileComesAndGoes) {
  const std::string path = Path(".lock");
  std::atomic<int> inside{0}, most{0}, turns{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 200;) {
        FileLock lock = FileLock::Try(path, FileLock::Mode::kExclusive);
        if (!lock.held()) continue;
        most = std::max<int>(most, ++inside);
        --inside;
        lock.Release(true);
        ++turns, ++n;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(turns, 800);
}

}  // namespace
}  // namespace lockstep::trace
