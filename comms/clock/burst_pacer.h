#pragma once
// Chooses when the next burst is due: in the first minute always after 1 s, then after 0.5-60
// s depending on how well the two bursts before predicted the last one, with a train of ten
// bursts at 1 s every three minutes. A fixed 10 s was 93 us off under a wander that 1 s
// followed within 2 us, and a slow sequence alone cannot notice that it is too slow
// (aliasing).

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace lockstep::clock {

class BurstPacer {
 public:
  static constexpr std::int64_t kSecond = 1'000'000'000;
  static constexpr std::int64_t kLearn = 60 * kSecond, kTrainEvery = 180 * kSecond;
  static constexpr std::int64_t kLeast = kSecond / 2, kMost = 60 * kSecond;
  static constexpr int kTrain = 10;

  // A burst at `now_ns` measured `offset_ns` with least round trip `rtt_ns`.
  // Returns the pause until the next one, ns.
  std::int64_t Next(std::int64_t now_ns, std::int64_t offset_ns, std::int64_t rtt_ns) {
    if (bursts_ == 0) first_ns_ = train_ns_ = now_ns;
    const bool predicted = bursts_ >= 2 && last_ns_ > before_ns_;
    if (predicted) {
      const double slope =
          static_cast<double>(last_offset_ - before_offset_) / static_cast<double>(last_ns_ - before_ns_);
      const double expected = static_cast<double>(last_offset_) + slope * static_cast<double>(now_ns - last_ns_);
      Adapt(std::abs(static_cast<double>(offset_ns) - expected), static_cast<double>(rtt_ns));
    }
    ++bursts_;
    before_ns_ = last_ns_;
    before_offset_ = last_offset_;
    last_ns_ = now_ns;
    last_offset_ = offset_ns;
    if (now_ns - first_ns_ < kLearn) return period_ns_ = std::min(period_ns_, kSecond);
    if (train_left_ > 0) {
      --train_left_;
      return std::min(period_ns_, kSecond);
    }
    if (now_ns - train_ns_ >= kTrainEvery) {
      train_ns_ = now_ns;
      train_left_ = kTrain - 1;
      return std::min(period_ns_, kSecond);
    }
    return period_ns_;
  }

 private:
  void Adapt(double residual_ns, double rtt_ns) {
    if (residual_ns > rtt_ns / 2) {
      period_ns_ = std::max(kLeast, period_ns_ / 2);
      steady_ = 0;
    } else if (residual_ns < rtt_ns / 8) {
      if (train_left_ == 0 && ++steady_ >= 3) {
        period_ns_ = std::min(kMost, period_ns_ * 2);
        steady_ = 0;
      }
    } else {
      steady_ = 0;
    }
  }

  std::int64_t period_ns_ = kSecond, first_ns_ = 0, train_ns_ = 0;
  std::int64_t last_ns_ = 0, before_ns_ = 0, last_offset_ = 0, before_offset_ = 0;
  std::uint64_t bursts_ = 0;
  int steady_ = 0, train_left_ = 0;
};

}  // namespace lockstep::clock
