#include "merge/match/p2p_progress.h"

#include <gtest/gtest.h>

#include "fixture.h"

namespace lockstep::test {
namespace {

constexpr std::int64_t kHaloMs = 1'000'000;

// Both ranks post what they exchange, work (rank 1 twice as long), and complete it; the waits of rank 0 end `after`
// rank 1 comes to its call.
void Halos(Merged& m, int rounds, std::int64_t after_ns, std::uint64_t bytes = 1 << 20) {
  for (int i = 0; i < rounds; ++i) {
    const std::int64_t t = 30 * kHaloMs * i, work[] = {10 * kHaloMs, 20 * kHaloMs};
    const std::int64_t end = t + work[1] + after_ns;
    for (int r = 0; r < 2; ++r) {
      for (const bool receive : {true, false}) {
        const std::int64_t post = t + 5000 * r + (receive ? 0 : 2000), wait = t + work[r];
        m[r].Call(receive ? MpiOp::kIrecv : MpiOp::kIsend, post, post + 1000);
        m[r].t.p2p.Append({.comm = 0,
                           .direction = static_cast<std::uint8_t>(receive),
                           .mode = 1,
                           .peer = 1 - r,
                           .peer_world_rank = 1 - r,
                           .seq = static_cast<std::uint64_t>(i),
                           .thread = 0,
                           .begin_ns = post,
                           .post_end_ns = post + 1000,
                           .last_incomplete_ns = schema::kNoTime,
                           .wait_begin_ns = wait,
                           .end_ns = end,
                           .bytes = bytes,
                           .call = schema::kNone});
      }
      m[r].Call(MpiOp::kWaitall, t + work[r], end);
    }
  }
}

TEST(P2pProgress, WhoComputesWithItsHalvesPostedIsLate) {
  Merged m(2);
  Halos(m, 5, kHaloMs / 10);
  m.Run();
  EXPECT_EQ(m.terms[0].message_wait_ns, 5 * 10 * kHaloMs);
  EXPECT_EQ(m.terms[1].message_wait_ns, 0);
  EXPECT_EQ(m.p2p.partner_begin_ns[0][0], 20 * kHaloMs);
}

TEST(P2pProgress, NotWhereTheEndHasNothingToDoWithIt) {
  Merged m(2);
  Halos(m, 5, 8 * kHaloMs);  // It takes as long as it takes.
  m.Run();
  EXPECT_EQ(m.terms[0].message_wait_ns, 0);
  EXPECT_EQ(m.p2p.partner_begin_ns[0][0], 7000);
}

TEST(P2pProgress, TwoAreTooFewToTell) {
  Merged m(2);
  Halos(m, 1, kHaloMs / 10);  // A message each way.
  m.Run();
  EXPECT_EQ(m.terms[0].message_wait_ns, 0);
}

}  // namespace
}  // namespace lockstep::test
