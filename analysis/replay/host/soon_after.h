#pragma once
// Whether calls ended because another rank came: what libraries move only while both sides are there (large messages,
// those of collectives to and from a root included) ends soon after the later one came. If it moved meanwhile, when it
// ends has nothing to do with who comes: that three of three ends follow so soon has a probability of 0.1 %.

#include <cstddef>
#include <cstdint>

namespace lockstep::replay {

class SoonAfter {
 public:
  // A call, or an operation, that began at `since_ns`, when another rank came at `came_ns`, and ended at `end_ns`.
  void Add(std::int64_t since_ns, std::int64_t came_ns, std::int64_t end_ns) {
    AddOther();
    soon_ += kPart * (end_ns - came_ns) <= end_ns - since_ns;
  }
  // One that ended without that.
  void AddOther() { ++all_; }
  bool Holds() const { return soon_ >= kLeast && 10 * soon_ >= 9 * all_; }

 private:
  static constexpr std::int64_t kPart = 10;  // Soon is a tenth of the time since then.
  static constexpr std::size_t kLeast = 3;
  std::size_t soon_ = 0, all_ = 0;
};

}  // namespace lockstep::replay
