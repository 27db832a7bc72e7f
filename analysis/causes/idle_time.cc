// Splits all idle time of the GPUs by cause: the parts that findings explain and the unexplained rest must sum to it.

#include <algorithm>
#include <array>

#include "analysis/causes/cause.h"
#include "analysis/core/idle_kinds.h"

namespace lockstep::analysis {
namespace {

struct IdleSums {
  std::int32_t rank = -1;
  std::array<std::int64_t, kIdleKinds> ns{};
  std::int64_t stretches = 0;
  bool per_step = false;

  void Add(IdleSums&& next) {
    for (std::size_t i = 0; i < kIdleKinds; ++i) ns[i] += next.ns[i];
    stretches += next.stretches;
  }
};

class IdleTime : public CauseOf<IdleSums> {
 public:
  std::optional<IdleSums> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    IdleSums sums;
    sums.rank = events.view().rank;
    sums.stretches = static_cast<std::int64_t>(events.stretches().size());
    sums.per_step = events.per_step();
    for (const gpu::Gap& gap : events.gaps().gaps)
      if (gap.device == events.device())
        events.ForEachPart(gap, [&](std::size_t, const gpu::GapPart& part, std::int64_t ns) {
          sums.ns[static_cast<std::size_t>(RankEvents::KindOf(gap, part))] += ns;
        });
    return sums;
  }

  void Report(const Context&, Analysis& analysis) override {
    const std::vector<const IdleSums*> ranks = found();
    const bool per_step = std::all_of(ranks.begin(), ranks.end(), [](const IdleSums* sums) { return sums->per_step; });
    std::array<std::int64_t, kIdleKinds> ns{};
    std::int64_t n = 0, total = 0;
    for (const IdleSums* sums : ranks) {
      n += per_step ? sums->stretches : 1;
      for (std::size_t i = 0; i < kIdleKinds; ++i) ns[i] += sums->ns[i], total += sums->ns[i];
    }
    if (n == 0) return;
    // The means are rounded down; the remaining nanoseconds go to the parts that lost most by rounding, so that the
    // parts sum to the mean.
    std::vector<std::size_t> by_loss(kIdleKinds);
    std::int64_t left = total / n;
    for (std::size_t i = 0; i < kIdleKinds; ++i) by_loss[i] = i, left -= ns[i] / n;
    std::stable_sort(by_loss.begin(), by_loss.end(),
                     [&](std::size_t a, std::size_t b) { return ns[a] % n > ns[b] % n; });
    for (std::size_t i = 0; i < kIdleKinds; ++i) {
      const std::size_t kind = by_loss[i];
      const std::int64_t mean = ns[kind] / n + (static_cast<std::int64_t>(i) < left ? 1 : 0);
      if (mean <= 0) continue;
      IdleCause& cause = analysis.idle_causes.emplace_back();
      cause.cause = kIdleKindRows[kind].cause;
      cause.ns = mean;
      cause.finding = KindOf(kIdleKindRows[kind].finding).name;
      for (const IdleSums* sums : ranks) cause.of_ranks.emplace_back(sums->rank, static_cast<double>(sums->ns[kind]));
    }
    std::stable_sort(analysis.idle_causes.begin(), analysis.idle_causes.end(),
                     [](const IdleCause& a, const IdleCause& b) { return a.ns > b.ns; });
  }
};

}  // namespace

std::unique_ptr<Cause> MakeIdleTime() { return std::make_unique<IdleTime>(); }

}  // namespace lockstep::analysis
