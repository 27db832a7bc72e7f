#include "trace/nccl/nccl_channels.h"

#include <algorithm>

namespace lockstep::trace {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
// Beyond it a reading is damaged: nanoseconds since 1970 until 2200.
constexpr std::uint64_t kLatest = std::uint64_t{7} << 60;

}  // namespace

NcclChannels::NcclChannels(std::span<const NcclEventRow> events) {
  const auto read = [&](std::uint64_t timer_ns, std::int64_t host_ns) {
    if (timer_ns == 0 || timer_ns >= kLatest || host_ns == schema::kNoTime) return;
    const std::int64_t delay =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(host_ns) - timer_ns);  // Of two epochs: may wrap.
    const auto [at, fresh] = delay_.try_emplace(timer_ns / kSecond, delay);
    if (!fresh) at->second = std::min(at->second, delay);
  };
  for (const NcclEventRow& event : events) {
    if (event.kind != NcclEvent::kKernelChannel) continue;
    const std::uint64_t begin = event.count, end = event.end_value;
    read(begin, event.begin_ns);
    read(end, event.end_ns);
    if (begin == 0 || end < begin || end >= kLatest) continue;
    Times& times = of_[event.parent];
    times.first = std::min(times.first, begin);
    times.last = std::max(times.last, end);
  }
}

bool NcclChannels::ToRankClock(std::uint64_t timer_ns, std::int64_t& ns) const {
  bool found = false;
  std::int64_t delay = 0;
  for (std::uint64_t second = timer_ns / kSecond, i = 0; i < 3; ++i) {
    const auto at = delay_.find(second + i - 1);
    if (at == delay_.end()) continue;
    delay = found ? std::min(delay, at->second) : at->second;
    found = true;
  }
  ns = static_cast<std::int64_t>(timer_ns + static_cast<std::uint64_t>(delay));
  return found;
}

bool NcclChannels::TimesOf(std::uint64_t id, std::int64_t& begin_ns, std::int64_t& end_ns) const {
  const auto at = of_.find(id);
  if (at == of_.end()) return false;
  std::int64_t begin = 0, end = 0;
  if (!ToRankClock(at->second.first, begin) || !ToRankClock(at->second.last, end) || end < begin) return false;
  begin_ns = begin;
  end_ns = end;
  return true;
}

}  // namespace lockstep::trace
