#include "runtime/agent/slot/child.h"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/agent/sample/preload_watch.h"
#include "runtime/agent/slot/exec.h"

namespace lockstep::agent {
namespace {

// The kernel tells a tracer of its own child's stops whatever it asked for.
TEST(Child, StopOfATracedChildIsNoEndAndIsLeftForItsTracer) {
  const Result<SignalGate> gate = SignalGate::Open();
  ASSERT_TRUE(gate.ok());
  Result<Child> started = Child::Start({"sleep", "1000"}, {}, gate.value(), launch::LaunchSource::kNone);
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

// What the launcher would refuse is refused, with its code; what it gives to a shell is given to one.
TEST(Child, IsStartedOrRefusedAsByTheLauncher) {
  using enum launch::LaunchSource;
  const Result<SignalGate> gate = SignalGate::Open();
  ASSERT_TRUE(gate.ok());
  const std::string place = ::testing::TempDir() + "child_test." + std::to_string(::getpid());
  std::filesystem::create_directory(place);
  const auto file = [&](const char* name, const char* text, bool executable) {
    std::ofstream(place + "/" + name) << text;
    if (executable) ::chmod((place + "/" + name).c_str(), 0700);
    return place + "/" + name;
  };
  const std::string no_mark = file("no_mark", "exit 5\n", true), no_shell = file("no_shell", "#!/no/such\n", true),
                    no_right = file("no_right", "#!/bin/sh\n", false), absent = place + "/absent";
  struct Row {
    launch::LaunchSource launcher;
    std::string program;
    int error, code;
  };
  const Row rows[] = {{kNone, no_mark, 0, 5},
                      {kPmi, no_mark, 0, 5},
                      {kOpenMpi, no_mark, ENOEXEC, 131},
                      {kSlurm, no_mark, ENOEXEC, 8},
                      {kTorchrun, no_mark, ENOEXEC, 126},
                      {kNone, no_shell, ENOENT, 127},
                      {kOpenMpi, no_shell, ENOENT, 131},
                      {kPmi, no_shell, ENOENT, 255},
                      {kSlurm, no_shell, ENOENT, 2},
                      {kNone, no_right, EACCES, 126},
                      {kOpenMpi, no_right, EACCES, 132},
                      {kSlurm, no_right, EACCES, 13},
                      {kNone, absent, ENOENT, 127},
                      {kOpenMpi, absent, ENOENT, 132},
                      {kOpenMpi, "no-such-program", ENOENT, 134},
                      {kNone, "no-such-program", ENOENT, 127},
                      {kNone, place, EACCES, 126},
                      {kOpenMpi, place, EACCES, 131},
                      {kOpenMpi, "true", 0, 0},
                      {kNone, "true", 0, 0}};
  for (const Row& row : rows) {
    const std::string what = row.program + " by " + std::string(launch::Name(row.launcher));
    Result<Child> started = Child::Start({row.program}, {"PATH=/usr/bin:/bin"}, gate.value(), row.launcher);
    ASSERT_TRUE(started.ok()) << what;
    EXPECT_EQ(started.value().start_errno(), row.error) << what;
    if (row.error != 0) {
      EXPECT_EQ(RefusalCode(row.launcher, row.program, row.error), row.code) << what;
      continue;
    }
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(started.value().pid()), &info, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(started.value().Poll().code, row.code) << what;
  }
  std::filesystem::remove_all(place);
}

TEST(Child, ThatWasStartedWithoutTheProbeIsTold) {
  const Result<SignalGate> gate = SignalGate::Open();
  ASSERT_TRUE(gate.ok());
  const auto lost = [&](const std::vector<std::string>& environment) {
    Result<Child> child = Child::Start({"sleep", "1000"}, environment, gate.value(), launch::LaunchSource::kNone);
    EXPECT_TRUE(child.ok());
    std::string why = LostPreload(child.value().pid(), "/opt/lib/liblockstep.so");
    ::kill(child.value().pid(), SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(child.value().pid()), &info, WEXITED);
    return why;
  };
  EXPECT_EQ(lost({"A=b", "LD_PRELOAD=/x.so:/opt/lib/liblockstep.so"}), "");
  EXPECT_EQ(lost({"A=b", "MINE=liblockstep.so"}), "sleep: LD_PRELOAD was unset before it started");
  EXPECT_EQ(lost({"LD_PRELOAD=libm.so.6"}), "sleep: LD_PRELOAD was replaced (libm.so.6) before it started");
  EXPECT_EQ(LostPreload(1 << 30, "/opt/lib/liblockstep.so"), "");
}

}  // namespace
}  // namespace lockstep::agent
