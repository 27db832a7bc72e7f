#pragma once
// Which signals the program is to get from its agent. A signal comes to the launched process (the waiter), to the
// agent, or to both; siginfo does not say whether a whole process group got it. Who signals a group, or every process
// of a job one by one, reaches both within a short time, and the program without anybody's help. Who signals the
// launched process alone means the program.

#include <cstdint>
#include <vector>

namespace lockstep::agent {

// For so long a receipt waits for the other one: longer than a scheduler takes from one process to the next, and short
// beside the time that programs get to end.
inline constexpr std::int64_t kTogetherNs = 40'000'000;

struct Received {
  std::int32_t signal = 0, code = 0, sender = 0;  // si_signo, si_code, si_pid.
  std::int64_t value = 0;                         // sigqueue(3)'s.
};

enum class Receiver : std::uint8_t { kWaiter, kAgent };

class Receipts {
 public:
  struct Decided {
    Received received;
    bool shared = false;  // It was sent to others as well.
    std::int64_t seen_ns = 0;
  };

  // There is no waiter (any more): what the agent receives is decided at once, as by the kernel's word alone.
  void Alone() { alone_ = true; }
  void Add(Receiver by, const Received& what, std::int64_t now_ns);
  // `now_ns` was read before everything that had come by then was added.
  std::vector<Decided> Take(std::int64_t now_ns);
  // Whether the waiter is to be asked whether it has told all it received: it may not have run since.
  bool TakeAsk();
  void Answered() { ++answers_; }
  // When to call Take at the latest; INT64_MAX: no need to.
  std::int64_t due_ns() const;

 private:
  struct Receipt {
    Receiver by;
    Received what;
    std::int64_t seen_ns;
    bool shared = false, decided = false;
    std::uint32_t ask = 0;  // Decided by the answer to this one.
  };
  void Forget(std::int64_t now_ns);
  bool DecidesAgents(Receipt& receipt, std::int64_t now_ns);

  std::vector<Receipt> receipts_;
  std::uint32_t asks_ = 0, answers_ = 0;
  bool alone_ = false, ask_ = false;
};

}  // namespace lockstep::agent
