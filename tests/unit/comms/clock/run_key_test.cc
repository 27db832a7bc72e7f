#include "comms/clock/run_key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace lockstep::clock {
namespace {

namespace fs = std::filesystem;

class SharedKey : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/lockstep-key-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    dir_ = pattern;
    path_ = dir_ + "/.clock-key";
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string dir_, path_;
};

TEST_F(SharedKey, FirstMakesItAllReadIt) {
  const auto first = SharedRunKey(dir_), second = SharedRunKey(dir_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first.value(), second.value());
  EXPECT_FALSE(IsEmpty(first.value()));
  struct stat about {};
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 1);  // Nothing else is left.
  RemoveSharedRunKey(dir_);
  EXPECT_NE(SharedRunKey(dir_).value(), first.value());
}

// Many processes at once agree.
TEST_F(SharedKey, ManyAtOnceAgree) {
  for (int round = 0; round < 5; ++round) {
    RemoveSharedRunKey(dir_);
    int answers[2];
    ASSERT_EQ(pipe(answers), 0);
    constexpr int kProcesses = 16;
    for (int i = 0; i < kProcesses; ++i) {
      if (fork() != 0) continue;
      const auto key = SharedRunKey(dir_);
      const RunKey none{};
      const RunKey& said = key.ok() ? key.value() : none;
      _exit(write(answers[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    std::set<RunKey> keys;
    for (int i = 0; i < kProcesses; ++i) {
      RunKey key{};
      ASSERT_EQ(read(answers[0], key.data(), key.size()), static_cast<ssize_t>(key.size()));
      keys.insert(key);
    }
    close(answers[0]);
    close(answers[1]);
    for (int i = 0; i < kProcesses; ++i) wait(nullptr);
    EXPECT_EQ(keys.size(), 1u);
    EXPECT_FALSE(IsEmpty(*keys.begin()));
    EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 1);
  }
}

TEST_F(SharedKey, OthersFilesAreNotBelieved) {
  const auto refused = [&](const char* why) {
    const auto key = SharedRunKey(dir_);
    ASSERT_FALSE(key.ok());
    EXPECT_NE(key.error().what.find(why), std::string::npos) << key.error().what;
    fs::remove_all(path_);
  };
  const auto put = [&](std::size_t bytes, mode_t mode) {
    std::ofstream(path_) << std::string(bytes, 'k');
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  };
  put(32, 0644);
  refused("others may read it");
  put(31, 0600);
  refused("no key");
  put(33, 0600);
  refused("no key");
  put(0, 0600);
  refused("no key");
  ASSERT_EQ(symlink("/etc/hostname", path_.c_str()), 0);
  refused("link");
  ASSERT_EQ(symlink((dir_ + "/absent").c_str(), path_.c_str()), 0);
  refused("link");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  refused("not a regular file");
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  refused("not a regular file");
  if (geteuid() == 0) {
    put(32, 0600);
    ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
    refused("another user");
  }
  fs::remove_all(dir_);
  EXPECT_FALSE(SharedRunKey(dir_).ok());
}

// RFC 4231 has no case with our prefix: the construction itself, against Python's hmac.
TEST(Proof, IsHmacSha256OverBothSidesWords) {
  RunKey key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::uint8_t>(i);
  const std::uint8_t hello[] = {1, 2, 3}, challenge[] = {4, 5};
  const Proof client = Prove(key, ProofOf::kClient, hello, challenge);
  const Proof server = Prove(key, ProofOf::kServer, hello, challenge);
  EXPECT_NE(client, server);
  // hmac.new(bytes(range(32)), b"lockstep clock 2 client" + bytes([1, 2, 3, 4, 5]), "sha256").hexdigest()
  const Proof expected = {0xff, 0xbe, 0xab, 0xaf, 0x27, 0xfc, 0xe4, 0x49, 0xb9, 0x70, 0xa8,
                          0xa6, 0x34, 0xbc, 0xdd, 0x03, 0x8b, 0x39, 0xd7, 0x6b, 0x00, 0xe3,
                          0x48, 0x61, 0x9e, 0x1e, 0x89, 0x26, 0x18, 0x58, 0x58, 0x20};
  EXPECT_EQ(client, expected);
  EXPECT_FALSE(SameSecret(client, server));
  EXPECT_FALSE(SameSecret({client.data(), 31}, client));
  EXPECT_TRUE(SameSecret(client, client));
}

}  // namespace
}  // namespace lockstep::clock
