#include "runtime/agent/stacks/thread_stop.h"

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>

#include "core/clock_ns.h"
#include "core/event_clock.h"
#include "runtime/agent/stacks/thread_state.h"

namespace lockstep::agent {

#if defined(__x86_64__)
namespace {

// A running thread stops within microseconds. One that waits for a core does when it gets one.
constexpr std::int64_t kSpinNs = 50'000, kPieceNs = 5'000'000, kLongestWaitNs = 200'000'000;

// Those whose default is to do nothing end no call.
bool DoesNothing(int signal) {
  return signal == SIGCHLD || signal == SIGURG || signal == SIGWINCH || signal == SIGCONT;
}

Registers FromUser(const user_regs_struct& user) {
  return {{user.rax, user.rdx, user.rcx, user.rbx, user.rsi, user.rdi, user.rbp, user.rsp, user.r8, user.r9, user.r10,
           user.r11, user.r12, user.r13, user.r14, user.r15, user.rip}};
}

bool GetRegisters(pid_t thread, user_regs_struct& user) {
  iovec into{&user, sizeof user};
  return ::ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &into) == 0;
}

// Sleeps until the kernel reports a stop, as it does with SIGCHLD: who sleeps is woken at once even where others want
// the core. The end of a child is reported likewise: what was taken is sent again for who waits for that.
class StopSignal {
 public:
  StopSignal() {
    sigemptyset(&child_);
    sigaddset(&child_, SIGCHLD);
    ::pthread_sigmask(SIG_BLOCK, &child_, &before_);
  }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal() {
    if (taken_) ::kill(::getpid(), SIGCHLD);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  void Await() {
    const timespec piece{0, kPieceNs};
    taken_ |= ::sigtimedwait(&child_, nullptr, &piece) == SIGCHLD;
  }

 private:
  sigset_t child_{}, before_{};
  bool taken_ = false;
};

// False: it was killed where it stood, and its end has to be waited for.
bool LetGo(pid_t thread, int signal) {
  return ::ptrace(PTRACE_DETACH, thread, nullptr, reinterpret_cast<void*>(static_cast<std::intptr_t>(signal))) == 0;
}

}  // namespace

// The end of a child of this process is reported once, to whoever waits for it (slot/child.cc): this does not ask for
// it. Every other traced thread that ends has to be waited for here, or its real parent never hears of it.
ThreadStopper::Wait ThreadStopper::Look(const Traced& traced, int& signal) {
  const bool leave_end = traced.own_child && traced.thread == traced.pid;
  siginfo_t info{};
  const int options = WSTOPPED | WNOHANG | __WALL | (leave_end ? 0 : WEXITED);
  if (::waitid(P_PID, static_cast<id_t>(traced.thread), &info, options) != 0)
    return errno == EINTR ? Wait::kNotYet : Wait::kEnded;
  if (info.si_pid == 0) return Wait::kNotYet;
  if (info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED) return Wait::kEnded;
  // A stop that was asked for, or one that stops the whole process, shows as an event; what does not is a signal on its
  // way, which goes on with the thread.
  signal = (info.si_status >> 8) == 0 ? info.si_status & 0x7f : 0;
  return Wait::kStopped;
}

// Whether there is something left to wait for. A thread that executes a program becomes the process's first thread: it
// goes on under that number, without a word about the other one.
bool ThreadStopper::Follow(Traced& traced) {
  const auto is_mine = [&](pid_t thread) {
    if (FactsOfThread(traced.pid, thread).tracer != ::gettid()) return false;
    const char state = StateOf(traced.pid, thread).state;
    const bool ended = state == 'Z' || state == 'X';
    return !ended || !traced.own_child || thread != traced.pid;  // A child's end is for others, any other one for Look.
  };
  if (is_mine(traced.thread)) return true;
  if (!is_mine(traced.pid)) return false;
  traced.thread = traced.pid;
  return true;
}

// Some calls end with EINTR when their thread is stopped. A thread may begin one between the look at what it does and
// its stop; then that call begins again, unless a signal with a handler ends it in any case.
void ThreadStopper::MendCall(const Traced& traced, int signal) {
  user_regs_struct user{};
  if (!GetRegisters(traced.thread, user)) return;
  if (static_cast<std::int64_t>(user.rax) != -EINTR || static_cast<std::int64_t>(user.orig_rax) < 0) return;
  if (!EndsByStop(static_cast<long>(user.orig_rax))) return;
  const ProcessFacts facts = FactsOfThread(traced.pid, traced.thread);
  const bool handled = signal != 0 && (facts.caught >> (signal - 1) & 1) != 0;
  if (handled || (facts.pending & facts.caught) != 0 || (signal != 0 && !DoesNothing(signal))) return;
  constexpr std::uint64_t kCallBytes = 2;  // `syscall`.
  user.rip -= kCallBytes;
  user.rax = user.orig_rax;
  iovec from{&user, sizeof user};
  if (::ptrace(PTRACE_SETREGSET, traced.thread, NT_PRSTATUS, &from) == 0) ++mended_;
}

ThreadStopper::Outcome ThreadStopper::Stop(pid_t pid, pid_t thread, bool own_child,
                                           const std::function<void(const Registers&)>& look) {
  last_stop_ns_ = 0;
  // Who executes a program waits for every traced thread to be waited for, and PTRACE_SEIZE waits for who executes one:
  // with a second thread at hand both would wait for ever.
  Settle();
  if (!late_.empty()) return Outcome::kLate;
  StopSignal stop_signal;
  Traced traced{pid, thread, own_child};
  if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0)
    return errno == EPERM ? Outcome::kForbidden : Outcome::kGone;
  // Seized and not interrupted a thread cannot be let go; if it cannot be interrupted, it is ending.
  ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
  const std::int64_t asked_ns = RawNs();
  for (;;) {
    int signal = 0;
    const Wait wait = Look(traced, signal);
    const std::int64_t now_ns = RawNs();
    if (wait == Wait::kEnded && !Follow(traced)) return Outcome::kGone;
    if (wait == Wait::kStopped) {
      user_regs_struct user{};
      const bool known = traced.thread == thread && GetRegisters(thread, user);
      if (known) look(FromUser(user));
      MendCall(traced, signal);
      // Of letting it go what this thread itself did: who is woken on the same core runs before this thread does again
      // (Linux 6.18: 1 to 5 ms of every sixth stop on a core that both use).
      const std::int64_t stopped_ns = RawNs() - now_ns, cpu_ns = ClockNs(CLOCK_THREAD_CPUTIME_ID);
      if (LetGo(traced.thread, signal)) {
        last_stop_ns_ = stopped_ns + ClockNs(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
        return known ? Outcome::kDone : Outcome::kGone;
      }
    }
    if (now_ns - asked_ns > kLongestWaitNs) break;
    if (now_ns - asked_ns < kSpinNs) continue;
    if (!Follow(traced)) return Outcome::kGone;
    stop_signal.Await();
  }
  late_.push_back(traced);
  return Outcome::kLate;
}

void ThreadStopper::Settle() {
  std::erase_if(late_, [this](Traced& traced) {
    int signal = 0;
    const Wait wait = Look(traced, signal);
    if (wait != Wait::kStopped) return !Follow(traced);
    MendCall(traced, signal);
    return LetGo(traced.thread, signal);
  });
}

#else

ThreadStopper::Outcome ThreadStopper::Stop(pid_t, pid_t, bool, const std::function<void(const Registers&)>&) {
  return Outcome::kLate;  // Nothing asks: MayBeStopped (thread_state.h) says no.
}
void ThreadStopper::Settle() {}

#endif

// This process may live on for long. Who does not stop within a second is let go by the kernel at its end.
ThreadStopper::~ThreadStopper() {
  constexpr timespec kPause{0, 1'000'000};
  for (int i = 0; i < 1000; ++i) {
    Settle();
    if (late_.empty()) return;
    ::nanosleep(&kPause, nullptr);
  }
}

}  // namespace lockstep::agent
