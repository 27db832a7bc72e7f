#include "analysis/replay/moved_outside.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "analysis/replay/host_run.h"
#include "analysis/statistics.h"

namespace lockstep::replay {
namespace {

constexpr double kNeighbours = 2;           // Sizes within this factor of each other are nearly the same.
constexpr std::size_t kMost = 512;          // Instances looked at.
constexpr std::size_t kLeastSeen = 12;      // Fewer prove nothing.
constexpr std::int64_t kLeastNs = 100'000;  // Of a transfer: below it the call itself and waking up count.
constexpr double kNext = 0.25;              // "Next to none": of what the slower quarter took.
constexpr double kRefuted = 0.25;           // This share of the instances.

struct Instance {
  double bytes;
  std::int64_t waited_ns;  // Had it moved in the waits only: from when all were in theirs.
};

// Per instance, over its members: was it alone in flight, and when was it waited for.
struct Seen {
  bool alone = true, all_in_wait = true;
  std::int64_t arrived_ns = INT64_MIN, waited_ns = INT64_MIN, through_ns = INT64_MAX;
  std::size_t members = 0;
};

std::vector<Seen> Look(const HostRun& run) {
  std::vector<Seen> seen(run.collectives.size());
  for (const RankStretches& rank : run.stretches) {
    std::vector<const RankCollective*> posted;
    for (const RankCollective& c : rank.collectives)
      if (c.posted) posted.push_back(&c);
    std::stable_sort(posted.begin(), posted.end(),
                     [](const RankCollective* a, const RankCollective* b) { return a->begin_ns < b->begin_ns; });
    std::int64_t open_until = INT64_MIN;
    const RankCollective* longest = nullptr;  // Of those before: the one that was in flight last.
    for (const RankCollective* c : posted) {
      Seen& one = seen[c->collective];
      if (open_until > c->begin_ns) one.alone = seen[longest->collective].alone = false;
      if (c->end_ns > open_until) {
        open_until = c->end_ns;
        longest = c;
      }
      ++one.members;
      one.all_in_wait &= c->in_wait;
      one.arrived_ns = std::max(one.arrived_ns, c->begin_ns);
      one.waited_ns = std::max(one.waited_ns, c->wait_begin_ns);
      one.through_ns = std::min(one.through_ns, c->end_ns);
    }
  }
  return seen;
}

bool Refuted(std::vector<Instance> list) {
  if (list.size() < kLeastSeen) return false;
  if (list.size() > kMost) {
    std::vector<Instance> some;
    for (std::size_t i = 0; i < kMost; ++i) some.push_back(list[i * list.size() / kMost]);
    list = std::move(some);
  }
  std::size_t asked = 0, next_to_none = 0;
  for (const Instance& one : list) {
    std::vector<std::int64_t> near;  // What as many bytes took elsewhere.
    for (const Instance& other : list)
      if (std::abs(std::log(other.bytes / one.bytes)) <= std::log(kNeighbours))
        near.push_back(std::llround(static_cast<double>(other.waited_ns) * one.bytes / other.bytes));
    const std::int64_t slow = LowerQuantile(std::move(near), 0.75);
    if (slow < kLeastNs) continue;
    ++asked;
    next_to_none += static_cast<double>(one.waited_ns) < kNext * static_cast<double>(slow);
  }
  return asked >= kLeastSeen && static_cast<double>(next_to_none) >= kRefuted * static_cast<double>(asked);
}

}  // namespace

std::set<std::pair<std::uint64_t, CollectiveKind>> MovedOutsideWaits(const HostRun& run) {
  const std::vector<Seen> seen = Look(run);
  std::map<std::pair<std::uint64_t, CollectiveKind>, std::vector<Instance>> groups;
  for (std::size_t c = 0; c < seen.size(); ++c) {
    const auto& about = run.collectives[c];
    if (!seen[c].alone || !seen[c].all_in_wait || about.bytes == 0 || seen[c].members != about.members) continue;
    const std::int64_t from = std::max(seen[c].arrived_ns, seen[c].waited_ns);
    groups[{about.comm, about.kind}].push_back(
        {static_cast<double>(about.bytes), std::max<std::int64_t>(0, seen[c].through_ns - from)});
  }
  std::set<std::pair<std::uint64_t, CollectiveKind>> moved;
  for (auto& [group, list] : groups)
    if (Refuted(std::move(list))) moved.insert(group);
  return moved;
}

}  // namespace lockstep::replay
