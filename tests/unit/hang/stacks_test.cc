#include "hang/stacks.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "analysis/words/render.h"
#include "hang/text.h"
#include "jobs.h"

namespace lockstep::hang {
namespace {

Thread Main(std::vector<Frame> frames) {
  return {.number = 1, .name = "python3", .main = true, .frames = std::move(frames)};
}

const Frame kSleep{.function = "clock_nanosleep", .file = "libc.so.6", .library = true};
const Frame kBackward{.function = "backward", .file = "_tensor.py", .line = 5, .python = true, .library = true};

Frame Own(std::string function, std::int32_t line) {
  return {.function = function, .file = "train.py", .line = line, .python = true};
}

TEST(HangStacksInWords, OfWhoIsNamedAndOfWhoWaits) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 5, 4), At(2, 4, 4)})});
  job.ranks[2].doing = "asleep";
  job.ranks[2].stacks_file = "stacks/rank-00000.txt";  // One agent has several ranks.
  job.ranks[2].threads = {Main({kSleep, Own("collate", 88), Own("main", 9)}),
                          {.number = 2, .name = "gloo", .frames = {kSleep}}};
  for (const std::size_t rank : {0U, 1U})
    job.ranks[rank].threads = {Main({kSleep, kSleep, kBackward, Own("step", 40)})};
  const Judgement judgement = Judge(job, {});
  const std::string said = TextOf(job, judgement, false);
  EXPECT_NE(said.find("      rank 2 is asleep, in collate, train.py:88\n"
                      "      stack of rank 2 (stacks/rank-00000.txt has all of its 2 threads):\n"
                      "        clock_nanosleep, libc.so.6\n"
                      "        collate, train.py:88\n"
                      "        main, train.py:9\n"
                      "      2 others: backward <- step (train.py:40)\n"),
            std::string::npos)
      << said;
  const auto json = nlohmann::json::parse(JsonOf(job, judgement));
  const auto& stacks = json["verdicts"][0]["stacks"];
  EXPECT_EQ(stacks.size(), 4U);  // Every thread of rank 2.
  EXPECT_EQ(stacks[0]["rank"], 2);
  EXPECT_EQ(stacks[0]["frames"][1]["function"], "collate");
}

TEST(HangStacksInWords, WhoHasTheLockThatIsWaitedFor) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4)})});
  Thread main = Main({kSleep, Own("step", 13)});
  main.waits_for = "Python's GIL";
  main.held_by = 7;
  job.ranks[1].threads = {main, {.number = 7, .name = "loader", .frames = {kSleep, Own("fetch", 40)}}};
  std::string said = TextOf(job, Judge(job, {}), false);
  EXPECT_NE(said.find("        step, train.py:13\n"
                      "      rank 1 waits for Python's GIL, which its thread 7 (loader) has:\n"
                      "        clock_nanosleep, libc.so.6\n"
                      "        fetch, train.py:40\n"),
            std::string::npos)
      << said;
  const auto json = nlohmann::json::parse(JsonOf(job, Judge(job, {})));
  EXPECT_EQ(json["verdicts"][0]["stacks"][0]["held_by"], 7);
  EXPECT_EQ(json["verdicts"][0]["stacks"][1]["held_by"], nullptr);
  // It has ended, or there were too many threads.
  job.ranks[1].threads.pop_back();
  said = TextOf(job, Judge(job, {}), false);
  EXPECT_NE(said.find("      rank 1 waits for Python's GIL, which its thread 7 has\n"), std::string::npos) << said;
  job.ranks[1].threads[0].held_by = 0;
  said = TextOf(job, Judge(job, {}), false);
  EXPECT_NE(said.find("      rank 1 waits for Python's GIL; who has it is not known\n"), std::string::npos) << said;
}

TEST(HangStacksInWords, WhatIsNotKnownIsSaidOrLeftOut) {
  Progress job = JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4)})});
  job.ranks[1].no_stacks = "Yama forbids it\n: sysctl";
  std::string said = TextOf(job, Judge(job, {}), false);
  EXPECT_NE(said.find("      there is no stack of rank 1: Yama forbids it\\x0a: sysctl\n"), std::string::npos) << said;
  job.ranks[1].no_stacks = "";
  job.ranks[1].threads = {Main({})};
  said = TextOf(job, Judge(job, {}), false);
  EXPECT_EQ(said.find("stack of"), std::string::npos) << said;
  job.ranks[1].threads = {Main({kSleep})};  // Nobody left a file.
  said = TextOf(job, Judge(job, {}), false);
  EXPECT_NE(said.find("      stack of rank 1:\n"), std::string::npos) << said;
}

TEST(HangStacksInWords, ManyThatAreNamedAreToldTogether) {
  Progress job =
      JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4), At(2, 4, 4), At(3, 4, 4), At(4, 5, 4), At(5, 5, 4), At(6, 5, 4)})});
  for (RankFacts& facts : job.ranks) facts.threads = {Main({kSleep, Own("collate", 88)})};
  const std::vector<analysis::Clause> lines = BriefStacks(job, {1, 2, 3}, false);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(analysis::Rendered(lines[0]), "ranks 1-3: clock_nanosleep <- collate (train.py:88)");
}

TEST(HangStacksInWords, ThePlaceIsTheJobsOwnCode) {
  RankFacts facts;
  EXPECT_EQ(PlaceOf(facts), nullptr);
  const auto place = [&] { return analysis::Rendered(SayFrame(*PlaceOf(facts))); };
  facts.threads = {Main({kSleep, kBackward})};
  EXPECT_EQ(place(), "backward, _tensor.py:5");
  facts.threads[0].frames.push_back(Own("step", 40));
  EXPECT_EQ(place(), "step, train.py:40");
  const Thread deep = Main(std::vector<Frame>(100, Own("f", 1)));
  EXPECT_EQ(FramesThatMatter(deep, 8).size(), 8U);
}

}  // namespace
}  // namespace lockstep::hang
