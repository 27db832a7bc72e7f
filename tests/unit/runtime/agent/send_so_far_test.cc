// What quiet slots recorded so far, for whoever looks for a hang (runtime/agent/send/so_far.h).

#include "runtime/agent/send/haste.h"
#include "runtime/agent/send/so_far.h"
#include "tests/unit/runtime/agent/send_fixture.h"

namespace lockstep::agent {
namespace {

constexpr std::int64_t kLookNs = 1'000'000'000;

class SendSoFar : public Send {
 protected:
  static constexpr const char* kName = "rank-00003.spool";

  SoFarSender::Setup Slot3(const std::string& contents) const {
    return {.call = [this] { return std::optional(From(3)); }, .spool = Made(kName, contents)};
  }
  bool Is(const std::string& contents) const {
    return Eventually([&] { return fs::exists(there_ + "/ranks/" + kName) && There(kName) == contents; });
  }
};

TEST_F(SendSoFar, ItIsThereUntilItIsTakenBack) {
  SoFarSender sender(Slot3("so far"));
  EXPECT_FALSE(sender.there());
  EXPECT_FALSE(so_far_->holds_any());
  sender.Offer(kLookNs, 6);  // Nothing has begun at rank 0, whose program runs.
  EXPECT_TRUE(Eventually([&] { return sender.there(); }));
  EXPECT_TRUE(Is("so far"));
  EXPECT_TRUE(so_far_->holds_any());
  EXPECT_EQ(receiver_->arrived().slots.size(), 0u);
  EXPECT_EQ(receiver_->StateOf(3), SenderState::kUnknown);
  sender.TakeBack(2 * kLookNs);
  EXPECT_TRUE(Eventually([&] { return FilesThere() == 0 && !sender.there(); }));
  EXPECT_FALSE(so_far_->holds_any());
  // The next time there is more of it.
  Made(kName, "so far and further");
  EXPECT_TRUE(Eventually([&] {
    sender.Offer(3 * kLookNs, 18);
    return sender.there();
  }));
  EXPECT_TRUE(Is("so far and further"));
}

// A rank that has been quiet for less than the agent's own period of writing that must not look as if it computed.
TEST_F(SendSoFar, WhatThreadsAreInsideOfIsWrittenBefore) {
  SoFarSender::Setup setup = Slot3("so far");
  setup.write_open = [this] { Made(kName, "so far, inside MPI_Waitall"); };
  SoFarSender sender(setup);
  sender.Offer(kLookNs, 6);
  EXPECT_TRUE(Is("so far, inside MPI_Waitall"));
  EXPECT_TRUE(Eventually([&] { return sender.there(); }));
}

TEST_F(SendSoFar, ItGivesWayToTheFilesOfTheEnd) {
  SoFarSender sender(Slot3("so far"));
  sender.Offer(kLookNs, 6);
  EXPECT_TRUE(Eventually([&] { return sender.there(); }));
  // Its program failed: the whole spool has the same name.
  EXPECT_TRUE(SendInHaste(From(3), Made(kName, "all of it"), 60'000));
  EXPECT_EQ(There(kName), "all of it");
  EXPECT_FALSE(so_far_->holds_any());
  // A good end: other names.
  SoFarSender other(
      {.call = [this] { return std::optional(From(4)); }, .spool = Made("rank-00004.spool", "of another slot")});
  other.Offer(kLookNs, 15);
  EXPECT_TRUE(Eventually([&] { return other.there(); }));
  Begin();
  EXPECT_EQ(FileSender(From(4)).Send({Made("rank-00004.h5", "a rank file")}).end, SendEnd::kSent);
  EXPECT_FALSE(fs::exists(there_ + "/ranks/rank-00004.spool"));
  EXPECT_EQ(There("rank-00004.h5"), "a rank file");
  so_far_->Close();  // Nothing of what is no longer its own.
  EXPECT_EQ(There(kName), "all of it");
}

// Rank 0's program ends, while others wait for something: they look for themselves again.
TEST_F(SendSoFar, NothingIsTakenOnceItIsClosed) {
  SoFarSender::Setup setup = Slot3("so far");
  setup.stall_ms = 1000;
  SoFarSender sender(setup);
  sender.Offer(kLookNs, 6);
  EXPECT_TRUE(Eventually([&] { return sender.there(); }));
  so_far_->Close();
  EXPECT_EQ(FilesThere(), 0u);
  EXPECT_TRUE(sender.there()) << "it is not told";
  std::int64_t now_ns = kLookNs;
  EXPECT_TRUE(Eventually([&] {
    sender.Offer(now_ns += 10 * kLookNs, 6);
    return !sender.there();
  }));
  EXPECT_EQ(FilesThere(), 0u);
}

TEST_F(SendSoFar, WhetherAHangWasSaidIsAsked) {
  SoFarSender sender(Slot3("so far"));
  std::int64_t now_ns = kLookNs;
  const auto said = [&] { return sender.SaidElsewhere(now_ns += 10 * kLookNs, kSlots); };
  said_ = true;
  EXPECT_FALSE(said()) << "nothing was given";
  sender.Offer(kLookNs, 6);
  EXPECT_TRUE(Eventually([&] { return sender.there(); }));
  EXPECT_TRUE(Eventually(said));
  EXPECT_TRUE(Is("so far")) << "asking takes nothing back";
  said_ = false;
  EXPECT_TRUE(Eventually([&] { return !said(); }));
  said_ = true;
  EXPECT_TRUE(Eventually(said));
  EXPECT_TRUE(Eventually([&] {
    sender.TakeBack(now_ns += 10 * kLookNs);
    return FilesThere() == 0 && !sender.there();
  }));
  EXPECT_FALSE(said()) << "it moves";
  // Files of the job's end are no place to ask.
  Begin();
  const auto peer = Peer(5);
  ASSERT_TRUE(Tell(*peer, FileWord::kAsk, 0, 0, ""));
  EXPECT_EQ(Answer(*peer), FileWord::kRefused);
}

TEST_F(SendSoFar, WhoIsKilledLeavesIt) {
  {
    const auto peer = Peer(3, true, clock::FilesWhy::kQuiet);
    ASSERT_TRUE(Tell(*peer, FileWord::kFile, 5, 0, kName));
    ASSERT_EQ(Answer(*peer), FileWord::kFrom);
    ASSERT_TRUE(Tell(*peer, FileWord::kData, 0, 5, "12345"));
    ASSERT_TRUE(Tell(*peer, FileWord::kEnd, 0, 0, Digested("12345")));
    ASSERT_EQ(Answer(*peer), FileWord::kTaken);
    EXPECT_TRUE(Tell(*peer, FileWord::kFile, 5, 0, kName));  // And is killed while it gives more.
  }
  TearDown();
  EXPECT_EQ(There(kName), "12345");
  EXPECT_EQ(FilesThere(), 1u);
}

TEST_F(SendSoFar, OtherFilesStayAsTheyAre) {
  std::ofstream(there_ + "/ranks/" + kName) << "of another run";
  SoFarSender sender(Slot3("so far"));
  sender.Offer(kLookNs, 6);
  EXPECT_TRUE(Eventually([&] { return so_far_->arrived().troubles.size() == 1; }));
  sender.TakeBack(2 * kLookNs);
  EXPECT_EQ(There(kName), "of another run");
  const auto peer = Peer(5, true, clock::FilesWhy::kQuiet);
  ASSERT_TRUE(Tell(*peer, FileWord::kFile, 5, 0, kName));
  EXPECT_EQ(Answer(*peer), FileWord::kRefused);
  EXPECT_EQ(There(kName), "of another run");
}

TEST_F(SendSoFar, WhatIsTooLargeOrHasNowhereToGoStays) {
  SoFarSender large(Slot3("so far"));
  large.Offer(kLookNs, SoFarSender::kMostBytes + 1);
  EXPECT_FALSE(large.there());
  SoFarSender shared({.call = [] { return std::optional<FileSender::Setup>(); }, .spool = Made(kName, "so far")});
  shared.Offer(kLookNs, 6);
  shared.TakeBack(kLookNs);
  EXPECT_FALSE(shared.there());
  EXPECT_EQ(FilesThere(), 0u);
}

}  // namespace
}  // namespace lockstep::agent
