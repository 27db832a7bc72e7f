#include "runtime/agent/sample/stop_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/eventually.h"

namespace lockstep::agent {
namespace {

// A process that sleeps until the test ends.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ == 0)
      for (;;) ::pause();
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  // Until it is stopped, or goes on.
  void Send(int signal) const {
    ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, signal == SIGSTOP ? WUNTRACED : WCONTINUED);
  }

 private:
  pid_t pid_;
};

TEST(StopWatch, SaysOnceThatAProcessIsStoppedAndThatItGoesOn) {
  std::vector<std::byte> memory(kRingTableOffset);
  const SegmentView segment{memory.data(), memory.size()};
  const Sleeper sleeper;
  ProcessEntry* entries = segment.processes();
  entries[0].pid = sleeper.pid();
  entries[0].state = SlotState::kActive;
  entries[1].pid = 0x7fffffff;  // There is no such process.
  entries[1].state = SlotState::kActive;
  entries[2].pid = sleeper.pid();
  entries[2].state = SlotState::kFree;
  segment.header().processes_used = 3;
  StopWatch watch;
  const std::string key = "stopped." + std::to_string(sleeper.pid()) + "\t";
  EXPECT_EQ(watch.Look(segment, 10, false), "");
  sleeper.Send(SIGSTOP);
  EXPECT_EQ(watch.Look(segment, 20, false), key + "20\n");
  EXPECT_EQ(watch.Look(segment, 30, true), "");
  sleeper.Send(SIGCONT);
  EXPECT_EQ(watch.Look(segment, 40, false), key + "\nwas_" + key + "20 40;\n");
  EXPECT_EQ(watch.Look(segment, 50, false), "");
  sleeper.Send(SIGSTOP);
  EXPECT_EQ(watch.Look(segment, 60, false), key + "60\n");
  sleeper.Send(SIGCONT);
  EXPECT_EQ(watch.Look(segment, 70, false), key + "\nwas_" + key + "20 40;60 70;\n");
}

// A stop that its agent makes to take its stack: the kernel begins such a call again under another name.
TEST(StopWatch, SaysTheSameOfACallThatGoesOnAfterAStop) {
  const pid_t sleeper = ::fork();
  if (sleeper == 0) {
    const timespec kLong{1000, 0};
    ::_exit(static_cast<int>(::syscall(SYS_nanosleep, &kLong, nullptr)));
  }
  std::vector<std::byte> memory(kRingTableOffset);
  const SegmentView segment{memory.data(), memory.size()};
  segment.processes()[0].pid = sleeper;
  segment.processes()[0].state = SlotState::kActive;
  segment.header().processes_used = 1;
  const std::string line = "blocked." + std::to_string(sleeper) + "\tnanosleep\n";
  StopWatch watch;
  std::string said;
  EXPECT_TRUE(test::Eventually([&] { return !(said = watch.Look(segment, 10, true)).empty(); }));
  EXPECT_EQ(said, line);
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, sleeper, nullptr, nullptr), 0);
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, sleeper, nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(sleeper, nullptr, __WALL), sleeper);
  ASSERT_EQ(::ptrace(PTRACE_DETACH, sleeper, nullptr, nullptr), 0);
  // "t" while it is stopped, "R" until it is in the call again.
  EXPECT_TRUE(test::Eventually([&] {
    std::ifstream file("/proc/" + std::to_string(sleeper) + "/stat");
    std::string number, name, state;
    return file >> number >> name >> state && state == "S";
  }));
  EXPECT_EQ(watch.Look(segment, 20, true), "");
  ::kill(sleeper, SIGKILL);
  ::waitpid(sleeper, nullptr, 0);
}

// A reader of a pipe that nobody writes to.
TEST(StopWatch, SaysInWhatAProcessSleepsThatRecordsNothing) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t reader = ::fork();
  if (reader == 0) {
    char byte;
    ::_exit(::read(pipe[0], &byte, 1) == 1 ? 0 : 1);
  }
  std::vector<std::byte> memory(kRingTableOffset);
  const SegmentView segment{memory.data(), memory.size()};
  segment.processes()[0].pid = reader;
  segment.processes()[0].state = SlotState::kActive;
  segment.header().processes_used = 1;
  const std::string key = "blocked." + std::to_string(reader) + "\t";
  StopWatch watch;
  std::string said;
  EXPECT_TRUE(test::Eventually([&] { return !(said = watch.Look(segment, 10, true)).empty(); }));
  EXPECT_EQ(said.substr(0, (key + "read of pipe:").size()), key + "read of pipe:") << said;
  EXPECT_EQ(watch.Look(segment, 20, true), "");
  EXPECT_EQ(watch.Look(segment, 30, false), key + "\n");
  ASSERT_EQ(::write(pipe[1], "x", 1), 1);
  ::waitpid(reader, nullptr, 0);
  ::close(pipe[0]), ::close(pipe[1]);
}

}  // namespace
}  // namespace lockstep::agent
