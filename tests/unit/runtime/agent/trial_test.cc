// What an agent is told of a run of `lockstep tune`.

#include "runtime/agent/slot/trial.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/env.h"

namespace lockstep::agent {
namespace {

TEST(Trial, AssignmentsAreWrittenAndRead) {
  const Assignments two = {{"OMP_NUM_THREADS", "2"}, {"EMPTY", ""}};
  EXPECT_EQ(AssignmentText(two), "OMP_NUM_THREADS=2,EMPTY=");
  EXPECT_EQ(ParseAssignments(AssignmentText(two)), two);
  EXPECT_EQ(ParseAssignments("A=b=c"), (Assignments{{"A", "b=c"}}));
  for (const char* nothing : {"", ",", "=", "=x", "name", ",,=,"}) EXPECT_TRUE(ParseAssignments(nothing).empty());
}

TEST(Trial, OnlyANumberOfStepsEndsAnything) {
  for (const char* text : {"", "x", "-3", "0", "5x", "99999999999999999999"}) {
    ::setenv(env::kTrialSteps, text, 1);
    EXPECT_EQ(ReadTrial().steps, 0) << text;
  }
  ::setenv(env::kTrialSteps, "40", 1);
  EXPECT_EQ(ReadTrial().steps, 40);
  ::unsetenv(env::kTrialSteps);
  EXPECT_EQ(ReadTrial().steps, 0);
  EXPECT_TRUE(ReadTrial().variables.empty());
}

}  // namespace
}  // namespace lockstep::agent
