// Files that one agent sends to another: whole or not at all, whatever the connection or the other side does. Real
// sockets on the loopback; waits are for events with generous limits.

#include "tests/unit/runtime/agent/send_fixture.h"

namespace lockstep::agent {
namespace {

TEST_F(Send, FilesArriveAsTheyAre) {
  const std::string noise = Noise(3 * kFileBlockBytes + 17), plain(5 * kFileBlockBytes, 'x');
  FileSender sender(From(3));
  EXPECT_TRUE(Eventually([&] { return receiver_->StateOf(3) == SenderState::kComing; }));
  Begin();
  const SendOutcome outcome = sender.Send({Made("rank-00003.p2.h5", noise), Made("rank-00003.spool", plain),
                                           Made("rank-00003.p3.h5", ""), Made("rank-00003.h5", "main")});
  EXPECT_EQ(outcome.end, SendEnd::kSent) << outcome.why;
  EXPECT_EQ(receiver_->StateOf(3), SenderState::kHere);
  EXPECT_EQ(There("rank-00003.p2.h5"), noise);
  EXPECT_EQ(There("rank-00003.spool"), plain);
  EXPECT_EQ(There("rank-00003.h5"), "main");
  EXPECT_EQ(FilesThere(), 4u);
  const Arrived arrived = receiver_->arrived();
  EXPECT_EQ(arrived.hosts, (std::set<std::pair<std::string, std::string>>{{"node1", "boot1"}}));
  EXPECT_EQ(arrived.slots, std::set<std::int32_t>{3});
  EXPECT_EQ(arrived.bytes, noise.size() + plain.size() + 4);
  // What can be compressed is, and what cannot is sent as it is.
  EXPECT_GE(arrived.sent_bytes, noise.size());
  EXPECT_LT(arrived.sent_bytes, noise.size() + plain.size() / 10);
  EXPECT_TRUE(arrived.troubles.empty());
}

TEST_F(Send, AfterACutItGoesOnWhereItWas) {
  const std::string noise = Noise(16 * kFileBlockBytes);
  Between between(net::SplitAddresses(server_->address())[0], Between::Harm::kCut, noise.size() / 2);
  FileSender::Setup setup = From(5);
  setup.addresses = between.address();
  FileSender sender(setup);
  Begin();
  const SendOutcome outcome = sender.Send({Made("rank-00005.h5", noise)});
  EXPECT_EQ(outcome.end, SendEnd::kSent) << outcome.why;
  EXPECT_EQ(between.connections(), 2);
  EXPECT_EQ(There("rank-00005.h5"), noise);
  EXPECT_EQ(FilesThere(), 1u);
  // What was on the way is sent twice, and not what had arrived.
  EXPECT_LT(between.passed(), noise.size() + noise.size() / 2);
}

TEST_F(Send, WhatIsChangedOnTheWayIsNotTaken) {
  const std::string noise = Noise(8 * kFileBlockBytes);
  Between between(net::SplitAddresses(server_->address())[0], Between::Harm::kFlip, noise.size() / 2);
  FileSender::Setup setup = From(5);
  setup.addresses = between.address();
  FileSender sender(setup);
  Begin();
  EXPECT_EQ(sender.Send({Made("rank-00005.h5", noise)}).end, SendEnd::kSent);
  EXPECT_GE(between.connections(), 2);
  EXPECT_EQ(There("rank-00005.h5"), noise);
}

TEST_F(Send, ManyAtOnceAndOneAfterTheOther) {
  std::vector<std::thread> slots;
  std::atomic<int> sent{0};
  for (std::int32_t slot = 1; slot < kSlots; ++slot)
    slots.emplace_back([&, slot] {
      FileSender sender(From(slot));
      sent += sender.Send({Made(RankName(slot) + ".h5", Noise(static_cast<std::size_t>(slot) * 1000))}).end ==
                      SendEnd::kSent
                  ? 1
                  : 0;
    });
  EXPECT_TRUE(Eventually([&] {
    int coming = 0;
    for (std::int32_t slot = 1; slot < kSlots; ++slot) coming += receiver_->StateOf(slot) == SenderState::kComing;
    return coming == kSlots - 1;
  }));
  Begin();
  for (std::thread& slot : slots) slot.join();
  EXPECT_EQ(sent, kSlots - 1);
  EXPECT_EQ(FilesThere(), static_cast<std::size_t>(kSlots - 1));
  EXPECT_EQ(receiver_->arrived().hosts.size(), 20u);
}

TEST_F(Send, HostsThatShareANameAreCountedApart) {
  Begin();
  for (const auto& [slot, boot] : {std::pair{1, "a"}, std::pair{2, "b"}, std::pair{3, "b"}}) {
    FileSender::Setup setup = From(slot);
    setup.caller.place = PlaceText("localhost", "/run", 1);
    setup.caller.boot_id = boot;
    EXPECT_EQ(FileSender(std::move(setup)).Send({Made(RankName(slot) + ".h5", "x")}).end, SendEnd::kSent);
  }
  EXPECT_EQ(receiver_->arrived().hosts.size(), 2u);
}

// Who calls with files says where they are: a program of some milliseconds has ended before its agent told otherwise.
TEST_F(Send, WhoCallsSaysWhereItsFilesAre) {
  std::shared_ptr<const OwnedFd> held;
  int error = 0;
  ASSERT_EQ(MakeClaim(ClaimPath(there_, 6), launch::LaunchEnv{}, &held, &error), Claimed::kYes);
  Begin();
  EXPECT_EQ(FileSender(From(2)).Send({Made("rank-00002.h5", "x")}).end, SendEnd::kSent);
  EXPECT_EQ(FileSender(From(4, "0.9")).Send({Made("rank-00004.h5", "x")}).end, SendEnd::kFailed);
  EXPECT_EQ(FileSender(From(6)).Send({Made("rank-00006.h5", "x")}).end, SendEnd::kShared);
  const std::vector<RunPlace> places = PlacesOf(receiver_->arrived().places, "node0");
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ((std::tuple(places[0].slot, places[0].host, places[0].dir, places[0].ranks)),
            std::tuple(2, "node1", "/run", 2));
  EXPECT_EQ((std::tuple(places[1].slot, places[1].host)), std::tuple(4, "node2"));
  EXPECT_EQ(NotTold(there_, places, 8), 8 - 1 - 2 - 2);
}

// Those who wait for rank 0's program are told that it has ended, and from then on wait for as long as they are told
// to.
TEST_F(Send, ATurnIsWaitedForAndASilentAgentIsNot) {
  FileSender::Setup setup = From(2);
  setup.stall_ms = 2000;
  {
    FileSender sender(setup);
    const SendOutcome outcome = sender.Send({Made("rank-00002.h5", "a")});
    EXPECT_EQ(outcome.end, SendEnd::kFailed);
    EXPECT_NE(outcome.why.find("--after-wait"), std::string::npos) << outcome.why;
    EXPECT_EQ(FilesThere(), 0u);
  }
  receiver_->ProgramEnded();
  FileSender sender(setup);
  std::thread later([&] {
    // Longer than the stall and one look for an answer.
    EXPECT_TRUE(Eventually([until = RawNs() + 2'600'000'000] { return RawNs() > until; }));
    receiver_->Begin();
  });
  EXPECT_EQ(sender.Send({Made("rank-00002.h5", "a")}).end, SendEnd::kSent);
  later.join();
}

TEST_F(Send, WhoDiesIsNotWaitedFor) {
  Begin();
  {
    const auto peer = Peer(7);
    EXPECT_EQ(receiver_->StateOf(7), SenderState::kComing);
    ASSERT_TRUE(Tell(*peer, FileWord::kFile, 100, 0, "rank-00007.h5"));
    ASSERT_EQ(Answer(*peer), FileWord::kFrom);
  }
  EXPECT_TRUE(Eventually([&] { return receiver_->StateOf(7) == SenderState::kGone; }));
  EXPECT_EQ(receiver_->StateOf(8), SenderState::kUnknown);
  // Half a file is nobody's.
  TearDown();
  EXPECT_EQ(FilesThere(), 0u);
}

TEST_F(Send, NothingIsSentToAnotherRunOrToNobody) {
  reach_ms_ = 500;
  FileSender::Setup setup = From(2);
  setup.key = SecretOf(43);
  {
    FileSender sender(setup);
    const SendOutcome outcome = sender.Send({Made("rank-00002.h5", "a")});
    EXPECT_EQ(outcome.end, SendEnd::kFailed);
    EXPECT_NE(outcome.why.find("another run"), std::string::npos) << outcome.why;
  }
  EXPECT_EQ(receiver_->StateOf(2), SenderState::kUnknown);
  setup = From(2);
  server_.reset();
  FileSender sender(setup);
  const SendOutcome outcome = sender.Send({Made("rank-00002.h5", "a")});
  EXPECT_EQ(outcome.end, SendEnd::kFailed);
  EXPECT_NE(outcome.why.find("was not reached"), std::string::npos) << outcome.why;
}

TEST_F(Send, AnAgentThatTakesNoneSaysSo) {
  auto started = clock::ClockServer::Start(
      {.rank = 0, .key = SecretOf(42), .clock = {}, .loopback_only = true, .place = "", .take_files = {}});
  ASSERT_TRUE(started.ok());
  server_ = std::move(started).value();
  FileSender sender(From(2));
  EXPECT_EQ(sender.Send({Made("rank-00002.h5", "a")}).why, "rank 0's agent takes none");
}

TEST_F(Send, AnotherVersionIsRefused) {
  Begin();
  FileSender sender(From(2, "0.9"));
  const SendOutcome outcome = sender.Send({Made("rank-00002.h5", "a")});
  EXPECT_EQ(outcome.end, SendEnd::kFailed);
  EXPECT_EQ(outcome.why, "its Lockstep is version 0.9, and rank 0's is 1.0");
  EXPECT_EQ(receiver_->StateOf(2), SenderState::kGone);
  EXPECT_EQ(receiver_->arrived().troubles, std::vector<std::string>{"rank 2 of node1: " + outcome.why});
  EXPECT_EQ(FilesThere(), 0u);
}

TEST_F(Send, WhoSharesTheDirectorySendsNothing) {
  Begin();
  std::shared_ptr<const OwnedFd> held;
  int error = 0;
  ASSERT_EQ(MakeClaim(ClaimPath(there_, 2), {}, &held, &error), Claimed::kYes);
  FileSender sender(From(2));
  EXPECT_EQ(sender.Send({Made("rank-00002.h5", "a")}).end, SendEnd::kShared);
  EXPECT_EQ(receiver_->StateOf(2), SenderState::kUnknown);
  EXPECT_EQ(FilesThere(), 1u);  // The claim.
}

TEST_F(Send, WhatIsThereStays) {
  Begin();
  std::ofstream(there_ + "/ranks/rank-00002.h5") << "another";
  FileSender sender(From(2));
  const SendOutcome outcome = sender.Send({Made("rank-00002.h5", "a")});
  EXPECT_EQ(outcome.end, SendEnd::kFailed);
  EXPECT_NE(outcome.why.find("another file of the name rank-00002.h5"), std::string::npos) << outcome.why;
  EXPECT_EQ(There("rank-00002.h5"), "another");
}

TEST_F(Send, AFullDiskIsSaidAndLeavesNothing) {
  Begin();
  ::signal(SIGXFSZ, SIG_IGN);
  const FileToSend file = Made("rank-00002.h5", Noise(4 * kFileBlockBytes));
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit little{kFileBlockBytes + 1000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &little);
  FileSender sender(From(2));
  const SendOutcome outcome = sender.Send({file});
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(outcome.end, SendEnd::kFailed);
  EXPECT_EQ(outcome.why, std::string("it cannot be written on rank 0's host: ") + std::strerror(EFBIG));
  EXPECT_EQ(receiver_->StateOf(2), SenderState::kGone);
  EXPECT_EQ(FilesThere(), 0u);
}

// Peers that hold the secret and mean harm, or are broken.
TEST_F(Send, NamesOfOtherFilesAreRefused) {
  Begin();
  std::int32_t slot = 1;
  for (const std::string name :
       {"../../x", "/etc/passwd", "rank-00000.h5", "rank-00099.h5", "manifest.json", "", ".", "rank-00001.h5/../../x",
        "rank-00001.h5x", "rank-00001.p.h5", "rank-00001.p2/.h5", ".agent-00001"}) {
    const auto peer = Peer(slot);
    std::string why;
    ASSERT_TRUE(Tell(*peer, FileWord::kFile, 1, 0, name));
    EXPECT_EQ(Answer(*peer, &why), FileWord::kRefused) << name;
    EXPECT_EQ(why, "it named a file that is none of rank " + std::to_string(slot));
    EXPECT_EQ(receiver_->StateOf(slot), SenderState::kGone);
    ++slot;
  }
  const std::string with_zero("rank-00020.h5\0x", 15);
  const auto peer = Peer(20);
  ASSERT_TRUE(Tell(*peer, FileWord::kFile, 1, 0, with_zero));
  EXPECT_EQ(Answer(*peer), FileWord::kRefused);
  EXPECT_EQ(FilesThere(), 0u);
  EXPECT_EQ(std::distance(fs::recursive_directory_iterator(dir_.path()), {}), 3);
}

TEST_F(Send, RanksThatThereAreNotAreLeft) {
  Begin();
  for (const std::int32_t slot : {-1, 0, kSlots, INT32_MAX}) {
    const auto peer = Peer(slot, false);
    EXPECT_EQ(Answer(*peer), FileWord{}) << slot;
  }
}

TEST_F(Send, OtherBytesThanTheFilesAreRefused) {
  Begin();
  struct Said {
    FileWord word;
    std::uint64_t at, bytes;
    std::string text;
  };
  const std::string ten = "0123456789";
  const std::vector<std::vector<Said>> all = {
      {{FileWord::kData, 0, 11, ten + "x"}},                                          // More than was said.
      {{FileWord::kData, 0, 10, ten}, {FileWord::kData, 10, 1, "x"}},                 // An endless stream.
      {{FileWord::kData, 5, 5, "56789"}},                                             // With a hole.
      {{FileWord::kData, UINT64_MAX, 10, ten}},                                       //
      {{FileWord::kData, 0, 10, "short"}},                                            //
      {{FileWord::kDeflated, 0, 10, "no stream"}},                                    //
      {{FileWord::kDeflated, 0, UINT64_MAX, "no stream"}},                            //
      {{FileWord::kData, 0, 0, ""}},                                                  // For ever nothing.
      {{FileWord::kData, 0, 5, "01234"}, {FileWord::kEnd, 0, 0, Digested("01234")}},  // Less than was said.
      {{FileWord::kData, 0, 10, ten}, {FileWord::kEnd, 0, 0, Digested("other")}},
      {{FileWord::kData, 0, 10, ten}, {FileWord::kEnd, 0, 0, ""}},
      {{FileWord{99}, 0, 0, ""}},
  };
  std::int32_t slot = 1;
  for (const std::vector<Said>& said : all) {
    const auto peer = Peer(slot);
    ASSERT_TRUE(Tell(*peer, FileWord::kFile, 10, 0, RankName(slot) + ".h5"));
    ASSERT_EQ(Answer(*peer), FileWord::kFrom);
    for (const Said& one : said) ASSERT_TRUE(Tell(*peer, one.word, one.at, one.bytes, one.text));
    EXPECT_EQ(Answer(*peer), FileWord::kRefused) << slot;
    EXPECT_EQ(receiver_->StateOf(slot), SenderState::kGone) << slot;
    ++slot;
  }
  EXPECT_EQ(FilesThere(), 0u);
}

TEST_F(Send, TextsThatAreTooLongEndTheConnection) {
  Begin();
  const auto first = Peer(1, false);
  ASSERT_TRUE(Tell(*first, FileWord::kOpen, 1, 1, std::string(kMostWordBytes + 1, 'x')));
  EXPECT_EQ(Answer(*first), FileWord{});
  const auto second = Peer(2);
  ASSERT_TRUE(Tell(*second, FileWord::kFile, 1 << 30, 0, "rank-00002.h5"));
  ASSERT_EQ(Answer(*second), FileWord::kFrom);
  (void)Tell(*second, FileWord::kData, 0, kFileBlockBytes + 1, std::string(kFileBlockBytes + 1, 'x'));
  EXPECT_EQ(Answer(*second), FileWord{});
  const auto third = Peer(3, false);  // A file for which no disk has room.
  std::string why;
  ASSERT_TRUE(Tell(*third, FileWord::kOpen, 1, UINT64_MAX / 2,
                   OpenText({.place = PlaceText("evil", "/run", 1), .version = "1.0", .boot_id = ""})));
  EXPECT_EQ(Answer(*third, &why), FileWord::kRefused);
  EXPECT_NE(why.find("there is no room"), std::string::npos) << why;
}

}  // namespace
}  // namespace lockstep::agent
