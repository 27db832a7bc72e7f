#include "runtime/agent/inject/libraries.h"

#include <gtest/gtest.h>

#include "runtime/agent/slot/manifest.h"

namespace lockstep::agent {
namespace {

const Libraries kOurs{.probe = "/l/liblockstep.so", .mpi = "/l/liblockstep-mpi.so", .clock_program = ""};

TEST(Preload, OthersStayFirstAndOursAreNotDoubled) {
  EXPECT_EQ(PreloadValue("", kOurs), "/l/liblockstep.so:/l/liblockstep-mpi.so");
  EXPECT_EQ(PreloadValue("libasan.so.8", kOurs), "libasan.so.8:/l/liblockstep.so:/l/liblockstep-mpi.so");
  EXPECT_EQ(PreloadValue("/a/x.so /b/y.so:/old/liblockstep.so", kOurs),
            "/a/x.so:/b/y.so:/l/liblockstep.so:/l/liblockstep-mpi.so");
  EXPECT_EQ(PreloadValue("/a/x.so:/usr/lib/libmpi.so.40:/b/y.so", kOurs),
            "/a/x.so:/l/liblockstep.so:/l/liblockstep-mpi.so:/usr/lib/libmpi.so.40:/b/y.so");
  EXPECT_EQ(PreloadValue("", {.probe = "/l/liblockstep.so", .mpi = "", .clock_program = ""}), "/l/liblockstep.so");
}

TEST(Environment, ChangesReplaceAndAdd) {
  ::setenv("LOCKSTEP_TEST_A", "1", 1);
  ::unsetenv("LOCKSTEP_TEST_B");
  int a = 0, b = 0;
  for (const std::string& word : EnvironmentWith({{"LOCKSTEP_TEST_A", "2"}, {"LOCKSTEP_TEST_B", "3"}})) {
    a += word == "LOCKSTEP_TEST_A=2";
    b += word == "LOCKSTEP_TEST_B=3";
    EXPECT_NE(word, "LOCKSTEP_TEST_A=1");
  }
  ::unsetenv("LOCKSTEP_TEST_A");
  EXPECT_EQ(a, 1);
  EXPECT_EQ(b, 1);
}

TEST(ShellQuote, ReadsBack) {
  EXPECT_EQ(ShellQuote({"a", "b c", "", "it's", "-x=1", "$HOME"}), "a 'b c' '' 'it'\\''s' -x=1 '$HOME'");
}

}  // namespace
}  // namespace lockstep::agent
