#include "runtime/agent/send/so_far.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "comms/clock/quiet_thread.h"

namespace lockstep::agent {
namespace {

constexpr std::int64_t kGivePauseNs = 15'000'000'000, kBackPauseNs = 2'000'000'000;
constexpr std::int64_t kFirstAgainNs = 30'000'000'000, kLastAgainNs = 1'800'000'000'000;
constexpr std::int64_t kAskPauseNs = 5'000'000'000, kAskPauseOfSlotNs = 10'000'000;
constexpr int kMostBacks = 5;  // An agent that cannot be reached so often has lost what it had, or the job is over.

}  // namespace

struct SoFarSender::State {
  std::mutex mutex;
  bool busy = false;
  bool there = false, may_be_there = false;  // Of what was given in vain the last word may be lost only.
  bool said = false;                         // A hang, while what was given is there.
  int moves = 0;                             // An answer of before the last one counts no more.
  int failed_backs = 0;
};

bool SoFarSender::there() const {
  if (!state_) return false;
  const std::lock_guard lock(state_->mutex);
  return state_->there;
}

void SoFarSender::Offer(std::int64_t now_ns, std::uint64_t spool_bytes) {
  if (spool_bytes > kMostBytes || now_ns < next_give_ns_) return;
  const bool again = there();
  if (setup_.write_open) setup_.write_open();
  if (!Begin(Call::kGive)) return;
  again_ns_ = again ? std::min(2 * again_ns_, kLastAgainNs) : kFirstAgainNs;
  next_give_ns_ = now_ns + (again ? again_ns_ : kGivePauseNs);
}

void SoFarSender::TakeBack(std::int64_t now_ns) {
  next_give_ns_ = 0;
  if (!state_ || now_ns < next_back_ns_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->said = false;
    ++state_->moves;
    if (!state_->may_be_there) return;
  }
  if (Begin(Call::kBack)) next_back_ns_ = now_ns + kBackPauseNs;
}

bool SoFarSender::SaidElsewhere(std::int64_t now_ns, std::int32_t slots) {
  if (!there()) return false;
  if (now_ns >= next_ask_ns_ && Begin(Call::kAsk))
    next_ask_ns_ = now_ns + std::max(kAskPauseNs, slots * kAskPauseOfSlotNs);
  const std::lock_guard lock(state_->mutex);
  return state_->there && state_->said;
}

// Returns whether it was begun.
bool SoFarSender::Begin(Call what) {
  if (!state_) state_ = std::make_shared<State>();
  const std::lock_guard lock(state_->mutex);
  if (state_->busy) return false;
  std::optional<FileSender::Setup> call = setup_.call();
  if (!call) return false;
  call->why = clock::FilesWhy::kQuiet;
  call->stall_ms = setup_.stall_ms;
  state_->busy = true;
  if (what == Call::kGive) state_->may_be_there = true;
  if (what == Call::kAsk) {
    clock::QuietThread([state = state_, call = std::move(*call), moves = state_->moves] {
      const bool said = FileSender(call).AskForHang();
      const std::lock_guard finish(state->mutex);
      state->busy = false;
      state->said = said && moves == state->moves;
    }).detach();
    return true;
  }
  const bool back = what == Call::kBack;
  clock::QuietThread([state = state_, call = std::move(*call), spool = setup_.spool, back] {
    const std::vector<FileToSend> files = back ? std::vector<FileToSend>{} : std::vector{spool};
    const bool done = FileSender(call).Send(files).end == SendEnd::kSent;
    const std::lock_guard finish(state->mutex);
    state->busy = false;
    state->there = !back && done;
    if (!back) return;
    state->failed_backs = done ? 0 : state->failed_backs + 1;
    if (done || state->failed_backs >= kMostBacks) {
      state->may_be_there = false;
      state->failed_backs = 0;
    }
  }).detach();
  return true;
}

}  // namespace lockstep::agent
