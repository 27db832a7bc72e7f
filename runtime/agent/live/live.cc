#include "runtime/agent/live/live.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>

#include "core/clock_ns.h"
#include "core/own_file.h"
#include "runtime/agent/live/live_text.h"

namespace lockstep::agent {
namespace {

constexpr std::size_t kMostSteps = 16, kMostEntries = 4096;
// The largest share of a processor's time for reading and comparing all ranks: with thousands of them the period grows.
constexpr double kGatherShare = 0.001;

}  // namespace

Live::Live(const Setup& setup) : setup_(setup), first_(TakeSnapshot(setup.clock)), now_(first_) {
  published_epoch_ = gathered_epoch_ = ClockNs(CLOCK_REALTIME) / setup_.period_ns;
  last_gather_ns_ = RawNs();
}

std::int64_t Live::Ns(std::uint64_t ticks) const {
  // One rate for the whole run so far: RAW and the TSC are driven by one oscillator.
  const auto ahead = static_cast<double>(static_cast<std::int64_t>(ticks - now_.ticks));
  const auto span = static_cast<double>(now_.ticks - first_.ticks);
  const double rate = span > 0 ? static_cast<double>(now_.raw_ns - first_.raw_ns) / span : 1;
  return now_.raw_ns + std::llround(ahead * rate);
}

void Live::Take(std::uint32_t ring, const RingEntry& entry, std::span<const iovec> parts) noexcept {
  if (over_) return;
  try {
    steps_.Take(ring, entry, parts);
  } catch (const std::exception&) {
    over_ = true;
  }
}

void Live::Tick(const std::function<State()>& state) noexcept {
  if (over_) return;
  try {
    Look(state);
  } catch (const std::exception&) {
    over_ = true;
  }
}

void Live::Look(const std::function<State()>& state) {
  before_ticks_ = last_tick_ticks_;
  last_tick_ticks_ = setup_.clock.Ticks();
  const std::int64_t now_ns = ClockNs(CLOCK_REALTIME), epoch = now_ns / setup_.period_ns;
  if (epoch != published_epoch_) {
    published_epoch_ = epoch;
    Publish(epoch, state());
  }
  // The others' wall clocks and ticks may be late by up to a quarter of a period.
  if (setup_.rank == 0 && epoch != gathered_epoch_ && now_ns % setup_.period_ns >= setup_.period_ns / 4 &&
      RawNs() >= not_before_ns_) {
    gathered_epoch_ = epoch;
    Gather(epoch);
  }
}

void Live::Publish(std::int64_t epoch, const State& state) {
  now_ = TakeSnapshot(setup_.clock);
  LiveRank rank;
  rank.rank = setup_.rank;
  rank.epoch = epoch;
  rank.domain = setup_.domain;
  rank.recording = state.recording;
  rank.records = state.records;
  rank.dropped = state.dropped;
  const auto ns_of_ticks = [this](std::uint64_t ticks) { return Ns(ticks); };
  // Rings are read one after the other, so all of them are complete only up to the pass before the last.
  rank.steps = steps_.Sample(before_ticks_, kMostSteps, kMostEntries, ns_of_ticks);
  const ClockOffset clock = rank.steps.empty()
                                ? state.clock.Over(now_.raw_ns, now_.raw_ns)
                                : state.clock.Over(rank.steps.front().window.begin, rank.steps.back().window.end);
  rank.offset_ns = clock.offset_ns;
  rank.error_ns = clock.error_ns;
  rank.steps_ended = steps_.steps();
  if (const LiveSteps::Open open = steps_.open(); open.index >= 0) {
    rank.open_step = open.index;
    rank.open_ns = now_.raw_ns - Ns(open.begin_ticks);
  }
  rank.mpi_share = steps_.MpiShare(now_.ticks);
  WriteLiveFile(setup_.directory, rank);  // If this fails, rank 0 reports that nothing arrived.
}

void Live::Gather(std::int64_t epoch) {
  const std::int64_t cpu_ns = ClockNs(CLOCK_THREAD_CPUTIME_ID), begin_ns = RawNs();
  std::vector<LiveRank> ranks;
  for (std::int32_t rank = 0; rank < setup_.ranks; ++rank)
    if (std::optional<LiveRank> report = ReadLiveFile(setup_.directory, rank); report)
      ranks.push_back(std::move(*report));
  hearing_.Update(ranks, epoch);
  const LiveFigures figures = ComputeLiveFigures(ranks, setup_.ranks, epoch);
  std::string line = LiveLine(figures, setup_.ranks, begin_ns - last_gather_ns_);
  last_gather_ns_ = begin_ns;
  if (!setup_.metrics.empty()) {
    const int error = ReplaceFile(setup_.metrics, LiveMetrics(figures, setup_.ranks, ClockNs(CLOCK_REALTIME)), 0666);
    if (error != 0 && !metrics_failed_) setup_.say("--metrics " + setup_.metrics + ": " + std::strerror(error));
    metrics_failed_ = error != 0;
  }
  const auto cost_ns = static_cast<double>(ClockNs(CLOCK_THREAD_CPUTIME_ID) - cpu_ns);
  not_before_ns_ = begin_ns + static_cast<std::int64_t>(cost_ns / kGatherShare);
  if (not_before_ns_ > begin_ns + setup_.period_ns && !stretched_said_) {
    stretched_said_ = true;
    char text[80];
    std::snprintf(text, sizeof text, " · from now on every %.0f s: asking all ranks takes %.0f ms",
                  cost_ns / kGatherShare / 1e9, cost_ns / 1e6);
    line += text;
  }
  if (setup_.prints) setup_.say(line);
}

void Live::Finish() {
  const std::string path = LiveFileName(setup_.directory, setup_.rank);
  RemoveOwn(path);
}

}  // namespace lockstep::agent
