#include "runtime/agent/slot/waiter.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <string>
#include <utility>

#include "runtime/agent/rundir/say.h"

extern "C" const char __executable_start, etext;  // The linker's.

namespace lockstep::agent {
namespace {

// What reading the command line has touched of the program file is not needed for waiting.
void LeaveCode() {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(&__executable_start) / page * page;
  ::madvise(reinterpret_cast<void*>(begin), reinterpret_cast<std::uintptr_t>(&etext) - begin, MADV_DONTNEED);
}

enum class Word : std::int32_t { kSignal, kAnswer, kAsk, kProgram, kEnd };

struct Message {
  Word word = Word::kSignal;
  std::int32_t number = 0;  // The program's pid, or its exit code.
  Received received;        // Its signal is also the one that ended the program.
};

bool Send(int socket, const Message& message, int flags = 0) {
  ssize_t n;
  do {
    n = ::send(socket, &message, sizeof message, MSG_NOSIGNAL | flags);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(sizeof message);
}

// Nothing if there is nothing now; `gone` if nobody is at the other end.
std::optional<Message> Receive(int socket, bool& gone) {
  Message message;
  ssize_t n;
  do {
    n = ::recv(socket, &message, sizeof message, MSG_DONTWAIT);
    // The kernel tells that the other end closed with something unread, once and before what it had sent itself.
  } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  if (n == static_cast<ssize_t>(sizeof message)) return message;
  gone = n >= 0 || errno != EAGAIN;
  return std::nullopt;
}

struct End {
  int code = 0, signal = 0;
};

End EndOf(int status) { return WIFEXITED(status) ? End{WEXITSTATUS(status), 0} : End{0, WTERMSIG(status)}; }

class Waiter {
 public:
  Waiter(const SignalGate& gate, OwnedFd socket, pid_t agent, const OomKills& kills)
      : gate_(gate), socket_(std::move(socket)), agent_(agent), kills_(kills) {}

  [[noreturn]] void Run() {
    for (;;) {
      pollfd fds[] = {{gate_.fd(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
      ::poll(fds, 2, -1);
      TakeSignals();
      Listen();
      Reap();
    }
  }

 private:
  void TakeSignals() {
    while (const auto received = gate_.Read())
      if (received->signal != SIGCHLD) Pass(*received);
  }

  void Pass(const Received& received) {
    if (socket_.open() && Send(socket_.get(), {Word::kSignal, 0, received})) return;
    socket_.Reset();
    Reap();
    // The agent is gone, or does not listen any more: its program has ended, or it has become the program itself.
    if (received.code != SI_KERNEL) SendSignal(agent_end_ ? program_ : agent_, received);
  }

  void Listen() {
    bool gone = false;
    while (socket_.open() && !gone) {
      const std::optional<Message> message = Receive(socket_.get(), gone);
      if (!message) break;
      if (message->word == Word::kProgram) program_ = message->number;
      if (message->word == Word::kEnd) told_ = End{message->number, message->received.signal};
      if (message->word == Word::kAsk) {
        TakeSignals();
        Send(socket_.get(), {.word = Word::kAnswer});
      }
    }
    if (gone) socket_.Reset();
  }

  // This process adopts what the program leaves behind, too.
  void Reap() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == agent_) {
        agent_end_ = EndOf(status);
        Listen();  // Its last words.
        socket_.Reset();
      } else if (pid == program_) {
        program_end_ = EndOf(status);
      }
    }
    if (agent_end_) AfterAgent();
  }

  void AfterAgent() {
    if (agent_end_->signal == 0) EndLike(agent_end_->code, 0);
    if (told_) {
      // Who interrupts the analysis at the end of a run wants to see that.
      if (Ends(agent_end_->signal) || told_->signal == agent_end_->signal) EndLike(0, agent_end_->signal);
      Say();
      EndLike(told_->code, told_->signal);
    }
    if (program_end_) {
      Say();
      EndLike(program_end_->code, program_end_->signal);
    }
    // Before an end can be seen, orphans have their new parent.
    siginfo_t ignored;
    if (program_ <= 0 || ::waitid(P_PID, static_cast<id_t>(program_), &ignored, WEXITED | WNOHANG | WNOWAIT) != 0)
      EndLike(0, agent_end_->signal);
    Say();
  }

  void Say() {
    if (std::exchange(said_, true)) return;
    const std::string oom = agent_end_->signal == SIGKILL ? OomKillsSince(kills_, CountOomKills()) : "";
    agent::Say(
        "the agent (process " + std::to_string(agent_) + ") was ended by signal " + std::to_string(agent_end_->signal) +
        ", the program was not: the next `lockstep analyze` reads what was recorded" + (oom.empty() ? "" : "; " + oom));
  }

  const SignalGate& gate_;
  OwnedFd socket_;
  pid_t agent_, program_ = -1;
  const OomKills& kills_;
  std::optional<End> agent_end_, program_end_, told_;  // `told_`: the program's, by the agent.
  bool said_ = false;
};

}  // namespace

WaiterLink WaiterLink::Split(const SignalGate& gate, const OomKills& kills) {
  WaiterLink link;
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return link;
  OwnedFd mine(sockets[0]), agents(sockets[1]);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1UL);
  const pid_t pid = ::fork();
  if (pid == 0) {
    link.socket_ = std::move(agents);
    return link;
  }
  if (pid < 0) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 0UL);
    return link;
  }
  agents.Reset();
  LeaveStandardStreams();
  LeaveCode();
  // `pkill lockstep` is meant for the program, and must not look like a signal to every process of the job.
  ::prctl(PR_SET_NAME, "waits-for-agent");
  Waiter(gate, std::move(mine), pid, kills).Run();
}

std::optional<Received> WaiterLink::Read(Receipts& receipts) {
  bool gone = !socket_.open();
  while (!gone) {
    const std::optional<Message> message = Receive(socket_.get(), gone);
    if (message && message->word == Word::kSignal) return message->received;
    if (message) receipts.Answered();
    if (!message && !gone) return std::nullopt;
  }
  socket_.Reset();
  receipts.Alone();
  return std::nullopt;
}

// Never waits for a waiter that is stopped.
void WaiterLink::Ask() {
  if (open()) Send(fd(), {.word = Word::kAsk}, MSG_DONTWAIT);
}

void WaiterLink::TellProgram(pid_t pid) {
  if (open()) Send(fd(), {.word = Word::kProgram, .number = pid}, MSG_DONTWAIT);
}

void WaiterLink::TellEnd(int code, int signal) {
  if (open()) Send(fd(), {.word = Word::kEnd, .number = code, .received = {.signal = signal}}, MSG_DONTWAIT);
}

}  // namespace lockstep::agent
