#pragma once
// A small world with a true time: clocks that are wrong in known ways, bursts and
// collectives between them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/event_clock.h"
#include "core/schema.h"
#include "merge/clock/align.h"

namespace lockstep::test {

inline constexpr std::int64_t kSecond = 1'000'000'000;

// True time and the reference's clock are one; `clock` is the other rank's.
struct ClockWorld {
  ClockDistortion clock;
  std::mt19937_64 random{12345};
  double path_ns = 4000;         // One way, at least.
  double jitter_ns = 400;        // Mean of the exponential part of every message.
  double delay_share = 0;        // Share of messages that are delayed much more ...
  double delay_ns = 100'000;     // ... exponentially, with this mean ...
  bool delay_back_only = false;  // ... on the way back only.

  std::int64_t Local(std::int64_t true_ns) const { return Distort(clock, true_ns); }
  // Cluster minus local at a true time.
  std::int64_t Offset(std::int64_t true_ns) const { return true_ns - Local(true_ns); }

  std::int64_t Way(bool back) {
    double ns = path_ns + std::exponential_distribution<double>(1 / jitter_ns)(random);
    if ((back || !delay_back_only) && std::uniform_real_distribution<double>()(random) < delay_share)
      ns += std::exponential_distribution<double>(1 / delay_ns)(random);
    return std::llround(ns);
  }

  void AddBurst(schema::ClockBursts* rows, std::uint32_t burst, std::int64_t begin_ns, int pings = 25,
                std::uint8_t transport = 2) {
    std::int64_t now = begin_ns;
    for (int i = 0; i < pings; ++i) {
      const std::int64_t t1 = now, t2 = t1 + Way(false), t3 = t2 + 300, t4 = t3 + Way(true);
      rows->Append({burst, 0, transport, 0, Local(t1), t2, t3, Local(t4)});
      now = t4 + 500;
    }
  }
  schema::ClockBursts Bursts(std::int64_t begin_ns, std::int64_t end_ns, std::int64_t period_ns) {
    schema::ClockBursts rows;
    std::uint32_t burst = 0;
    for (std::int64_t t = begin_ns; t <= end_ns; t += period_ns) AddBurst(&rows, burst++, t);
    return rows;
  }

  // n-to-n collectives every `period_ns`: rank 0 and this rank arrive up to `skew_ns` apart
  // and leave together within microseconds.
  void AddCollectives(std::int64_t begin_ns, std::int64_t end_ns, std::int64_t period_ns, double skew_ns, bool gpu,
                      std::vector<merge::AlignCollective>* reference, std::vector<merge::AlignCollective>* own) {
    std::uniform_real_distribution<double> skew(0, skew_ns), exit(0, gpu ? 1500 : 6000);
    std::uint64_t seq = 0;
    for (std::int64_t t = begin_ns; t < end_ns; t += period_ns, ++seq) {
      const std::int64_t a = t + std::llround(skew(random)), b = t + std::llround(skew(random));
      const std::int64_t last = std::max(a, b) + 3000;
      reference->push_back({7, seq, 0, gpu, a, last + std::llround(exit(random))});
      own->push_back({7, seq, 0, gpu, Local(b), Local(last + std::llround(exit(random)))});
    }
  }
};

// How good a fit is at all times, not at its own knots.
struct Score {
  double coverage = 0;  // Share of times at which |error| <= eps.
  std::int64_t error_p50 = 0, error_max = 0, eps_p50 = 0, eps_max = 0;
};

// Offset and error at a local time from rows of `clock`, written anew from the table's description.
inline std::pair<std::int64_t, std::int64_t> Look(const schema::Clock& clock, std::int32_t rank, std::int64_t local) {
  std::vector<schema::Clock::Row> knots;
  for (std::size_t i = 0; i < clock.rows(); ++i)
    if (clock.rank[i] == rank) knots.push_back(clock.Get(i));
  std::size_t right = 1;
  while (right + 1 < knots.size() && knots[right].local_ns <= local) ++right;
  if (knots.size() == 1) return {knots[0].offset_ns, knots[0].base_error_ns};
  const auto &a = knots[right - 1], &b = knots[right];
  const long double share =
      static_cast<long double>(local - a.local_ns) / static_cast<long double>(b.local_ns - a.local_ns);
  const std::int64_t offset = a.offset_ns + llroundl(share * static_cast<long double>(b.offset_ns - a.offset_ns));
  const auto& near = std::llabs(local - a.local_ns) <= std::llabs(b.local_ns - local) ? a : b;
  const long double distance_s = static_cast<long double>(std::llabs(local - near.local_ns)) * 1e-9L;
  const long double base = local < a.local_ns ? a.base_error_ns
                           : local > b.local_ns
                               ? b.base_error_ns
                               : a.base_error_ns + share * static_cast<long double>(b.base_error_ns - a.base_error_ns);
  return {offset, static_cast<std::int64_t>(base + distance_s * static_cast<long double>(near.slew_ppb))};
}

inline Score Judge(const schema::Clock& clock, std::int32_t rank, const ClockWorld& world, std::int64_t begin_ns,
                   std::int64_t end_ns, int samples = 5000) {
  schema::Clock own;
  for (std::size_t i = 0; i < clock.rows(); ++i)
    if (clock.rank[i] == rank) own.Append(clock.Get(i));
  std::vector<std::int64_t> errors, bounds;
  int inside = 0;
  for (int i = 0; i < samples; ++i) {
    const std::int64_t t = begin_ns + (end_ns - begin_ns) / samples * i;
    const std::int64_t local = world.Local(t);
    const auto [offset, eps] = Look(own, rank, local);
    const std::int64_t error = std::llabs(local + offset - t);
    errors.push_back(error);
    bounds.push_back(eps);
    inside += error <= eps ? 1 : 0;
  }
  std::sort(errors.begin(), errors.end());
  std::sort(bounds.begin(), bounds.end());
  return {static_cast<double>(inside) / samples, errors[errors.size() / 2], errors.back(), bounds[bounds.size() / 2],
          bounds.back()};
}

}  // namespace lockstep::test
