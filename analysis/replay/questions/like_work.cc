#include "analysis/replay/questions/like_work.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "analysis/rules/replay.h"
#include "core/order_statistics.h"
#include "core/rules/common.h"

namespace lockstep::replay {
namespace {

std::int64_t SumOf(const std::vector<std::int64_t>& ns) {
  return std::accumulate(ns.begin(), ns.end(), std::int64_t{0});
}

std::vector<std::int64_t> OfEach(const std::vector<std::vector<std::int64_t>>& by_rank, TypicalFunction typical) {
  std::vector<std::int64_t> typical_ns;
  for (std::size_t k = 0; k < by_rank.front().size(); ++k) {
    std::vector<std::int64_t> kth;
    for (const std::vector<std::int64_t>& lengths : by_rank) kth.push_back(lengths[k]);
    typical_ns.push_back(typical(std::move(kth)));
  }
  return typical_ns;
}

template <typename Key>
std::vector<std::size_t> InOrder(std::size_t count, Key&& key) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, key);
  return order;
}

}  // namespace

std::int64_t LowerMedianOf(std::vector<std::int64_t> values) { return LowerMedian(std::move(values)); }

TypicalWork TypicalOf(const std::vector<std::vector<std::int64_t>>& by_rank,
                      const std::function<std::uint64_t(std::size_t)>& kind, TypicalFunction typical) {
  TypicalWork work{.by_place_ns = OfEach(by_rank, typical), .middle_ns = OfEach(by_rank, LowerMedianOf), .likes = {}};
  const auto of = [&](std::size_t place) { return std::pair(kind(place), work.by_place_ns[place]); };
  std::pair<std::uint64_t, std::int64_t> last;
  for (const std::size_t place : InOrder(work.by_place_ns.size(), of)) {
    const auto [its_kind, ns] = of(place);
    if (work.likes.empty() || its_kind != last.first ||
        static_cast<double>(ns) > rules::kLikeWorkLengthFactor * static_cast<double>(last.second))
      work.likes.emplace_back();
    work.likes.back().places.push_back(place);
    last = {its_kind, ns};
  }
  for (TypicalWork::Like& like : work.likes) {
    std::vector<std::vector<std::int64_t>> theirs;
    for (const std::vector<std::int64_t>& lengths : by_rank) {
      std::vector<std::int64_t>& of_rank = theirs.emplace_back();
      for (const std::size_t place : like.places) of_rank.push_back(lengths[place]);
      std::ranges::sort(of_rank);
    }
    like.in_order_ns = OfEach(theirs, typical);
  }
  return work;
}

bool LieAtSamePlaces(const std::vector<std::int64_t>& own_ns, const std::vector<std::int64_t>& theirs_ns) {
  const auto own_all = static_cast<double>(SumOf(own_ns)), theirs_all = static_cast<double>(SumOf(theirs_ns));
  if (own_all <= 0 || theirs_all <= 0) return false;
  double common = 0;  // Of 1.
  for (std::size_t k = 0; k < own_ns.size(); ++k)
    common += std::min(static_cast<double>(own_ns[k]) / own_all, static_cast<double>(theirs_ns[k]) / theirs_all);
  return common >= rules::kHalf;
}

std::vector<std::int64_t> LikeTheirs(const TypicalWork& typical, const std::vector<std::int64_t>& own_ns) {
  const std::int64_t own_all_ns = SumOf(own_ns), all_ns = SumOf(typical.by_place_ns);
  if (own_ns.size() == 1 || !HalfOf(own_all_ns, all_ns)) return typical.by_place_ns;
  std::vector<std::int64_t> like_ns(own_ns.size());
  if (!LieAtSamePlaces(own_ns, typical.middle_ns)) {
    const double factor = own_all_ns > 0 ? static_cast<double>(all_ns) / static_cast<double>(own_all_ns) : 1;
    for (std::size_t k = 0; k < own_ns.size(); ++k) like_ns[k] = std::llround(static_cast<double>(own_ns[k]) * factor);
    return like_ns;
  }
  for (const TypicalWork::Like& like : typical.likes) {
    const std::vector<std::size_t> order =
        InOrder(like.places.size(), [&](std::size_t i) { return own_ns[like.places[i]]; });
    for (std::size_t k = 0; k < order.size(); ++k) like_ns[like.places[order[k]]] = like.in_order_ns[k];
  }
  return like_ns;
}

}  // namespace lockstep::replay
