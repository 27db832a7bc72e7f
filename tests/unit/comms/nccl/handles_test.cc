// The table of communicator handles, used by several threads at once: every order in which
// they can take turns, with a turn at each of their atomic operations.

#include "comms/nccl/handles.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/unit/all_runs.h"

namespace lockstep::nccl {
namespace {

// One thread runs at a time. Whoever has the turn may lose it before each of its atomic operations; where, the
// schedule says: at each point which of the threads that are not done goes on.
class Turns {
 public:
  // Runs the threads. `choices`: the first decisions; the rest are "go on". Returns all decisions with how many
  // there were to choose from.
  struct Decision {
    std::size_t taken, of;
  };
  std::vector<Decision> Run(const std::vector<std::function<void()>>& bodies, const std::vector<std::size_t>& choices,
                            std::size_t most_switches) {
    made_.clear();
    choices_ = choices;
    switches_left_ = most_switches;
    done_.assign(bodies.size(), false);
    current_ = bodies.size();
    std::vector<std::thread> threads;
    g_turns = this;
    for (std::size_t i = 0; i < bodies.size(); ++i)
      threads.emplace_back([this, &bodies, i] {
        t_thread = static_cast<int>(i);
        Await(i);
        bodies[i]();
        std::unique_lock lock(mutex_);
        done_[i] = true;
        Choose(bodies.size());  // Forced: not counted as a switch.
        changed_.notify_all();
      });
    {
      std::unique_lock lock(mutex_);
      Choose(bodies.size());
      changed_.notify_all();
    }
    for (std::thread& thread : threads) thread.join();
    g_turns = nullptr;
    return made_;
  }

  static void Point() {
    if (g_turns == nullptr || t_thread < 0) return;
    const auto own = static_cast<std::size_t>(t_thread);
    std::unique_lock lock(g_turns->mutex_);
    if (g_turns->switches_left_ == 0) return;
    g_turns->Choose(own);
    if (g_turns->current_ == own) return;
    --g_turns->switches_left_;
    g_turns->changed_.notify_all();
    g_turns->changed_.wait(lock, [&] { return g_turns->current_ == own; });
  }

 private:
  void Await(std::size_t own) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return current_ == own; });
  }
  // Option 0 is to go on with `own`, if it can.
  void Choose(std::size_t own) {
    std::vector<std::size_t> options;
    if (own < done_.size() && !done_[own]) options.push_back(own);
    for (std::size_t i = 0; i < done_.size(); ++i)
      if (i != own && !done_[i]) options.push_back(i);
    if (options.empty()) return;
    const std::size_t taken = made_.size() < choices_.size() ? choices_[made_.size()] : 0;
    made_.push_back({taken, options.size()});
    current_ = options[taken];
  }

  static Turns* g_turns;
  static thread_local int t_thread;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> choices_;
  std::vector<Decision> made_;
  std::vector<bool> done_;
  std::size_t current_ = 0, switches_left_ = 0;
};
Turns* Turns::g_turns = nullptr;
thread_local int Turns::t_thread = -1;

template <typename T>
class Stepped {
 public:
  T load(std::memory_order order) const {
    Turns::Point();
    return value_.load(order);
  }
  void store(T value, std::memory_order order) {
    Turns::Point();
    value_.store(value, order);
  }
  T exchange(T value, std::memory_order order) {
    Turns::Point();
    return value_.exchange(value, order);
  }
  bool compare_exchange_strong(T& expected, T value, std::memory_order order) {
    Turns::Point();
    return value_.compare_exchange_strong(expected, value, order);
  }

 private:
  std::atomic<T> value_{};
};

using Small = HandleTable<Stepped, 4, 4>;  // Everything collides.

const auto kSwitches = static_cast<std::size_t>(test::Runs(2, 3));  // Of three threads.

const void* Handle(std::uintptr_t i) { return reinterpret_cast<const void*>(i * 64); }

// Tries every schedule of at most `switches` changes of turn; `check` looks at what came of each.
std::size_t EverySchedule(std::size_t switches, const std::function<void(Small&)>& before,
                          const std::vector<std::function<void(Small&)>>& bodies,
                          const std::function<void(Small&)>& check) {
  std::size_t schedules = 0;
  std::vector<std::size_t> choices;
  for (;;) {
    Small table;
    before(table);
    std::vector<std::function<void()>> bound;
    for (const auto& body : bodies) bound.emplace_back([&table, &body] { body(table); });
    Turns turns;
    const std::vector<Turns::Decision> made = turns.Run(bound, choices, switches);
    ++schedules;
    check(table);
    if (testing::Test::HasFailure()) return schedules;
    // The next one: the last decision that has another option.
    std::size_t at = made.size();
    while (at > 0 && made[at - 1].taken + 1 >= made[at - 1].of) --at;
    if (at == 0) return schedules;
    choices.clear();
    for (std::size_t i = 0; i + 1 < at; ++i) choices.push_back(made[i].taken);
    choices.push_back(made[at - 1].taken + 1);
  }
}

