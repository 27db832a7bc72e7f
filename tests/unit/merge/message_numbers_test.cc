#include "merge/match/message_numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "merge/match/p2p.h"
#include "merge/windows/windows.h"
#include "rank_builder.h"

namespace lockstep::test {
namespace {

struct Message {
  std::int64_t send_begin, send_end, receive_begin, receive_end;
};

// Rank 0 sends, rank 1 receives; each records what begins in its windows, and numbers it.
class Channel {
 public:
  explicit Channel(const std::vector<Message>& messages) : messages_(messages) {}

  // Of one rank; [begin, end).
  Channel& Window(int rank, std::int64_t begin, std::int64_t end, std::int64_t first_step = -1) {
    ranks_[rank].t.windows.Append({.begin_ns = begin,
                                   .end_ns = end,
                                   .first_step = first_step,
                                   .end_step = first_step < 0 ? -1 : first_step + 1000});
    return *this;
  }
  // Both come to MPI_Finalize.
  Channel& ToTheEnd() {
    for (RankBuilder& rank : ranks_) rank.Collective(CollectiveKind::kFinalize, 1'000'000'000, 1'000'000'001);
    return *this;
  }

  // By receive that was recorded: how many messages after its own the one is that it was given; "-" none.
  std::string Given() {
    std::vector<std::size_t> sent, received;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const Message& m = messages_[i];
      if (Recorded(0, m.send_begin)) {
        ranks_[0].Message(false, 1, sent.size(), m.send_begin, m.send_end);
        sent.push_back(i);
      }
      if (Recorded(1, m.receive_begin)) {
        ranks_[1].Message(true, 0, received.size(), m.receive_begin, m.receive_end);
        received.push_back(i);
      }
    }
    schema::Clock clock;
    std::vector<merge::ClockMap> clocks;
    std::vector<merge::RecordedWindow> windows[2];
    for (const RankBuilder& rank : ranks_) clock.Append({.rank = rank.rank(), .local_ns = 0});
    for (const RankBuilder& rank : ranks_) clocks.emplace_back(clock, rank.rank());
    std::vector<merge::MatchRank> match;
    for (int r = 0; r < 2; ++r) {
      windows[r] = merge::WindowsOf(ranks_[r].t);
      match.push_back(
          {r, &ranks_[r].t, &clocks[static_cast<std::size_t>(r)], {0, 2'000'000'000}, true, true, &windows[r], true});
    }
    const merge::MatchedP2p matched = merge::MatchP2p(match, 1);
    schema::RankTables as_read = ranks_[1].t;
    merge::ApplyMessageNumbers(matched.numbers, 1, as_read);
    std::string given;
    for (std::size_t r = 0; r < received.size(); ++r) {
      const auto& there = ranks_[0].t.p2p;
      const auto at = std::ranges::find(there.begin_ns, matched.partner_begin_ns[1][r]) - there.begin_ns.begin();
      const bool found = matched.partner[1][r] != schema::kNone;
      given +=
          (given.empty() ? "" : " ") +
          (found ? std::to_string(static_cast<std::int64_t>(sent[static_cast<std::size_t>(at)] - received[r])) : "-");
      // What is read afterwards has the same numbers.
      const auto same = std::ranges::find(there.seq, as_read.p2p.seq[r]);
      EXPECT_EQ(same != there.seq.end(), found) << given;
      EXPECT_TRUE(!found || same - there.seq.begin() == at) << given;
    }
    return given;
  }

 private:
  bool Recorded(int rank, std::int64_t begin) const {
    const schema::Windows& windows = ranks_[rank].t.windows;
    for (std::size_t i = 0; i < windows.rows(); ++i)
      if (windows.begin_ns[i] <= begin && begin < windows.end_ns[i]) return true;
    return false;
  }

  std::vector<Message> messages_;
  RankBuilder ranks_[2] = {RankBuilder(0, 2), RankBuilder(1, 2)};
};

constexpr std::int64_t kForever = 2'000'000'000;

// A message each 100 ns; its receiver waits for it.
std::vector<Message> Waited(int count) {
  std::vector<Message> messages;
  for (std::int64_t i = 0; i < count; ++i) messages.push_back({100 * i + 50, 100 * i + 60, 100 * i + 10, 100 * i + 70});
  return messages;
}

// A sender that is `ahead` messages ahead of its receiver.
std::vector<Message> Ahead(int count, int ahead) {
  std::vector<Message> messages;
  for (std::int64_t i = 0; i < count; ++i)
    messages.push_back({100 * i, 100 * i + 10, 100 * (i + ahead) + 50, 100 * (i + ahead) + 60});
  return messages;
}

TEST(MessageNumbers, AWindowThatBeganEarlierHasMoreMessages) {
  EXPECT_EQ(Channel(Waited(8)).Window(0, 200, kForever).Window(1, 400, kForever).Given(), "0 0 0 0");
  EXPECT_EQ(Channel(Waited(8)).Window(0, 400, kForever).Window(1, 200, kForever).Given(), "- - 0 0 0 0");
  EXPECT_EQ(Channel(Waited(8)).Window(0, 430, kForever).Window(1, 430, kForever).Given(), "0 0 0");
}

TEST(MessageNumbers, WindowsThatEndEarlier) {
  EXPECT_EQ(Channel(Waited(8)).Window(0, 0, 600).Window(1, 300, kForever).Given(), "0 0 0 - -");
  EXPECT_EQ(Channel(Waited(8)).Window(0, 300, kForever).Window(1, 100, 600).Given(), "- - 0 0 0");
  EXPECT_EQ(Channel(Waited(8)).Window(0, 0, 200).Window(1, 500, kForever).Given(), "- - -");
}

TEST(MessageNumbers, EachWindowBeginsAnew) {
  const std::string given = Channel(Waited(20))
                                .Window(0, 0, 500)
                                .Window(0, 1000, kForever)
                                .Window(1, 200, 700)
                                .Window(1, 1300, kForever)
                                .Given();
  EXPECT_EQ(given, "0 0 0 - - 0 0 0 0 0 0 0");
}

TEST(MessageNumbers, WhatTheEndShows) {
  EXPECT_EQ(Channel(Ahead(9, 3)).Window(0, 200, kForever).Window(1, 600, kForever).ToTheEnd().Given(), "0 0 0 0 0 0");
}

TEST(MessageNumbers, TheSameStepBeginsWithTheSameMessage) {
  EXPECT_EQ(Channel(Ahead(9, 3)).Window(0, 200, kForever, 7).Window(1, 500, kForever, 7).Given(), "0 0 0 0 0 0 0");
  // Seen to be another message: the channel was empty, and a receive ended before the send of its number.
  EXPECT_EQ(Channel(Waited(8)).Window(0, 400, kForever, 7).Window(1, 300, kForever, 7).Given(), "- 0 0 0 0");
}

TEST(MessageNumbers, RanksThatRecordedAllKeepTheirs) {
  Channel all(Ahead(9, 3));
  EXPECT_EQ(all.Window(0, 0, kForever).Window(1, 0, kForever).ToTheEnd().Given(), "0 0 0 0 0 0 0 0 0");
}

}  // namespace
}  // namespace lockstep::test
