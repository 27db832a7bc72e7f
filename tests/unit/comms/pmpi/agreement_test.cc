#include "comms/pmpi/agreement.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "core/event_clock.h"

namespace lockstep::pmpi {
namespace {

constexpr std::int64_t kMs = 1'000'000;

// What all ranks see.
struct Store {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::array<Reply, 3>> notes;
};

class MemoryBoard final : public AgreementBoard {
 public:
  // Of its waits, one in `lost` ends before the note is there.
  MemoryBoard(Store& store, int rank, bool deaf, unsigned lost)
      : store_(store), rank_(rank), deaf_(deaf), lost_(lost), random_(static_cast<unsigned>(rank) + lost) {
    pending_.fill(Reply::kAbsent);
  }
  bool Post(Note note, bool yes) override {
    pending_[static_cast<std::size_t>(note)] = yes ? Reply::kYes : Reply::kNo;
    return true;
  }
  // `deaf`: what was published may have arrived, but one hears that it failed.
  bool Publish() override {
    {
      const std::lock_guard lock(store_.mutex);
      auto& mine = store_.notes[static_cast<std::size_t>(rank_)];
      for (std::size_t i = 0; i < mine.size(); ++i)
        if (pending_[i] != Reply::kAbsent) mine[i] = pending_[i];
    }
    store_.changed.notify_all();
    return ++published_ != 2 || !deaf_;
  }
  Reply Await(int peer, Note note, std::int64_t deadline_ns) override {
    std::unique_lock lock(store_.mutex);
    const auto& there = store_.notes[static_cast<std::size_t>(peer)][static_cast<std::size_t>(note)];
    if (deadline_ns != INT64_MAX && lost_ != 0 && random_() % lost_ == 0) return Reply::kAbsent;
    const auto come = [&] { return there != Reply::kAbsent; };
    if (deadline_ns == INT64_MAX)
      store_.changed.wait(lock, come);
    else
      store_.changed.wait_for(lock, std::chrono::nanoseconds(std::max<std::int64_t>(deadline_ns - RawNs(), 0)), come);
    return there;
  }

 private:
  Store& store_;
  int rank_;
  bool deaf_;
  unsigned lost_;
  std::mt19937 random_;
  int published_ = 0;
  std::array<Reply, 3> pending_{};
};

enum class Rank { kAble, kUnable, kAbsent };
struct Plan {
  Rank rank = Rank::kAble;
  bool deaf = false;
  unsigned lost = 0;
};

// 1 yes, 0 no, -1 did not take part.
std::vector<int> Answers(const std::vector<Plan>& plans, int fanout, std::int64_t patience_ns) {
  const int size = static_cast<int>(plans.size());
  Store store;
  store.notes.resize(plans.size());
  for (auto& notes : store.notes) notes.fill(Reply::kAbsent);
  std::vector<int> answers(plans.size(), -1);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const Plan plan = plans[static_cast<std::size_t>(rank)];
    if (plan.rank == Rank::kAbsent) continue;
    ranks.emplace_back([&, rank, plan] {
      MemoryBoard board(store, rank, plan.deaf, plan.lost);
      answers[static_cast<std::size_t>(rank)] =
          Agree(board, rank, size, plan.rank == Rank::kAble, patience_ns, fanout) ? 1 : 0;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return answers;
}

TEST(Agreement, AllAreThere) {
  for (const int size : {2, 3, 33, 34, 100})
    for (const int fanout : {1 + size / 6, kAgreementFanout})
      EXPECT_EQ(Answers(std::vector<Plan>(static_cast<std::size_t>(size)), fanout, 20'000 * kMs),
                std::vector<int>(static_cast<std::size_t>(size), 1));
}

// Each rank alone, in every place of the tree: the others all hear no, and nobody waits for what does not come.
TEST(Agreement, OneIsNotThereOrNotAble) {
  constexpr int kSize = 13;
  for (const Rank kind : {Rank::kAbsent, Rank::kUnable})
    for (std::size_t one = 0; one < kSize; ++one) {
      std::vector<Plan> plans(kSize);
      plans[one].rank = kind;
      std::vector<int> expected(kSize, 0);
      if (kind == Rank::kAbsent) expected[one] = -1;
      EXPECT_EQ(Answers(plans, 3, 30 * kMs), expected) << one;
    }
}

TEST(Agreement, AVoteThatMayHaveBeenHeardCommits) {
  std::vector<Plan> plans(9);
  plans[4].deaf = plans[7].deaf = true;
  EXPECT_EQ(Answers(plans, 2, 20'000 * kMs), std::vector<int>(9, 1));
}

// Every wait is won and lost by turns: whatever the answer, it is one answer, and yes only if everybody is there and
// able.
TEST(Agreement, RandomlyLateAbsentAndUnable) {
  std::mt19937 random(20240607);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  int yes = 0, no = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Plan> plans(static_cast<std::size_t>(2 + draw(20)));
    const int trouble = draw(4);  // None, late ones, one that is not able, several of everything.
    const std::int64_t patience_ns = (1 + draw(6)) * kMs;
    for (Plan& plan : plans) {
      if (trouble % 2 == 1) plan.lost = static_cast<unsigned>(20 * draw(8));
      if (trouble == 3 && draw(20) == 0) plan.rank = draw(2) == 0 ? Rank::kAbsent : Rank::kUnable;
      plan.deaf = draw(10) == 0;
    }
    if (trouble == 2) plans[static_cast<std::size_t>(draw(static_cast<int>(plans.size())))].rank = Rank::kUnable;
    const std::vector<int> answers = Answers(plans, 1 + draw(5), trouble == 0 ? 20'000 * kMs : patience_ns);
    bool everybody = true;
    for (const Plan& plan : plans) everybody = everybody && plan.rank == Rank::kAble;
    int first = -1;
    for (const int answer : answers) {
      if (answer < 0) continue;
      if (first < 0) first = answer;
      ASSERT_EQ(answer, first) << "round " << round;
    }
    if (first == 1) {
      ASSERT_TRUE(everybody) << "round " << round;
    }
    (first == 1 ? yes : no) += 1;
  }
  // Both ends of the race were seen.
  EXPECT_GT(yes, 50);
  EXPECT_GT(no, 50);
}

}  // namespace
}  // namespace lockstep::pmpi
