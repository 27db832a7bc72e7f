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

TEST_F(OwnFile, OfTwoThatCreateAFileTheFirstOnesStays) {
  EXPECT_EQ(CreateFile(Path("word"), "first", 0600), 0);
  EXPECT_EQ(CreateFile(Path("word"), "second", 0600), EEXIST);
  EXPECT_EQ(Text(Path("word")), "first");
  EXPECT_EQ(fs::status(Path("word")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("elsewhere", Path("link"));
  EXPECT_EQ(CreateFile(Path("link"), "x", 0600), EEXIST);
  EXPECT_EQ(CreateFile(Path("nowhere/x"), "x", 0600), ENOENT);
  EXPECT_EQ(Entries(), 2);  // Nothing half done is left.
}

TEST_F(OwnFile, PlainFilesAreReadAndNothingElse) {
  std::ofstream(Path("file")) << "0123456789";
  fs::create_symlink("file", Path("link"));
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  fs::create_directory(Path("directory"));
  EXPECT_EQ(ReadPlain(Path("file"), 100), "0123456789");
  EXPECT_EQ(ReadPlain(Path("file"), 4), "0123");
  for (const char* name : {"link", "pipe", "directory", "nothing"}) EXPECT_EQ(ReadPlain(Path(name), 100), "") << name;
  EXPECT_FALSE(OpenPlain(Path("link"), O_RDONLY).open());
  EXPECT_EQ(errno, ELOOP);
  EXPECT_FALSE(OpenPlain(Path("pipe"), O_RDONLY).open());
  EXPECT_EQ(errno, EINVAL);
  const OwnedFd fd = OpenPlain(Path("file"), O_RDONLY);
  char text[4];
  EXPECT_TRUE(ReadAt(fd.get(), 6, text, 4));
  EXPECT_EQ(std::string_view(text, 4), "6789");
  EXPECT_FALSE(ReadAt(fd.get(), 7, text, 4));
  EXPECT_EQ(WriteAll(fd.get(), "x"), EBADF);
}

TEST_F(OwnFile, NamesAreWhatIsBehindTheLastSlash) {
  EXPECT_EQ(BaseName("/a/b.c"), "b.c");
  EXPECT_EQ(BaseName("b.c"), "b.c");
  EXPECT_EQ(BaseName("a/"), "");
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
