#include "runtime/agent/late/late_stacks.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "runtime/agent/rings/segment_entries.h"

namespace lockstep::agent {
namespace {

constexpr std::int64_t kShortestSampleNs = 20'000'000;  // 50 a second.
constexpr double kStoppedShare = 0.002;                 // Of the thread's time.
// A job that is late for days needs no more samples than one that is for a minute.
constexpr std::uint64_t kSamplesUntilHalf = 1000;
constexpr std::int64_t kLongestSampleNs = 10'000'000'000;
constexpr std::int64_t kAfterFailureNs = 1'000'000'000;
constexpr double kNewest = 1.0 / 8;  // Of the mean stop.
constexpr std::int64_t kNamesWithinNs = 300'000'000;
constexpr std::size_t kMostPending = 12;  // The reader takes no more than 16.

// The ring of the process's main thread; null without one.
const RingHeader* MainRing(const SegmentView& segment, std::int64_t process, std::int64_t pid) {
  for (const RingEntry& entry : UsedRings(segment)) {
    if (entry.state.load(std::memory_order_acquire) != SlotState::kActive || entry.tid != pid ||
        static_cast<std::int64_t>(entry.process) != process)
      continue;
    const std::uint64_t offset = entry.offset;
    if (offset < kArenaOffset || offset > segment.bytes - kRingHeaderBytes) continue;
    return &segment.ring(offset);
  }
  return nullptr;
}

}  // namespace

LateStacks::LateStacks(Setup setup)
    : setup_(std::move(setup)),
      cells_(setup_.directory, setup_.rank, setup_.ranks),
      first_(TakeSnapshot(setup_.clock)),
      random_(static_cast<std::uint64_t>(RawNs()) * 2 + 1) {}

void LateStacks::Take(const RingEntry& entry, std::span<const iovec> parts) noexcept {
  if (over_) return;
  try {
    sums_.Take(entry, parts);
  } catch (const std::exception&) {
    over_ = true;  // No memory: there are no samples then, and nothing else changes.
  }
}

void LateStacks::Tick(std::int64_t now_ns, SpoolWriter& spool) noexcept {
  if (over_) return;
  try {
    if (now_ns >= next_look_ns_) Look(now_ns, spool);
    if (now_ns >= next_sample_ns_) Sample(now_ns);
    Write(spool, false);
  } catch (const std::exception&) {
    over_ = true;
    next_sample_ns_ = INT64_MAX;
  }
}

// One rate for the whole run so far: RAW and the TSC are driven by one oscillator.
double LateStacks::NsPerTick() const {
  const ClockSnapshot now = TakeSnapshot(setup_.clock);
  const auto ticks = static_cast<double>(now.ticks - first_.ticks);
  return ticks > 0 ? static_cast<double>(now.raw_ns - first_.raw_ns) / ticks : 1;
}

void LateStacks::Look(std::int64_t now_ns, SpoolWriter& spool) {
  next_look_ns_ = now_ns + cells_.period_ns();
  bool wanted = setup_.plan.kind == StackPlan::kAll;
  if (!wanted && sums_.process() >= 0) {
    WaitCell own{.rank = setup_.rank, .compare_with = judge_.compare_with(), .beat = ++beat_};
    const std::vector<WaitSum> sums = sums_.Largest(own.sums.size(), NsPerTick());
    std::copy(sums.begin(), sums.end(), own.sums.begin());
    joined_ = joined_ || !sums.empty();
    if (joined_) judge_.Look(now_ns, own, cells_.Exchange(own));
    wanted = judge_.late() || judge_.asked_for();
    if (const std::int32_t other = judge_.compare_with(); other >= 0 && other != compared_with_) {
      compared_with_ = other;
      spool.Append({SpoolKind::kMeta}, "stacks_compared_with\t" + std::to_string(other) + "\n");
    }
  }
  if (!wanted)
    next_sample_ns_ = INT64_MAX;
  else if (next_sample_ns_ == INT64_MAX)
    next_sample_ns_ = now_ns + PauseNs();
}

// Irregular, so that it does not beat with the steps.
std::int64_t LateStacks::PauseNs() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const double factor = 0.5 + static_cast<double>(random_ >> 11) / static_cast<double>(std::uint64_t{1} << 53);
  double pause = setup_.plan.kind == StackPlan::kAll ? 1e9 / setup_.plan.hz : static_cast<double>(kShortestSampleNs);
  if (setup_.plan.kind != StackPlan::kAll) {
    for (std::uint64_t left = samples_ / kSamplesUntilHalf; left > 0; left /= 2) pause *= 2;
    pause = std::min(pause, static_cast<double>(kLongestSampleNs));
  }
  pause = std::max(pause, stop_ns_ / kStoppedShare);
  return static_cast<std::int64_t>(pause * factor);
}

