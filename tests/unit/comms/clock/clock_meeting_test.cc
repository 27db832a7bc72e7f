#include "comms/clock/clock_meeting.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace lockstep::clock {
namespace {

class ClockMeeting : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/lockstep-meeting-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
};

TEST_F(ClockMeeting, EveryoneReadsWhatEveryoneWrote) {
  ASSERT_TRUE(PublishAnnouncement(dir_, {3, 4, 0xfedcba9876543210u, "127.0.0.1:1,[fd00::1]:1", true}).ok());
  ASSERT_TRUE(PublishAnnouncement(dir_, {0, 4, 5, "", false}).ok());
  ASSERT_TRUE(PublishAnnouncement(dir_, {123456, 200000, 5, "10.0.0.1:9", false}).ok());
  const auto all = ReadAnnouncements(dir_);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].rank, 0);
  EXPECT_EQ(all[0].address, "");
  EXPECT_FALSE(all[0].can_mpi);
  EXPECT_EQ(all[1].rank, 3);
  EXPECT_TRUE(all[1].can_mpi);
  EXPECT_EQ(all[1].world_size, 4);
  EXPECT_EQ(all[1].domain, 0xfedcba9876543210u);
  EXPECT_EQ(all[1].address, "127.0.0.1:1,[fd00::1]:1");
  EXPECT_EQ(all[2].rank, 123456);
  EXPECT_FALSE(OneDomain(all));
  RemoveAnnouncement(dir_, 3);
  EXPECT_FALSE(ReadAnnouncement(dir_, 3).has_value());
  EXPECT_TRUE(OneDomain(ReadAnnouncements(dir_)));
}

TEST_F(ClockMeeting, AnyNumberOfAddresses) {
  std::string address = "127.0.0.1:40123";
  for (int i = 0; i < 200; ++i)
    address += ",10.0." + std::to_string(i) + ".3:40123,[fd00::" + std::to_string(i) + "]:40123";
  ASSERT_TRUE(PublishAnnouncement(dir_, {0, 2, 5, address, false}).ok());
  EXPECT_EQ(ReadAnnouncement(dir_, 0)->address, address);
}

TEST_F(ClockMeeting, GarbageAndHalfFilesAreNobody) {
  std::ofstream(dir_ + "/.clock-00001") << "1 4 00";
  std::ofstream(dir_ + "/.clock-00002") << "hello\n";
  std::ofstream(dir_ + "/.clock-00003.part77") << "3 4 05 0 -\n";
  std::ofstream(dir_ + "/.clock-00004") << "";
  EXPECT_TRUE(ReadAnnouncements(dir_).empty());
  EXPECT_FALSE(ReadClockPlan(dir_).has_value());
  std::ofstream(dir_ + "/.clock-plan") << "mp";
  EXPECT_FALSE(ReadClockPlan(dir_).has_value());
  ASSERT_TRUE(PublishClockPlan(dir_, true).ok());
  EXPECT_TRUE(ReadClockPlan(dir_).value());
}

TEST_F(ClockMeeting, UnwritableDirectoryIsAnErrorWithAPath) {
  const auto status = PublishAnnouncement(dir_ + "/absent", {0, 1, 1, "", false});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().where.find("absent"), std::string::npos);
}

TEST_F(ClockMeeting, WhereRank0sAgentIsIsReadByThisUserAlone) {
  EXPECT_FALSE(ReadPublishedReference(dir_).has_value());
  Reference told;
  std::snprintf(told.address, sizeof told.address, "10.0.0.1:9,[fd00::1]:9");
  told.domain = 0xfedcba9876543210u;
  for (std::size_t i = 0; i < sizeof told.key; ++i) told.key[i] = static_cast<std::uint8_t>(7 * i + 200);
  ASSERT_TRUE(PublishReference(dir_, told).ok());
  const std::string path = dir_ + "/.clock-reference";
  struct stat about {};
  ASSERT_EQ(stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  const auto read = ReadPublishedReference(dir_);
  ASSERT_TRUE(read.has_value());
  EXPECT_STREQ(read->address, told.address);
  EXPECT_EQ(read->domain, told.domain);
  EXPECT_EQ(std::memcmp(read->key, told.key, sizeof told.key), 0);
  // Of another time: the last word counts.
  told.domain = 5;
  ASSERT_TRUE(PublishReference(dir_, told).ok());
  EXPECT_EQ(ReadPublishedReference(dir_)->domain, 5u);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_FALSE(ReadPublishedReference(dir_).has_value());
  RemovePublishedReference(dir_);
  EXPECT_NE(stat(path.c_str(), &about), 0);
  ASSERT_EQ(symlink("/dev/zero", path.c_str()), 0);
  EXPECT_FALSE(ReadPublishedReference(dir_).has_value());
}

TEST(ReferenceText, IsReadAsItWasWrittenAndNothingElseIs) {
  Reference told, read;
  for (std::size_t i = 0; i + 1 < sizeof told.address; ++i) told.address[i] = static_cast<char>('0' + i % 10);
  told.key[31] = 1;
  told.domain = 1;
  char text[kReferenceTextBytes];
  const std::size_t bytes = WriteReference(told, text);
  ASSERT_EQ(bytes, std::strlen(text));
  ASSERT_LT(bytes, sizeof text);
  ASSERT_TRUE(ReadReference(text, read));
  EXPECT_STREQ(read.address, told.address);
  EXPECT_EQ(read.key[31], 1);
  EXPECT_EQ(read.domain, 1u);
  const std::string whole = text, longer = whole + "1";
  EXPECT_FALSE(ReadReference(longer.c_str(), read));
  for (std::size_t length = 0; length <= kReferenceKeyDigits + kReferenceDomainDigits; ++length)
    EXPECT_FALSE(ReadReference(whole.substr(0, length).c_str(), read)) << length;
  EXPECT_FALSE(ReadReference(("G" + whole.substr(1)).c_str(), read));
  // A key that is none.
  EXPECT_FALSE(
      ReadReference((std::string(kReferenceKeyDigits, '0') + whole.substr(kReferenceKeyDigits)).c_str(), read));
}

}  // namespace
}  // namespace lockstep::clock
