#include "rule_reads.h"

#include "rule_table.h"

#ifdef __x86_64__
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#endif

namespace lockstep::rules {

#ifdef __x86_64__

// The pages that hold rules are not readable while `run` runs. An access faults: the handler notes whose address it is,
// opens the page and sets the processor's trap flag, so that the page is closed again after that one instruction.
namespace {

constexpr std::uintptr_t kPageBytes = 4096;
constexpr greg_t kTrapFlag = 0x100;

// What the handlers use lies in no page that they close: on the heap, by a pointer of the thread's own.
struct Watch {
  std::vector<std::uintptr_t> pages;  // In order.
  std::vector<std::uintptr_t> rules;  // In order of Table().
  std::vector<bool> read;
  std::uintptr_t open[4];  // By the instruction that is being stepped over.
  std::size_t open_count = 0;
};
thread_local Watch* watch [[gnu::tls_model("local-exec")]] = nullptr;

// Without the linker's tables, which may share a page with rules.
void Protect(std::uintptr_t page, int protection) {
  long result = SYS_mprotect;
  asm volatile("syscall" : "+a"(result) : "D"(page), "S"(kPageBytes), "d"(protection) : "rcx", "r11", "memory");
}

void OnFault(int, siginfo_t* info, void* context) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr), page = at & ~(kPageBytes - 1);
  Watch& w = *watch;
  bool known = false;
  for (const std::uintptr_t each : w.pages) known |= each == page;
  if (!known || w.open_count == std::size(w.open)) __builtin_trap();
  for (std::size_t i = 0; i < w.rules.size(); ++i)
    if (at >= w.rules[i] && at < w.rules[i] + sizeof(double)) w.read[i] = true;
  w.open[w.open_count++] = page;
  Protect(page, PROT_READ | PROT_WRITE);
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
}

void OnStep(int, siginfo_t*, void* context) {
  Watch& w = *watch;
  while (w.open_count > 0) Protect(w.open[--w.open_count], PROT_NONE);
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
}

}  // namespace

std::vector<bool> ReadBy(const std::function<void()>& run) {
  Watch w;
  for (const Rule& rule : Table()) {
    w.rules.push_back(reinterpret_cast<std::uintptr_t>(rule.at));
    w.pages.push_back(w.rules.back() & ~(kPageBytes - 1));
  }
  std::sort(w.pages.begin(), w.pages.end());
  w.pages.erase(std::unique(w.pages.begin(), w.pages.end()), w.pages.end());
  w.read.resize(w.rules.size());
  watch = &w;
  struct sigaction fault = {}, step = {}, had_fault, had_step;
  fault.sa_sigaction = OnFault;
  step.sa_sigaction = OnStep;
  fault.sa_flags = step.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &fault, &had_fault);
  sigaction(SIGTRAP, &step, &had_step);
  for (const std::uintptr_t page : w.pages) Protect(page, PROT_NONE);
  run();
  for (const std::uintptr_t page : w.pages) Protect(page, PROT_READ | PROT_WRITE);
  sigaction(SIGSEGV, &had_fault, nullptr);
  sigaction(SIGTRAP, &had_step, nullptr);
  watch = nullptr;
  return w.read;
}

#else

std::vector<bool> ReadBy(const std::function<void()>& run) {
  run();
  return std::vector<bool>(Table().size(), true);
}

#endif

}  // namespace lockstep::rules
