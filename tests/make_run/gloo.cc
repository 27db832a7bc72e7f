#include "make_run/gloo.h"

#include <algorithm>

namespace lockstep::make_run {
namespace {

// One chunk of data: longer reductions have one for every member.
constexpr std::uint64_t kOneChunkBytes = 8;

// As gloo goes through it: in round i whoever has the data hands it to the one 2^i places further.
std::vector<std::int64_t> Broadcast(std::size_t root, const std::vector<std::int64_t>& arrivals, std::int64_t hop_ns) {
  const std::size_t n = arrivals.size();
  std::vector<std::int64_t> has(arrivals), ends(arrivals);
  for (std::size_t bit = 1; bit < n; bit *= 2)
    for (std::size_t place = 0; place < bit && place + bit < n; ++place) {
      const std::size_t from = (place + root) % n, to = (place + bit + root) % n;
      has[to] = std::max(has[from], arrivals[to]) + hop_ns;
      ends[to] = std::max(ends[to], has[to]);
      ends[from] = std::max(ends[from], has[to]);
    }
  return ends;
}

// From the last number down to 0, which hands it to the root.
std::vector<std::int64_t> OneChunk(std::size_t root, const std::vector<std::int64_t>& arrivals, std::int64_t hop_ns) {
  std::vector<std::int64_t> ends(arrivals);
  std::int64_t has = arrivals.back();
  for (std::size_t from = arrivals.size() - 1; from > 0; --from)
    ends[from] = has = std::max(has, arrivals[from - 1]) + hop_ns;
  if (root != 0) has = ends[root] = std::max(has, ends[root]) + hop_ns;
  ends[0] = has;
  return ends;
}

}  // namespace

std::vector<std::int64_t> GlooEnds(CollectiveKind kind, std::uint64_t bytes, std::size_t root,
                                   const std::vector<std::int64_t>& arrivals, std::int64_t hop_ns) {
  if (kind == CollectiveKind::kBroadcast) return Broadcast(root, arrivals, hop_ns);
  if (kind == CollectiveKind::kReduce && bytes <= kOneChunkBytes) return OneChunk(root, arrivals, hop_ns);
  const std::int64_t last = *std::max_element(arrivals.begin(), arrivals.end());
  std::vector<std::int64_t> ends(arrivals.size(), last + hop_ns);
  if (kind == CollectiveKind::kReduce) return ends;
  for (std::size_t number = 0; number < arrivals.size(); ++number)
    if (number != root) ends[number] = std::max(arrivals[number], arrivals[root]) + hop_ns;
  return ends;
}

}  // namespace lockstep::make_run
