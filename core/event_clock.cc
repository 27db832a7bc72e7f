#include "core/event_clock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/clock_ns.h"
#include "core/hash.h"

namespace lockstep {
namespace {

// /proc files report size 0, so read until the end. Empty when unreadable.
std::string ReadSmallFile(const char* path, std::size_t limit) {
  std::string text;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char buffer[4096];
  for (ssize_t n; text.size() < limit && (n = read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  close(fd);
  return text;
}

}  // namespace

std::int64_t RawNs() { return ClockNs(CLOCK_MONOTONIC_RAW); }

std::int64_t Distort(const ClockDistortion& d, std::int64_t raw_ns) {
  const auto since = static_cast<double>(raw_ns - d.origin_raw_ns);
  double shift = d.ppm * 1e-6 * since;
  if (d.wander_period_ns > 0) shift += d.wander_ns * std::sin(2 * M_PI * since / d.wander_period_ns);
  if (d.wander2_period_ns > 0) shift += d.wander2_ns * std::sin(2 * M_PI * since / d.wander2_period_ns);
  std::int64_t result = raw_ns + d.offset_ns + std::llround(shift);
  if (d.step_ns != 0 && raw_ns - d.origin_raw_ns >= d.step_at_ns) result += d.step_ns;
  return result;
}

ClockDistortion ParseClockDistortion(std::string_view spec, int rank) {
  while (!spec.empty()) {
    const std::size_t end = spec.find(';');
    std::string_view part = spec.substr(0, end);
    spec = end == std::string_view::npos ? std::string_view{} : spec.substr(end + 1);
    const std::size_t colon = part.find(':');
    int named = -1;
    if (colon == std::string_view::npos) continue;
    std::from_chars(part.data(), part.data() + colon, named);
    if (named != rank) continue;
    part.remove_prefix(colon + 1);
    ClockDistortion d;
    while (!part.empty()) {
      const std::size_t comma = part.find(',');
      const std::string_view item = part.substr(0, comma);
      part = comma == std::string_view::npos ? std::string_view{} : part.substr(comma + 1);
      const std::size_t equals = item.find('=');
      if (equals == std::string_view::npos) return {};
      const std::string_view key = item.substr(0, equals);
      const double value = std::strtod(std::string(item.substr(equals + 1)).c_str(), nullptr);
      if (key == "offset_s")
        d.offset_ns = std::llround(value * 1e9);
      else if (key == "offset_us")
        d.offset_ns = std::llround(value * 1e3);
      else if (key == "ppm")
        d.ppm = value;
      else if (key == "wander_us")
        d.wander_ns = value * 1e3;
      else if (key == "period_s")
        d.wander_period_ns = value * 1e9;
      else if (key == "wander2_us")
        d.wander2_ns = value * 1e3;
      else if (key == "period2_s")
        d.wander2_period_ns = value * 1e9;
      else if (key == "step_ms")
        d.step_ns = std::llround(value * 1e6);
      else if (key == "step_at_s")
        d.step_at_ns = std::llround(value * 1e9);
      else
        return {};
    }
    return d;
  }
  return {};
}

bool TscIsInvariant() {
#if defined(__x86_64__)
  const std::string source = ReadSmallFile("/sys/devices/system/clocksource/clocksource0/current_clocksource", 64);
  if (source.compare(0, 3, "tsc") != 0) return false;
  const std::string cpu = ReadSmallFile("/proc/cpuinfo", 16384);
  return cpu.find("constant_tsc") != std::string::npos && cpu.find("nonstop_tsc") != std::string::npos;
#else
  return false;
#endif
}

std::uint64_t EventClock::Ticks() const {
  if (mode == ClockMode::kTsc) return ReadTsc();
  return static_cast<std::uint64_t>(RankNs());
}

std::int64_t EventClock::RankNs() const {
  const std::int64_t raw = RawNs();
  return distortion.active() ? Distort(distortion, raw) : raw;
}

ClockSnapshot TakeSnapshot(const EventClock& clock) {
  ClockSnapshot best{};
  best.width_ns = INT64_MAX;
  for (int attempt = 0; attempt < 5; ++attempt) {
    ClockSnapshot now{};
    const std::int64_t before = clock.RankNs();
    now.ticks = clock.Ticks();
    const std::int64_t after = clock.RankNs();
    now.monotonic_ns = ClockNs(CLOCK_MONOTONIC);
    now.realtime_ns = ClockNs(CLOCK_REALTIME);
    const std::int64_t last = clock.RankNs();
    if (last - before >= best.width_ns) continue;
    // In RAW mode ticks are the rank clock itself; in TSC mode the read lies in the middle of the bracket.
    now.raw_ns = clock.mode == ClockMode::kTsc ? before + (after - before) / 2 : static_cast<std::int64_t>(now.ticks);
    now.width_ns = last - before;
    best = now;
  }
  return best;
}

std::uint64_t ClockDomainHash(const ClockDistortion& distortion, int rank) {
  Hash64 hash;
  hash.Add(ReadSmallFile("/proc/sys/kernel/random/boot_id", 64));
  struct stat info {};
  if (stat("/proc/self/ns/time", &info) == 0) hash.Add(static_cast<std::uint64_t>(info.st_ino));
  if (distortion.active()) hash.Add(static_cast<std::uint64_t>(rank) + 1);
  return hash.value();
}

}  // namespace lockstep