TEST(NcclHandles, TwoBindsForOnePlaceAreBothKept) {
  const std::size_t schedules = EverySchedule(
      3, [](Small&) {}, {[](Small& t) { t.Bind(Handle(1), 11); }, [](Small& t) { t.Bind(Handle(2), 22); }},
      [](Small& t) {
        EXPECT_EQ(t.Find(Handle(1)), 11u);
        EXPECT_EQ(t.Find(Handle(2)), 22u);
      });
  EXPECT_GT(schedules, 50u);
}

TEST(NcclHandles, ABindTakesThePlaceOfAnUnbindAndNothingElse) {
  EverySchedule(
      2,
      [](Small& t) {
        t.Bind(Handle(1), 11);
        t.Bind(Handle(4), 44);
      },
      {[](Small& t) { EXPECT_EQ(t.Unbind(Handle(1)), 11u); }, [](Small& t) { t.Bind(Handle(2), 22); },
       [](Small& t) { t.Bind(Handle(3), 33); }},
      [](Small& t) {
        EXPECT_EQ(t.Find(Handle(1)), 0u);
        EXPECT_EQ(t.Find(Handle(2)), 22u);
        EXPECT_EQ(t.Find(Handle(3)), 33u);
        EXPECT_EQ(t.Find(Handle(4)), 44u);
      });
}

// A communicator is aborted while another thread's operation is in it, and a third one is made at once.
TEST(NcclHandles, ALateWordOnAnAbortedOneDoesNotTouchItsSuccessor) {
  EverySchedule(
      kSwitches, [](Small& t) { t.Bind(Handle(1), 11); },
      {[](Small& t) { t.Bind(Handle(1), 12); }, [](Small& t) { t.Unbind(Handle(1)); },
       [](Small& t) { t.Bind(Handle(2), 22); }},
      [](Small& t) { EXPECT_EQ(t.Find(Handle(2)), 22u); });
}

TEST(NcclHandles, AReaderNeverGetsAnothersCommunicator) {
  EverySchedule(
      kSwitches, [](Small& t) { t.Bind(Handle(1), 11); },
      {[](Small& t) {
         const std::uint64_t found = t.Find(Handle(1));
         EXPECT_TRUE(found == 0 || found == 11) << found;
       },
       [](Small& t) { t.Unbind(Handle(1)); }, [](Small& t) { t.Bind(Handle(2), 22); }},
      [](Small&) {});
}

// While it is told again who a handle is, it is known all the time.
TEST(NcclHandles, ARebindIsNeverAGap) {
  EverySchedule(
      3, [](Small& t) { t.Bind(Handle(1), 11); },
      {[](Small& t) { t.Bind(Handle(1), 12); },
       [](Small& t) {
         const std::uint64_t found = t.Find(Handle(1));
         EXPECT_TRUE(found == 11 || found == 12) << found;
       }},
      [](Small& t) { EXPECT_EQ(t.Find(Handle(1)), 12u); });
}

TEST(NcclHandles, BoundTwiceAtOnceItIsGoneAfterOneUnbind) {
  EverySchedule(
      3, [](Small&) {}, {[](Small& t) { t.Bind(Handle(1), 11); }, [](Small& t) { t.Bind(Handle(1), 11); }},
      [](Small& t) {
        EXPECT_EQ(t.Find(Handle(1)), 11u);
        EXPECT_EQ(t.Unbind(Handle(1)), 11u);
        EXPECT_EQ(t.Find(Handle(1)), 0u);
        for (std::uintptr_t i = 2; i < 6; ++i) EXPECT_TRUE(t.Bind(Handle(i), i)) << "every place is free again";
        EXPECT_FALSE(t.Bind(Handle(6), 6));
      });
}

TEST(NcclHandles, AFullTableSaysSo) {
  Small table;
  for (std::uintptr_t i = 1; i <= 4; ++i) EXPECT_TRUE(table.Bind(Handle(i), i));
  EXPECT_FALSE(table.Bind(Handle(5), 5));
  EXPECT_EQ(table.Unbind(Handle(2)), 2u);
  EXPECT_TRUE(table.Bind(Handle(5), 5));
  EXPECT_EQ(table.Find(Handle(5)), 5u);
  EXPECT_TRUE(table.Bind(nullptr, 1));
  EXPECT_EQ(table.Find(nullptr), 0u);
}

}  // namespace
}  // namespace lockstep::nccl
