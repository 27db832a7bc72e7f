#include "core/own_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class OwnFile : public testing::Test {
 protected:
  OwnFile() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-own-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
  }
  ~OwnFile() override { fs::remove_all(dir_); }
  std::string Path(const std::string& name) const { return dir_ + "/" + name; }
  static std::string Text(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::ptrdiff_t Entries() const { return std::distance(fs::directory_iterator(dir_), fs::directory_iterator()); }
  std::string dir_;
};

TEST_F(OwnFile, ReplacesLinksAndLeavesWhatTheyPointTo) {
  std::ofstream(Path("precious")) << "mine";
  fs::create_symlink("precious", Path("a"));
  fs::create_symlink("precious", Path("a.part"));
  EXPECT_EQ(ReplaceFile(Path("a"), "new", 0644, true), 0);
  EXPECT_EQ(Text(Path("a")), "new");
  EXPECT_FALSE(fs::is_symlink(Path("a")));
  EXPECT_EQ(Text(Path("precious")), "mine");
  EXPECT_EQ(Entries(), 3);
}

TEST_F(OwnFile, LeavesNothingWhereItCannotBeNamed) {
  fs::create_directory(Path("d"));
  EXPECT_NE(ReplaceFile(Path("d"), "x", 0644), 0);
  EXPECT_EQ(Entries(), 1);
  EXPECT_EQ(ReplaceFile(Path("nowhere/x"), "x", 0644), ENOENT);
}

TEST_F(OwnFile, TheFirstKeepsAName) {
  std::string a, b;
  const OwnedFd one = CreateBeside(Path("claim"), 0644, &a), two = CreateBeside(Path("claim"), 0644, &b);
  ASSERT_TRUE(one.open() && two.open());
  EXPECT_NE(a, b);
  EXPECT_EQ(MoveNew(a, Path("claim")), 0);
  EXPECT_EQ(MoveNew(b, Path("claim")), EEXIST);
  struct stat made {
  }, found{};
  ASSERT_EQ(::fstat(one.get(), &made), 0);
  ASSERT_EQ(::stat(Path("claim").c_str(), &found), 0);
  EXPECT_EQ(made.st_ino, found.st_ino);
}

TEST_F(OwnFile, TheLockIsThereBeforeTheNameAndLastsAsLongAsADuplicate) {
  std::string name;
  OwnedFd fd = CreateBeside(Path("spool"), 0644, &name);
  ASSERT_EQ(MoveNew(name, Path("spool")), 0);
  const OwnedFd other(::open(Path("spool").c_str(), O_RDWR)), reader(::open(Path("spool").c_str(), O_RDONLY));
  EXPECT_EQ(TryLockExclusive(other.get()), Locked::kHeld);
  EXPECT_EQ(AskExclusive(reader.get()), Locked::kHeld);
  OwnedFd kept(::dup(fd.get()));
  fd.Reset();
  EXPECT_EQ(TryLockExclusive(other.get()), Locked::kHeld);
  kept.Reset();
  EXPECT_EQ(AskExclusive(reader.get()), Locked::kYes);
  // Who may only read cannot keep others from seeing that nobody writes.
  EXPECT_EQ(TryLockExclusive(reader.get()), Locked::kUnsupported);
  EXPECT_EQ(TryLockShared(reader.get()), Locked::kYes);
  EXPECT_EQ(TryLockExclusive(other.get()), Locked::kHeld);
  EXPECT_EQ(AskExclusive(other.get()), Locked::kYes);
}

TEST_F(OwnFile, OnlyFilesOfOursAreOpenedAndRemoved) {
  std::ofstream(Path("file")) << "x";
  fs::create_symlink("file", Path("link"));
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  fs::create_directory(Path("directory"));
  EXPECT_TRUE(OpenOwn(Path("file"), O_RDWR).open());
  for (const char* name : {"link", "pipe", "directory", "nothing"}) {
    EXPECT_FALSE(OpenOwn(Path(name), O_RDONLY).open()) << name;
    EXPECT_FALSE(RemoveOwn(Path(name))) << name;
  }
  EXPECT_EQ(NotOwnDirectory(Path("directory"), false), "");
  EXPECT_EQ(NotOwnDirectory(Path("link"), false), "it is a link");
  EXPECT_EQ(NotOwnDirectory(Path("file"), false), "it is not a directory");
  ASSERT_EQ(::chmod(Path("directory").c_str(), 0777), 0);
  EXPECT_EQ(NotOwnDirectory(Path("directory"), false), "others may write to it");
  EXPECT_EQ(NotOwnDirectory(Path("directory"), true), "");
  EXPECT_FALSE(RemoveOwnLink(Path("file")));
  EXPECT_TRUE(RemoveOwnLink(Path("link")));
  EXPECT_TRUE(RemoveOwn(Path("file")));
  if (::geteuid() != 0) return;
  std::ofstream(Path("foreign")) << "x";
  ASSERT_EQ(::chown(Path("foreign").c_str(), 65534, 65534), 0);
  EXPECT_FALSE(OpenOwn(Path("foreign"), O_RDONLY).open());
  EXPECT_FALSE(RemoveOwn(Path("foreign")));
}

TEST_F(OwnFile, LongNamesAreCut) {
  const std::string name(250, 'x');
  EXPECT_EQ(ReplaceFile(Path(name), "x", 0644), 0);
  EXPECT_EQ(Text(Path(name)), "x");
}

}  // namespace
}  // namespace lockstep
