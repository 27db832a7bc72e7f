// Rows of calls in which the training thread was blocked.

#include <gtest/gtest.h>

#include "core/blocked_calls.h"
#include "tests/unit/trace/decode_fixture.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;
using Kind = schema::BlockedKind;

class DecodeBlocked : public DecodeTest {};

struct Blocked {
  BlockedCall call;
  std::uint8_t kind;
  std::uint64_t begin_us, end_us, object = 0;
  bool timed_out = false;
  std::int64_t others_cpu_ns = -1;
  std::uint64_t woken_us = 0;
  std::uint32_t waker_tid = 0, module = 0, detail = 0;
};
BlockedRecord RecordOf(const Blocked& b) {
  return {{RecordKind::kBlocked, static_cast<std::uint8_t>(b.kind | (b.timed_out ? kBlockedTimedOut : 0)), 2},
          static_cast<std::uint16_t>(b.call),
          0,
          1000 * b.begin_us,
          1000 * b.end_us,
          b.object,
          1000 * b.woken_us,
          b.others_cpu_ns,
          b.waker_tid,
          b.module,
          b.detail,
          0};
}

TEST_F(DecodeBlocked, RowsAreThoseOfTheTrainingThread) {
  ThreadRecords training, helper;
  training.String(1, "/bin/app").String(2, "/data/file").Step(0, 1000, 1);
  // As they were written: the inner one, of a signal's handler, first.
  training.Add(RecordOf({BlockedCall::nanosleep, Kind::kSleep, 510, 540, 0, true}));
  training.Add(RecordOf({BlockedCall::pread, Kind::kFile, 500, 600, 5, false, -1, 0, 0, 1, 2}));
  training.Add(RecordOf({BlockedCall::pthread_cond_wait, Kind::kCondition, 700, 900, 0x70, false, 1234, 880, 101, 1}));
  training.Add(RecordOf({BlockedCall::sem_wait, Kind::kSemaphore, 910, 929, 0x71}));  // Too short.
  training.Add(RecordOf({BlockedCall::sem_wait, Kind::kSemaphore, 930, 950, 0x71, false, -1, 949, 999}));
  training.Add(RecordOf({static_cast<BlockedCall>(60'000), 120, 960, 990}));  // Of a later version.
  helper.Range(0, 1'000, 2'000, 0).Add(RecordOf({BlockedCall::poll, Kind::kSocket, 100, 400, 3}));
  const auto t =
      Tables(SpoolBuilder().Meta().Process().Thread(0, 100).Thread(1, 101).Records(training, 0).Records(helper, 1));
  const auto& b = t.blocked;
  EXPECT_EQ(b.begin_ns, (std::vector<std::int64_t>{500'000, 700'000, 930'000, 960'000}));
  EXPECT_EQ(b.duration_ns, (std::vector<std::int64_t>{100'000, 200'000, 20'000, 30'000}));
  EXPECT_EQ(b.thread, (std::vector<std::uint32_t>{0, 0, 0, 0}));
  EXPECT_EQ(b.kind, (std::vector<std::uint8_t>{Kind::kFile, Kind::kCondition, Kind::kSemaphore, Kind::kOther}));
  EXPECT_EQ(b.waker, (std::vector<std::uint32_t>{kNone, 1, kNone, kNone}));
  EXPECT_EQ(b.woken_ns, (std::vector<std::int64_t>{kNoTime, 880'000, 949'000, kNoTime}));
  EXPECT_EQ(b.others_cpu_ns, (std::vector<std::int64_t>{-1, 1234, -1, -1}));
  EXPECT_EQ(TextOf(t, b.function[0]), "pread");
  EXPECT_EQ(TextOf(t, b.function[3]), "?");
  EXPECT_EQ(TextOf(t, b.module[1]), "/bin/app");
  EXPECT_EQ(TextOf(t, b.detail[0]), "/data/file");
  EXPECT_EQ(b.detail[1], kNone);
  EXPECT_EQ(b.caller[1], kNone);
  EXPECT_EQ(LossCount(t, "UnknownRecord"), 0u);
}

TEST_F(DecodeBlocked, TurnsForPythonsLockAreOneWait) {
  ThreadRecords r;
  const auto turn = [&](std::uint64_t begin_us, std::uint64_t end_us, bool timed_out, std::int64_t others_cpu_ns,
                        std::uint64_t object = 0x80) {
    r.Add(RecordOf({BlockedCall::pthread_cond_timedwait, Kind::kPython, begin_us, end_us, object, timed_out,
                    others_cpu_ns, timed_out ? 0 : end_us - 1}));
  };
  turn(1'000, 6'000, true, 10);
  turn(6'005, 11'010, true, 20);
  turn(11'020, 12'000, false, 30);
  turn(12'010, 13'000, false, 40);  // Had it in between.
  turn(20'000, 25'000, true, 50);
  turn(25'200, 26'000, true, -1);  // Much later: another wait.
  turn(26'010, 27'000, false, 1, 0x81);
  const auto t = TablesOf(r);
  EXPECT_EQ(t.blocked.begin_ns, (std::vector<std::int64_t>{1'000'000, 12'010'000, 20'000'000, 25'200'000, 26'010'000}));
  EXPECT_EQ(t.blocked.duration_ns, (std::vector<std::int64_t>{11'000'000, 990'000, 5'000'000, 800'000, 990'000}));
  EXPECT_EQ(t.blocked.others_cpu_ns, (std::vector<std::int64_t>{60, 40, 50, -1, 1}));
  EXPECT_EQ(t.blocked.timed_out, (std::vector<std::uint8_t>{0, 0, 1, 1, 0}));
  EXPECT_EQ(t.blocked.woken_ns[0], 11'999'000);
}

}  // namespace
}  // namespace lockstep::trace
