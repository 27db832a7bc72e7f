#include "runtime/agent/slot/receipts.h"

#include <algorithm>
#include <csignal>

namespace lockstep::agent {

// What is decided stays for a while: signals of the same sender that come close together are delivered as one to who is
// slow to take them, so that one receipt here may answer to two there (GNU timeout 9.1 signals its child and then the
// group).
void Receipts::Forget(std::int64_t now_ns) {
  std::erase_if(receipts_, [&](const Receipt& each) { return each.decided && now_ns >= each.seen_ns + kTogetherNs; });
}

void Receipts::Add(Receiver by, const Received& what, std::int64_t now_ns) {
  Forget(now_ns);
  Receipt mine{by, what, now_ns};
  for (Receipt& other : receipts_) {
    if (other.by == by || other.what.signal != what.signal) continue;
    Receipt& of_waiter = by == Receiver::kWaiter ? mine : other;
    Receipt& of_agent = by == Receiver::kWaiter ? other : mine;
    // Nobody signals the agent alone while others signal the waiter.
    of_agent.shared = true;
    of_waiter.shared |= other.what.sender == what.sender && other.what.value == what.value;
  }
  receipts_.push_back(mine);
}

bool Receipts::DecidesAgents(Receipt& receipt, std::int64_t now_ns) {
  if (alone_) return true;
  if (now_ns < receipt.seen_ns + kTogetherNs) return false;
  if (receipt.ask == 0) {
    receipt.ask = asks_ + 1;
    ask_ = true;
  }
  return answers_ >= receipt.ask;
}

std::vector<Receipts::Decided> Receipts::Take(std::int64_t now_ns) {
  std::vector<Decided> decided;
  for (Receipt& each : receipts_) {
    if (each.decided) continue;
    if (each.by == Receiver::kWaiter) {
      each.decided = each.shared || now_ns >= each.seen_ns + kTogetherNs;
      if (each.decided) decided.push_back({each.what, each.shared, each.seen_ns});
    } else if (each.shared) {
      each.decided = true;  // Its other half speaks for it.
    } else if (DecidesAgents(each, now_ns)) {
      each.decided = true;
      // The kernel's are the agent's own matter (its limits), or a terminal's, which signals groups.
      decided.push_back({each.what, each.what.code == SI_KERNEL, each.seen_ns});
    }
  }
  Forget(now_ns);
  return decided;
}

bool Receipts::TakeAsk() {
  const bool ask = ask_;
  asks_ += ask;
  ask_ = false;
  return ask;
}

std::int64_t Receipts::due_ns() const {
  std::int64_t due = INT64_MAX;
  for (const Receipt& each : receipts_)
    if (!each.decided && each.ask == 0) due = std::min(due, each.seen_ns + kTogetherNs);
  return due;
}

}  // namespace lockstep::agent
