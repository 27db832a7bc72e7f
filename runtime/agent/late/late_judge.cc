#include "runtime/agent/late/late_judge.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::agent {
namespace {

constexpr std::int64_t kShortestWindowNs = 900'000'000;   // Looks do not come to the moment.
constexpr std::int64_t kLongestAloneNs = 20'000'000'000;  // Without a rank that it can be compared with.
constexpr int kMostSilent = 4;                            // Looks after which an agent counts as gone.
constexpr std::uint64_t kLeastCollectives = 3;            // In a window.
constexpr int kLeastWindows = 3;
// Of its time. Late from the one on, and until it is below the other.
constexpr double kLateFrom = 0.05, kLateUntil = 0.025;
// Per collective: members do not leave at the same moment.
constexpr double kLeastNs = 50'000;

struct Mean {
  std::uint64_t count = 0;
  double ns = 0;
};

const WaitSum* SumOfComm(const WaitCell& cell, std::uint64_t comm) {
  const auto found = std::find_if(cell.sums.begin(), cell.sums.end(),
                                  [comm](const WaitSum& sum) { return sum.count != 0 && sum.comm == comm; });
  return found == cell.sums.end() ? nullptr : &*found;
}

// Of the collectives of the window.
std::optional<Mean> MeanOf(const WaitCell& before, const WaitCell& after, std::uint64_t comm) {
  const WaitSum* then = SumOfComm(before, comm);
  const WaitSum* now = SumOfComm(after, comm);
  if (then == nullptr || now == nullptr || now->count <= then->count || now->ns < then->ns) return std::nullopt;
  const std::uint64_t count = now->count - then->count;
  return Mean{count, static_cast<double>(now->ns - then->ns) / static_cast<double>(count)};
}

}  // namespace

LateJudge::Judged LateJudge::Compare(const WaitCell& own, std::span<const WaitCell> others) const {
  Judged judged;
  double longest = 0;
  for (const WaitSum& sum : own.sums) {
    const std::optional<Mean> mine = MeanOf(own_base_, own, sum.comm);
    if (sum.count == 0 || !mine) continue;
    std::vector<std::pair<double, std::int32_t>> theirs;
    for (const WaitCell& other : others) {
      const auto base = base_.find(other.rank);
      if (base == base_.end()) continue;
      // Those that are far behind or ahead are in another part of the program.
      const std::optional<Mean> mean = MeanOf(base->second, other, sum.comm);
      if (mean && 2 * mean->count >= mine->count && mean->count <= 2 * mine->count + kLeastCollectives)
        theirs.emplace_back(mean->ns, other.rank);
    }
    if (theirs.empty()) continue;
    judged.compared = true;
    std::sort(theirs.begin(), theirs.end());
    const double median = theirs[(theirs.size() - 1) / 2].first, least = theirs.front().first;
    double late = 0;
    if (median - mine->ns >= kLeastNs)
      late = median - mine->ns;
    else if (mine->ns - least >= kLeastNs)
      late = least - mine->ns;
    late *= static_cast<double>(mine->count);
    judged.late_ns += late;
    if (late <= longest) continue;
    longest = late;
    // Of equal ones the lowest number, so that it stays the same one.
    const auto most = std::lower_bound(theirs.begin(), theirs.end(),
                                       std::pair(theirs.back().first, std::numeric_limits<std::int32_t>::min()));
    judged.waits_longest = most->second;
  }
  return judged;
}

void LateJudge::Judge(std::int64_t now_ns, const Judged& judged, std::span<const WaitCell> others) {
  share_ = judged.late_ns / static_cast<double>(now_ns - begin_ns_);
  windows_ = share_ >= (late_ ? kLateUntil : kLateFrom) ? windows_ + 1 : 0;
  late_ = windows_ >= kLeastWindows;
  // It stays the same one as long as the rank is late: samples of one rank are worth more than of several.
  const bool there = std::any_of(others.begin(), others.end(), [&](const WaitCell& o) { return o.rank == healthy_; });
  if (!late_)
    healthy_ = -1;
  else if (healthy_ < 0 || !there)
    healthy_ = judged.waits_longest;
}

void LateJudge::Look(std::int64_t now_ns, const WaitCell& own, std::span<const WaitCell> cells) {
  std::vector<WaitCell> others;
  asked_for_ = false;
  for (const WaitCell& other : cells) {
    Heard& heard = heard_[other.rank];
    heard.silent = std::exchange(heard.beat, other.beat) == other.beat ? heard.silent + 1 : 0;
    if (heard.silent >= kMostSilent) continue;
    others.push_back(other);
    asked_for_ |= other.compare_with == own.rank;
  }
  const bool same = std::all_of(own.sums.begin(), own.sums.end(), [this](const WaitSum& sum) {
    return sum.count == 0 || SumOfComm(own_base_, sum.comm) != nullptr;
  });
  // Another part of the program, with other communicators, is a window of its own.
  if (begin_ns_ != 0 && same) {
    std::uint64_t collectives = 0;
    for (const WaitSum& sum : own.sums)
      if (const std::optional<Mean> mean = MeanOf(own_base_, own, sum.comm); sum.count != 0 && mean)
        collectives += mean->count;
    if (now_ns - begin_ns_ < kShortestWindowNs || collectives < kLeastCollectives) return;
    const Judged judged = Compare(own, others);
    // Whoever looked before the others had begun compares from the moment on at which they are there.
    const bool more = std::any_of(others.begin(), others.end(),
                                  [this](const WaitCell& other) { return !base_.contains(other.rank); });
    if (!judged.compared && !more && now_ns - begin_ns_ < kLongestAloneNs) return;
    if (judged.compared || !more) Judge(now_ns, judged, others);
  }
  begin_ns_ = now_ns;
  own_base_ = own;
  base_.clear();
  for (const WaitCell& other : others) base_[other.rank] = other;
}

}  // namespace lockstep::agent
