// Files of slots whose program failed (runtime/agent/send/haste.h).

#include "runtime/agent/send/haste.h"
#include "tests/unit/runtime/agent/send_fixture.h"

namespace lockstep::agent {
namespace {

// What a failed slot sends is taken while rank 0's program runs, and what others send still is not.
TEST_F(Send, WhoIsInHasteIsServedAtOnce) {
  FileSender patient(From(2));
  EXPECT_TRUE(Eventually([&] { return receiver_->StateOf(2) == SenderState::kComing; }));
  EXPECT_FALSE(receiver_->hurried());
  const std::string noise = Noise(3 * kFileBlockBytes);
  EXPECT_TRUE(SendInHaste(From(3), Made("rank-00003.spool", noise), 60'000));
  EXPECT_EQ(There("rank-00003.spool"), noise);
  EXPECT_EQ(receiver_->arrived().slots, std::set<std::int32_t>{3});
  EXPECT_EQ(FilesThere(), 1u);
  EXPECT_TRUE(Eventually([&] { return !receiver_->hurried(); }));
  Begin();
  EXPECT_EQ(patient.Send({Made("rank-00002.h5", "later")}).end, SendEnd::kSent);
}

TEST_F(Send, HasteEndsInTimeAndLeavesNoHalf) {
  // Nobody answers there: the kernel takes connections, and no more.
  std::uint16_t port = 0;
  const net::Fd deaf = net::Listen(&port, true);
  FileSender::Setup setup = From(3);
  setup.addresses = "127.0.0.1:" + std::to_string(port);
  setup.reach_ms = 5000;
  EXPECT_FALSE(SendInHaste(setup, Made("rank-00003.spool", "x"), 50));
  int calls = 0;
  while (net::Fd(::accept(deaf.get(), nullptr, nullptr)).open()) ++calls;
  EXPECT_LT(calls, 3) << "its thread is not waited for, which calls five times";
  // Rank 0's agent ends in the middle of it.
  {
    const auto peer = Peer(4, true, clock::FilesWhy::kHaste);
    EXPECT_TRUE(receiver_->hurried());
    ASSERT_TRUE(Tell(*peer, FileWord::kFile, 10, 0, "rank-00004.spool"));
    ASSERT_EQ(Answer(*peer), FileWord::kFrom);
    ASSERT_TRUE(Tell(*peer, FileWord::kData, 0, 5, "12345"));
    EXPECT_TRUE(Eventually([&] { return receiver_->progress() >= 5; }));
    TearDown();
  }
  EXPECT_EQ(FilesThere(), 0u);
}

}  // namespace
}  // namespace lockstep::agent