void LateStacks::Sample(std::int64_t now_ns) {
  next_sample_ns_ = now_ns + PauseNs();
  const std::span<ProcessEntry> processes = UsedProcesses(setup_.segment);
  // Of a program that does not communicate the first process is the one that is meant.
  const std::int64_t process = sums_.process() < 0 && setup_.plan.kind == StackPlan::kAll ? 0 : sums_.process();
  if (process < 0 || static_cast<std::size_t>(process) >= processes.size()) return;
  const ProcessEntry& entry = processes[static_cast<std::size_t>(process)];
  if (entry.state.load(std::memory_order_acquire) != SlotState::kActive || entry.pid <= 0) return;
  if (!AnyRecording(setup_.segment)) return;
  // On a busy machine names take longer. Looks are left out then wherever the thread is: else the rest would be none of
  // its time.
  if (reader_ && reader_->pending() >= kMostPending) return;
  const std::uint64_t ticks = setup_.clock.Ticks();
  const RingHeader* ring = MainRing(setup_.segment, process, entry.pid);
  if (ring != nullptr && ring->call_op.load(std::memory_order_relaxed) != 0) {
    ++samples_;
    rows_.push_back({ticks, entry.pid, 0, 0});
    return;
  }
  if (!reader_) reader_.emplace(std::move(setup_.reader));
  const std::int64_t id = reader_->Take(static_cast<pid_t>(entry.pid), StackReader::Which::kMainThread);
  if (id != 0) {
    ++samples_;
    taken_at_[id] = ticks;
    return;
  }
  // It may just be ending, or be examined by somebody else for a while.
  next_sample_ns_ = now_ns + kAfterFailureNs;
  if (reader_->pending() == 0 && !reader_->why().empty() && !std::exchange(said_, true))
    setup_.say("rank " + std::to_string(setup_.rank) + ": no samples of its stack: " + reader_->why());
}

void LateStacks::Write(SpoolWriter& spool, bool last) {
  if (reader_)
    for (const StackSample& sample : reader_->Ready()) {
      const auto at = taken_at_.find(sample.id);
      if (at == taken_at_.end()) continue;
      const std::uint64_t ticks = at->second;
      taken_at_.erase(at);
      stop_ns_ += kNewest * (static_cast<double>(sample.stopped_ns) - stop_ns_);
      for (const ThreadStack& thread : sample.threads) {
        const std::uint32_t stack = setup_.tree.Add(thread.frames);
        const auto stopped = static_cast<std::uint32_t>(std::clamp<std::int64_t>(sample.stopped_ns, 0, UINT32_MAX));
        if (stack != 0) rows_.push_back({ticks, thread.thread, stack, stopped});
      }
    }
  const SpoolReserve reserve = last ? SpoolReserve::kHalf : SpoolReserve::kNone;
  setup_.tree.Write(spool, reserve, setup_.unwritten);
  constexpr std::size_t kRowsPerBlock = kSpoolBlockBytes / sizeof(SpoolStackSample);
  for (std::size_t at = 0; at < rows_.size(); at += kRowsPerBlock) {
    const std::size_t count = std::min(kRowsPerBlock, rows_.size() - at);
    if (!spool.Append({SpoolKind::kSamples}, rows_.data() + at, count * sizeof(SpoolStackSample), reserve))
      setup_.unwritten(count);
  }
  rows_.clear();
}

void LateStacks::Finish(SpoolWriter& spool) noexcept {
  if (joined_) cells_.Leave();
  if (over_) return;
  try {
    const std::int64_t until_ns = RawNs() + kNamesWithinNs;
    constexpr timespec kPause{0, 2'000'000};
    while (reader_ && reader_->pending() > 0 && RawNs() < until_ns) {
      Write(spool, true);
      ::nanosleep(&kPause, nullptr);
    }
    Write(spool, true);
    if (!taken_at_.empty()) setup_.unnamed(taken_at_.size());
    reader_.reset();
  } catch (const std::exception&) {
    over_ = true;
  }
}

}  // namespace lockstep::agent
