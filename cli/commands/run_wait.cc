#include "cli/commands/run_wait.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/rank_name.h"
#include "runtime/agent/rundir/claim.h"

namespace lockstep::cli {
namespace {

using std::chrono::steady_clock;

bool Exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

// Every agent claims its slot before it starts the application. A slot without a claim has no agent or no shared file
// system, which is no reason to delay the job for the whole time. Five seconds are enough for a rank that starts late
// and a file system that caches; of ranks on one host a moment is.
constexpr std::chrono::milliseconds kUnclaimedWait{5000}, kUnclaimedHereWait{500};

enum class Expectation : std::uint8_t {
  kFile,
  kFailed,
  kComing,   // Somebody is at it.
  kNobody,   // Nothing is known of it.
  kNotHere,  // It will not come.
};

Expectation ExpectationOf(const std::string& run_dir, std::int32_t slot, const agent::OtherHosts& others) {
  switch (LookAt(run_dir, slot)) {
    case SlotEnd::kFile:
      // What is sent is there once all of it is.
      return others.state(slot) == agent::SenderState::kComing ? Expectation::kComing : Expectation::kFile;
    case SlotEnd::kFailed:
      return Expectation::kFailed;
    case SlotEnd::kPending:
      return Expectation::kComing;
    case SlotEnd::kUnclaimed:
      break;
  }
  switch (others.state(slot)) {
    case agent::SenderState::kComing:
      return Expectation::kComing;
    case agent::SenderState::kHere:
      return Expectation::kFailed;  // Its spool is here, as it could not make a rank file.
    case agent::SenderState::kGone:
      return Expectation::kNotHere;
    case agent::SenderState::kUnknown:
      break;
  }
  return others.connected() ? Expectation::kComing : Expectation::kNobody;
}

}  // namespace

SlotEnd LookAt(const std::string& run_dir, std::int32_t slot) {
  const agent::Claim claim = agent::ReadClaim(agent::ClaimPath(run_dir, slot));
  if (claim.state == agent::ClaimState::kDone) return SlotEnd::kFile;
  if (claim.over()) return SlotEnd::kFailed;  // This includes an agent that died and could not record it.
  if (claim.state == agent::ClaimState::kRunning) return SlotEnd::kPending;
  return Exists(run_dir + "/ranks/" + RankName(slot) + ".h5") ? SlotEnd::kFile : SlotEnd::kUnclaimed;
}

Waited WaitForSlots(const std::string& run_dir, std::int32_t slots, std::int64_t wait_ms,
                    const agent::OtherHosts& others, bool one_host) {
  const auto begin = steady_clock::now();
  auto end = begin + std::chrono::milliseconds(wait_ms);
  auto pause = std::chrono::milliseconds(5);
  std::uint64_t progress = others.progress();
  Waited waited;
  std::vector<std::int32_t> pending;
  for (std::int32_t slot = 0; slot < slots; ++slot) pending.push_back(slot);
  for (;;) {
    std::vector<std::int32_t> left;
    bool coming = false;
    for (const std::int32_t slot : pending) {
      const Expectation expected = ExpectationOf(run_dir, slot, others);
      waited.files += expected == Expectation::kFile;
      waited.failed += expected == Expectation::kFailed;
      if (expected == Expectation::kNotHere) waited.missing.push_back(slot);
      if (expected == Expectation::kComing || expected == Expectation::kNobody) left.push_back(slot);
      coming = coming || expected == Expectation::kComing;
    }
    pending.swap(left);
    const auto now = steady_clock::now();
    if (const std::uint64_t so_far = others.progress(); so_far != progress) {
      progress = so_far;
      end = now + std::chrono::milliseconds(wait_ms);
    }
    if (pending.empty() || now >= end || (!coming && now >= begin + (one_host ? kUnclaimedHereWait : kUnclaimedWait)))
      break;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(250));
  }
  waited.connected = others.connected();
  for (const std::int32_t slot : pending)
    if (LookAt(run_dir, slot) == SlotEnd::kPending) waited.running.push_back(slot);
  waited.missing.insert(waited.missing.end(), pending.begin(), pending.end());
  std::sort(waited.missing.begin(), waited.missing.end());
  return waited;
}

}  // namespace lockstep::cli
