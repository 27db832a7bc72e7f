// Where hosts that do not share the run directory keep their files (runtime/agent/rundir/places.h).

#include "runtime/agent/rundir/places.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comms/launch/launch_env.h"
#include "runtime/agent/rundir/claim.h"
#include "temp_dir.h"

namespace lockstep::agent {
namespace {

namespace fs = std::filesystem;

class Places : public testing::Test {
 protected:
  Places() { fs::create_directories(run_ + "/ranks"); }
  std::string File() const { return run_ + "/ranks/.places"; }
  void Put(const std::string& text) const { std::ofstream(File(), std::ios::binary) << text; }

  TempDir dir_;
  const std::string run_ = dir_.path();
};

TEST_F(Places, NamesOfAllKindsComeBackAsTheyWere) {
  const std::vector<RunPlace> told = {
      {2, "node2", "/a b/\n'\"$(x)\xff"}, {4000, "h\xc3\xb6st", "/", 8}, {7, "node2", "/x"}};
  ASSERT_TRUE(WritePlaces(run_, told));
  const std::vector<RunPlace> read = ReadPlaces(run_);
  ASSERT_EQ(read.size(), told.size());
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(read[i].slot, told[i].slot);
    EXPECT_EQ(read[i].host, told[i].host);
    EXPECT_EQ(read[i].dir, told[i].dir);
    EXPECT_EQ(read[i].ranks, told[i].ranks);
  }
  EXPECT_TRUE(WritePlaces(run_, {}));
  EXPECT_FALSE(fs::exists(File()));
  RemovePlaces(run_);
}

TEST(ReachedBy, TheNameUnlessItLeadsElsewhereOrNowhere) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(ReachedBy({}, "node1"), Words());
  EXPECT_EQ(ReachedBy({{"node2", "10.0.0.2"}, {"h\xc3\xb6st", "10.0.0.3"}}, "node1"), (Words{"node2", "h\xc3\xb6st"}));
  EXPECT_EQ(ReachedBy({{"same", "10.0.0.2"}, {"node3", "10.0.0.3"}}, "same"), (Words{"10.0.0.2", "node3"}));
  EXPECT_EQ(ReachedBy({{"same", "10.0.0.2"}, {"same", "fd00::3"}}, "node1"), (Words{"10.0.0.2", "fd00::3"}));
  // One host told it twice; of another one no address is known.
  EXPECT_EQ(ReachedBy({{"node2", "10.0.0.2"}, {"node2", "10.0.0.2"}, {"node1", ""}}, "node1"),
            (Words{"node2", "node2", "node1"}));
  EXPECT_EQ(ReachedBy({{"a b;$(x)", "10.0.0.2"}, {"\x1b[31m", "10.0.0.3"}, {"-v", ""}}, "node1"),
            (Words{"10.0.0.2", "10.0.0.3", "-v"}));
}

TEST(NamesHost, WhatNoShellReadsOtherwise) {
  for (const char* host :
       {"node-1.x_y", "me@node1", "10.0.0.1", "fe80::1%eth0", "h\xc3\xb6st", "\xe8\x8a\x82\xe7\x82\xb9"})
    EXPECT_TRUE(NamesHost(host)) << host;
  for (const char* host : {"", "-v", "me@-v", "a b", "a;b", "$(x)", "`x`", "a\nb", "a'b", "a\\", "\x1b[31m", "h\xf6st",
                           "a\xe2\x80\xae"
                           "b",
                           "a\xe2\x80\xa8"
                           "b",
                           "a/b", "~", "*"})
    EXPECT_FALSE(NamesHost(host)) << host;
}

TEST_F(Places, WhoHasAClaimHereSharesTheDirectory) {
  launch::LaunchEnv launch;
  std::shared_ptr<const OwnedFd> held;
  int error = 0;
  ASSERT_EQ(MakeClaim(ClaimPath(run_, 2), launch, &held, &error), Claimed::kYes);
  ASSERT_TRUE(WritePlaces(run_, {{2, "node2", "/x"}, {4, "node3", "/x"}}));
  const std::vector<RunPlace> read = ReadPlaces(run_);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].host, "node3");
}

