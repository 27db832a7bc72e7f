#include "runtime/agent/slot/child.h"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <csignal>

namespace lockstep::agent {
namespace {

// The kernel tells a tracer of its own child's stops whatever it asked for.
TEST(Child, StopOfATracedChildIsNoEndAndIsLeftForItsTracer) {
  const Result<SignalGate> gate = SignalGate::Open();
  ASSERT_TRUE(gate.ok());
  Result<Child> started = Child::Start({"sleep", "1000"}, {}, gate.value());
  ASSERT_TRUE(started.ok());
  Child& child = started.value();
  const pid_t pid = child.pid();
  ASSERT_GT(pid, 0);
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr), 0);
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr), 0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOWAIT), 0);

  EXPECT_FALSE(child.Poll().ended);
  EXPECT_EQ(child.pid(), pid);
  info = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOHANG), 0);
  EXPECT_EQ(info.si_pid, pid);
  EXPECT_EQ(::ptrace(PTRACE_DETACH, pid, nullptr, nullptr), 0);

  ::kill(pid, SIGKILL);
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  const ChildExit end = child.Poll();
  EXPECT_TRUE(end.ended);
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_EQ(child.pid(), -1);
  EXPECT_FALSE(child.Poll().ended);
}

}  // namespace
}  // namespace lockstep::agent
