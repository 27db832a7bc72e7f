// When the watch for hangs asks who holds the job up, by a clock of the test's own.

#include "runtime/agent/hang/hang_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "core/window.h"
#include "runtime/agent/rundir/claim.h"
#include "tests/unit/eventually.h"
#include "tests/unit/runtime/agent/temp_dir.h"

namespace lockstep::agent {
namespace {

constexpr std::int64_t kWatchSecond = 1'000'000'000, kWatchLook = kWatchSecond / 10, kWatchAfter = 3 * kWatchSecond;

class HangWatchTest : public ::testing::Test {
 protected:
  HangWatchTest() {
    segment_.header().rings_used = segment_.header().processes_used = 1;
    segment_.processes()[0].state = SlotState::kActive;
    RingEntry& entry = segment_.rings()[0];
    entry.offset = kArenaOffset;
    entry.state = SlotState::kActive;
    TurnState(segment_.windows()[0], true);
    FollowState(segment_.windows()[0]);
    std::filesystem::create_directory(dir_.path() + "/ranks");
    for (const std::int32_t slot : {0, 1}) std::ofstream(ClaimPath(dir_.path(), slot)) << slot;  // All are here.
    std::ofstream(program_) << "#!/bin/sh\necho 'HANG  who'\nexit 4\n";
    std::filesystem::permissions(program_, std::filesystem::perms::owner_all);
    watch_.emplace(HangWatch::Setup{.run_dir = dir_.path(),
                                    .slots = 2,
                                    .after_ns = kWatchAfter,
                                    .say = [this](const std::string& text) { said_ += text + "\n"; },
                                    .restore_signals = [] {},
                                    .program = program_});
  }

  // Until `until_ns`, with so many records.
  void Look(std::int64_t until_ns, std::uint64_t records) {
    for (; now_ns_ < until_ns; now_ns_ += kWatchLook) watch_->Look(segment_, now_ns_, {.records = records});
  }
  void Enter(std::uint64_t ticks) {
    RingHeader& ring = segment_.ring(kArenaOffset);
    ring.call_begin_ticks = ticks;
    ring.call_op = 1;
  }
  // The answer is looked for by whoever has this.
  bool asked() const { return std::filesystem::exists(dir_.path() + "/.hang-turn"); }

  TempDir dir_;
  const std::string program_ = dir_.path() + "/answer";
  std::vector<std::byte> memory_ = std::vector<std::byte>(kArenaOffset + kRingHeaderBytes);
  const SegmentView segment_{memory_.data(), memory_.size()};
  std::int64_t now_ns_ = kWatchSecond;
  std::string said_;
  std::optional<HangWatch> watch_;
};

TEST_F(HangWatchTest, AsksAsSoonAsItIsTime) {
  Look(5 * kWatchSecond, 10);
  Enter(1);
  Look(now_ns_ + kWatchLook, 11);  // The last record.
  const std::int64_t since_ns = now_ns_;
  Look(since_ns + kWatchAfter, 11);
  EXPECT_FALSE(asked());
  Look(since_ns + kWatchAfter + kWatchSecond / 2, 11);
  EXPECT_TRUE(asked());
  EXPECT_TRUE(test::Eventually([&] {
    watch_->Look(segment_, now_ns_, {.records = 11});
    return said_.find("HANG  who") != std::string::npos;
  })) << said_;
}

TEST_F(HangWatchTest, TimeInWhichItComputedIsNoWait) {
  Look(2 * kWatchSecond, 10);
  Look(now_ns_ + kWatchAfter - kWatchLook, 10);
  Enter(1);
  const std::int64_t since_ns = now_ns_;
  Look(since_ns + kWatchAfter, 10);
  EXPECT_FALSE(asked());
  Look(since_ns + kWatchAfter + kWatchSecond / 2, 10);
  EXPECT_TRUE(asked());
}

// Whom the others wait for may have come to its own wait later than they did.
TEST_F(HangWatchTest, AsksAgainWhenAYoungWaitIsOldEnough) {
  const std::string answers = dir_.path() + "/answers";
  std::ofstream(program_) << "#!/bin/sh\n[ -e " << answers << " ] && exit 4\n"
                          << "echo '{\"oldest_young_ns\": 1000000000}' > \"$8\"\ntouch " << answers << "\n";
  Enter(1);
  Look(now_ns_ + kWatchLook, 11);
  const std::int64_t since_ns = now_ns_;
  Look(since_ns + kWatchAfter + kWatchSecond / 2, 11);
  EXPECT_TRUE(test::Eventually([&] {
    watch_->Look(segment_, now_ns_, {.records = 11});
    return std::filesystem::exists(answers) && !std::filesystem::exists(dir_.path() + "/.hang-text");
  }));
  Look(since_ns + kWatchAfter + 2 * kWatchSecond, 11);
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + "/.hang-text"));
  Look(since_ns + kWatchAfter + 3 * kWatchSecond, 11);
  EXPECT_TRUE(test::Eventually([&] {
    watch_->Look(segment_, now_ns_, {.records = 11});
    return said_.find("nothing has moved") != std::string::npos;
  }));
}

TEST_F(HangWatchTest, WhoMovesIsNotAskedFor) {
  Enter(1);
  for (std::uint64_t records = 1; records < 100; ++records) Look(now_ns_ + kWatchLook, records);
  EXPECT_FALSE(asked());
}

}  // namespace
}  // namespace lockstep::agent
