#pragma once
// What pieces of a rank's work would take if they were like the same pieces of other ranks. Lengths in ns.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::replay {

using TypicalFunction = std::int64_t (*)(std::vector<std::int64_t> values);
std::int64_t LowerMedianOf(std::vector<std::int64_t> values);

// What the pieces of one set typically take on the ranks compared: each at its place, and of places with pieces of like
// length the shortest, the second shortest, ...
struct TypicalWork {
  struct Like {
    std::vector<std::size_t> places;
    std::vector<std::int64_t> in_order_ns;
  };
  std::vector<std::int64_t> by_place_ns, middle_ns;  // The latter by place, too: of the rank in the middle.
  std::vector<Like> likes;
};
// by_rank[rank][place]; kind(place): only pieces between operations of the same kinds are alike.
TypicalWork TypicalOf(const std::vector<std::vector<std::int64_t>>& by_rank,
                      const std::function<std::uint64_t(std::size_t)>& kind, TypicalFunction typical);

// Whether half of the work lies at the same places as theirs: only then pieces at one place are the same work. One rank
// may have one long piece more in front of it.
bool LieAtSamePlaces(const std::vector<std::int64_t>& own_ns, const std::vector<std::int64_t>& theirs_ns);

// What each of a rank's pieces of a set takes if they are like the others'. They take as long in all.
std::vector<std::int64_t> LikeTheirs(const TypicalWork& typical, const std::vector<std::int64_t>& own_ns);

}  // namespace lockstep::replay
