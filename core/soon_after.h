#pragma once
// Whether calls ended because another rank came: what libraries move only while both sides are there (large messages,
// those of collectives to and from a root included) ends soon after the later one came. If it moved meanwhile, when it
// ends has nothing to do with who comes: that three of three ends follow so soon has a probability of 0.1 %.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace lockstep {

class SoonAfter {
 public:
  // A call, or an operation, that began at `since_ns`, when another rank came at `came_ns`, and ended at `end_ns`.
  void Add(std::int64_t since_ns, std::int64_t came_ns, std::int64_t end_ns) {
    AddOther();
    soon_ += IsSoon(since_ns, came_ns, end_ns);
  }
  static bool IsSoon(std::int64_t since_ns, std::int64_t came_ns, std::int64_t end_ns) {
    return kPart * (end_ns - came_ns) <= end_ns - since_ns;
  }
  // One that ended without that.
  void AddOther() { ++all_; }
  void Add(const SoonAfter& other) { soon_ += other.soon_, all_ += other.all_; }
  bool Enough() const { return all_ >= kLeast; }
  bool Holds() const { return soon_ >= kLeast && 10 * soon_ >= 9 * all_; }

 private:
  static constexpr std::int64_t kPart = 10;  // Soon is a tenth of the time since then.
  static constexpr std::size_t kLeast = 3;
  std::size_t soon_ = 0, all_ = 0;
};

// When the other ranks of a call's messages were ready for them: a call that waits for several returns when the last
// one has moved. The two latest before its end.
class ReadyInCall {
 public:
  void Add(std::size_t message, std::int64_t ready_ns, std::int64_t end_ns) {
    if (ready_ns >= end_ns) return;
    if (ready_ns > latest_[0].first)
      latest_ = {std::pair(ready_ns, message), latest_[0]};
    else if (ready_ns > latest_[1].first)
      latest_[1] = {ready_ns, message};
  }
  // Whether another of its messages says as well why the call ended when it did.
  bool Explains(std::size_t message, std::int64_t since_ns, std::int64_t end_ns) const {
    const std::int64_t other_ns = latest_[0].second == message ? latest_[1].first : latest_[0].first;
    return other_ns > since_ns && SoonAfter::IsSoon(since_ns, other_ns, end_ns);
  }

 private:
  std::array<std::pair<std::int64_t, std::size_t>, 2> latest_ = {std::pair(INT64_MIN, SIZE_MAX),
                                                                 std::pair(INT64_MIN, SIZE_MAX)};
};

// The same of messages. One of many bytes is announced when it is posted, and may move only while its receiver, with
// some transports again its sender, is in a call after that (Open MPI 4.1, ob1: a rendezvous; by a single copy the
// receiver alone moves it). Then who waits for it leaves its call soon after the other one came to its next call.
// Messages of one power of two of bytes are alike. How long they waited counts, too: a wait that is hardly longer than
// the move itself does not end soon after anything, and what is seen of long waits says nothing about it. What another
// message of the same call explains (ReadyInCall) is not to be added: where lateness goes from rank to rank, neighbours
// enter their calls at such moments, too.
class MovedSoonAfter {
 public:
  // `receiver_waits`: for the sender's next call; else the sender waits for the receiver's. Both halves were posted at
  // `both_ns`.
  void Add(std::uint64_t bytes, bool receiver_waits, std::int64_t both_ns, std::int64_t came_ns, std::int64_t end_ns) {
    of_kind_[KeyOf(bytes, receiver_waits, end_ns - both_ns)].Add(both_ns, came_ns, end_ns);
  }
  void Add(const MovedSoonAfter& other) {
    for (const auto& [kind, seen] : other.of_kind_) of_kind_[kind].Add(seen);
  }
  // Of one that waited for `wait_ns`: what those show that waited as long or longer; if they are too few, also the next
  // shorter ones.
  bool Holds(std::uint64_t bytes, bool receiver_waits, std::int64_t wait_ns) const {
    const Key own = KeyOf(bytes, receiver_waits, wait_ns);
    SoonAfter seen;
    for (auto at = of_kind_.upper_bound({std::get<0>(own), receiver_waits, kLongest}); at != of_kind_.begin();) {
      --at;
      if (at->first < Key{std::get<0>(own), receiver_waits, 0} || (at->first < own && seen.Enough())) break;
      seen.Add(at->second);
    }
    return seen.Holds();
  }

 private:
  using Key = std::tuple<int, bool, int>;  // By powers of two of the bytes and of the wait.
  static constexpr int kLongest = 64;
  static Key KeyOf(std::uint64_t bytes, bool receiver_waits, std::int64_t wait_ns) {
    return {std::bit_width(bytes), receiver_waits,
            std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(0, wait_ns)))};
  }
  std::map<Key, SoonAfter> of_kind_;
};

}  // namespace lockstep
