#include "runtime/agent/slot/receipts.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

namespace lockstep::agent {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr auto kWaiter = Receiver::kWaiter, kAgent = Receiver::kAgent;

// A clock and a waiter that answers when it is told to.
class ReceiptsTest : public ::testing::Test {
 protected:
  void Add(Receiver by, int signal, int sender = 7, int code = SI_USER, std::int64_t value = 0) {
    receipts_.Add(by, {.signal = signal, .code = code, .sender = sender, .value = value}, now_);
  }
  // Of each decided signal: its number, "s" if it was shared.
  std::string After(std::int64_t ms) {
    now_ += ms * kMillisecond;
    std::string text;
    for (const Receipts::Decided& each : receipts_.Take(now_))
      text += (text.empty() ? "" : " ") + std::to_string(each.received.signal) + (each.shared ? "s" : "");
    return text;
  }
  static constexpr std::int64_t kLong = kTogetherNs / kMillisecond;

  Receipts receipts_;
  std::int64_t now_ = 1000 * kMillisecond;
};

TEST_F(ReceiptsTest, OfTheLaunchedProcessAloneIsThePrograms) {
  Add(kWaiter, SIGTERM);
  EXPECT_EQ(After(kLong - 1), "");
  EXPECT_EQ(receipts_.due_ns(), now_ + kMillisecond);
  EXPECT_EQ(After(1), "15");
  EXPECT_EQ(receipts_.due_ns(), INT64_MAX);
  EXPECT_FALSE(receipts_.TakeAsk());
}

TEST_F(ReceiptsTest, OfBothIsTheGroupsInEitherOrder) {
  for (const auto& [first, second] : {std::pair{kWaiter, kAgent}, std::pair{kAgent, kWaiter}}) {
    Add(first, SIGUSR1);
    EXPECT_EQ(After(kLong - 1), "");
    Add(second, SIGUSR1);
    EXPECT_EQ(After(0), "10s");
    EXPECT_EQ(After(10 * kLong), "");
    EXPECT_FALSE(receipts_.TakeAsk());
  }
}

TEST_F(ReceiptsTest, SignalsFarApartAreOnesOfTheirOwn) {
  Add(kWaiter, SIGUSR1);
  Add(kAgent, SIGUSR1);
  EXPECT_EQ(After(0), "10s");
  now_ += kTogetherNs;
  Add(kWaiter, SIGUSR1);
  EXPECT_EQ(After(kLong), "10");
}

// GNU timeout signals its child, and then the group.
TEST_F(ReceiptsTest, ABurstOfOneSenderIsOne) {
  Add(kWaiter, SIGTERM);
  EXPECT_EQ(After(1), "");
  Add(kAgent, SIGTERM);
  EXPECT_EQ(After(0), "15s");
  Add(kWaiter, SIGTERM);
  EXPECT_EQ(After(0), "15s");
  EXPECT_EQ(After(10 * kLong), "");
}

TEST_F(ReceiptsTest, AnotherSendersOrAnotherSignalIsNotTheGroups) {
  Add(kWaiter, SIGUSR1, 8);
  Add(kWaiter, SIGUSR2);
  Add(kWaiter, SIGRTMIN, 7, SI_QUEUE, 1);
  Add(kWaiter, SIGRTMIN, 7, SI_QUEUE, 2);
  Add(kAgent, SIGUSR1);
  Add(kAgent, SIGRTMIN, 7, SI_QUEUE, 2);
  const std::string real_time = std::to_string(SIGRTMIN);
  EXPECT_EQ(After(0), real_time + "s");
  EXPECT_EQ(After(kLong), "10 12 " + real_time);
  EXPECT_EQ(After(kLong), "");
}

// On a busy machine the waiter may not have run, so that only its answer says that it received nothing.
TEST_F(ReceiptsTest, OfTheAgentAloneWaitsForTheWaitersWord) {
  Add(kAgent, SIGTERM);
  EXPECT_FALSE(receipts_.TakeAsk());
  EXPECT_EQ(After(kLong), "");
  EXPECT_TRUE(receipts_.TakeAsk());
  EXPECT_FALSE(receipts_.TakeAsk());
  EXPECT_EQ(receipts_.due_ns(), INT64_MAX);
  EXPECT_EQ(After(10 * kLong), "");
  Add(kAgent, SIGHUP);
  EXPECT_EQ(After(kLong), "");
  EXPECT_TRUE(receipts_.TakeAsk());
  receipts_.Answered();
  EXPECT_EQ(After(0), "15");
  Add(kWaiter, SIGHUP);  // It comes before the second answer.
  receipts_.Answered();
  EXPECT_EQ(After(0), "1s");
  EXPECT_EQ(After(kLong), "");
}

TEST_F(ReceiptsTest, TheKernelsOwnToTheAgentIsNotThePrograms) {
  Add(kAgent, SIGXCPU, 0, SI_KERNEL);
  EXPECT_EQ(After(kLong), "");
  receipts_.Answered();
  EXPECT_EQ(After(0), std::to_string(SIGXCPU) + "s");
}

TEST_F(ReceiptsTest, WithoutAWaiterTheKernelsSignalIsTheTerminals) {
  receipts_.Alone();
  Add(kAgent, SIGINT, 0, SI_KERNEL);
  Add(kAgent, SIGTERM);
  EXPECT_EQ(After(0), "2s 15");
}

}  // namespace
}  // namespace lockstep::agent