TEST_F(Places, WhatIsDamagedTellsNothing) {
  EXPECT_TRUE(ReadPlaces(run_).empty());
  EXPECT_TRUE(ReadPlaces(run_ + "/nowhere").empty());
  const std::string whole("2\0node2\0/x\0-1\0", 14);
  Put(whole);
  ASSERT_EQ(ReadPlaces(run_).size(), 1u);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    Put(whole.substr(0, length));
    EXPECT_TRUE(ReadPlaces(run_).empty()) << length;
  }
  for (const std::string& text :
       {std::string("x\0node2\0/x\0002\0", 13), std::string("-1\0node2\0/x\0002\0", 14),
        std::string("2\0\0/x\0002\0", 8), std::string("2\0node2\0x\0002\0", 12),
        std::string("99999999999\0node2\0/x\0002\0", 23), std::string("2x\0node2\0/x\0002\0", 14),
        std::string("2\0node2\0/x\0-2\0", 14), std::string("2\0node2\0/x\0two\0", 15)}) {
    Put(whole + text);
    EXPECT_TRUE(ReadPlaces(run_).empty()) << text;
  }
}

TEST_F(Places, HowManyRanksNobodyToldOf) {
  EXPECT_EQ(NotTold(run_, {}, 0), 0);
  EXPECT_EQ(NotTold(run_, {}, 4), 4);
  launch::LaunchEnv launch;
  std::shared_ptr<const OwnedFd> held[2];
  int error = 0;
  for (const int slot : {0, 1}) ASSERT_EQ(MakeClaim(ClaimPath(run_, slot), launch, &held[slot], &error), Claimed::kYes);
  EXPECT_EQ(NotTold(run_, {{2, "node2", "/x", 2}}, 8), 4);
  EXPECT_EQ(NotTold(run_, {{2, "node2", "/x", 2}, {4, "node3", "/x", 4}}, 8), 0);
  // Two of a host told, one shares the directory.
  EXPECT_EQ(NotTold(run_, {{2, "node2", "/x", 2}, {3, "node2", "/x", 2}, {1, "node1", "/y", 2}}, 8), 4);
  EXPECT_EQ(NotTold(run_, {{2, "node2", "/x", 2}, {4, "node3", "/x"}}, 8), 0) << "nobody knows";
  EXPECT_EQ(NotTold(run_, {{2, "node2", "/x", INT32_MAX}, {4, "node3", "/x", INT32_MAX}}, 8), 0);
}

TEST(PlaceTexts, WhatIsNoneIsLeftOut) {
  const std::string nul(1, '\0');
  const std::vector<RunPlace> places = PlacesOf({{2, PlaceText("node2", "/a b", 4), "10.0.0.2"},
                                                 {3, "", ""},
                                                 {4, "node3", ""},
                                                 {5, "node3" + nul + "/x", ""},
                                                 {6, "node3" + nul + "/x" + nul + "four", ""},
                                                 {7, "node3" + nul + "/x" + nul + "4" + nul, ""},
                                                 {8, PlaceText("node1", "/y", -1), "10.0.0.3"}},
                                                "node1");
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ((std::tuple(places[0].slot, places[0].host, places[0].dir, places[0].ranks)),
            std::tuple(2, "node2", "/a b", 4));
  EXPECT_EQ((std::tuple(places[1].slot, places[1].host, places[1].ranks)), std::tuple(8, "10.0.0.3", -1))
      << "of this host's name";
}

TEST_F(Places, ALinkIsNotFollowed) {
  const std::string other = dir_.path() + "/other";
  std::ofstream(other) << "kept";
  fs::create_symlink(other, File());
  EXPECT_TRUE(ReadPlaces(run_).empty());
  ASSERT_TRUE(WritePlaces(run_, {{2, "node2", "/x"}}));
  EXPECT_EQ(ReadPlaces(run_).size(), 1u);
  std::string text;
  std::ifstream(other) >> text;
  EXPECT_EQ(text, "kept");
}

}  // namespace
}  // namespace lockstep::agent
