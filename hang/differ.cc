#include "hang/differ.h"

#include <algorithm>
#include <map>
#include <string>

namespace lockstep::hang {
namespace {

// Which of an operation's sizes must be the same on all ranks.
enum class Equal : std::uint8_t { kNone, kIn, kOut };
Equal EqualSizes(const std::string& kind) {
  for (const char* in : {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather"})
    if (kind == in) return Equal::kIn;
  return kind == "scatter" ? Equal::kOut : Equal::kNone;
}

std::int64_t SizeOf(const Operation& call) {
  switch (EqualSizes(call.kind)) {
    case Equal::kIn:
      return call.elements_in;
    case Equal::kOut:
      return call.elements_out;
    case Equal::kNone:
      break;
  }
  return kNotKnown;
}

// What must be the same on all ranks, as far as both are known.
bool SameCall(const Operation& a, const Operation& b) {
  if (a.kind.empty() || b.kind.empty()) return true;
  if (a.kind != b.kind) return false;
  if (EqualSizes(a.kind) == Equal::kNone) return true;
  const std::int64_t size_a = SizeOf(a), size_b = SizeOf(b);
  if (size_a != kNotKnown && size_b != kNotKnown && size_a != size_b) return false;
  if (!a.type.empty() && !b.type.empty() && a.type != b.type) return false;
  return a.peer < 0 || b.peer < 0 || a.peer == b.peer;
}

// What an all-to-all sends is what it receives, over all ranks.
bool UnevenExchange(const Group& group, std::int64_t sequence) {
  std::int64_t in = 0, out = 0;
  for (const Member& member : group.members) {
    const Operation* call = CallOf(member, sequence);
    if (call == nullptr || call->kind != "all_to_all" || call->elements_in < 0 || call->elements_out < 0) return false;
    if (__builtin_add_overflow(in, call->elements_in, &in) || __builtin_add_overflow(out, call->elements_out, &out))
      return false;
  }
  return group.complete && in != out;
}

// How the odd rank's calls continue beside the others': each sees the other's next call, or only one does.
void CompareNext(const Member& odd, const Member& other, std::int64_t sequence, bool& less, bool& more) {
  const Operation *mine = CallOf(odd, sequence), *theirs = CallOf(other, sequence);
  const Operation *my_next = CallOf(odd, sequence + 1), *their_next = CallOf(other, sequence + 1);
  const bool i_am_ahead = their_next != nullptr && SameCall(*mine, *their_next);
  const bool they_are_ahead = my_next != nullptr && SameCall(*my_next, *theirs);
  // Both: the two calls were made in another order.
  less = i_am_ahead && !they_are_ahead;
  more = they_are_ahead && !i_am_ahead;
}

}  // namespace

const Operation* CallOf(const Member& member, std::int64_t sequence) {
  const auto at = std::lower_bound(member.calls.begin(), member.calls.end(), sequence,
                                   [](const Operation& call, std::int64_t wanted) { return call.sequence < wanted; });
  return at == member.calls.end() || at->sequence != sequence ? nullptr : &*at;
}

bool HoldsAll(const Operation& call) {
  for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
    if (call.kind == kind) return true;
  return false;
}

bool Differ(const Group& group, std::int64_t sequence, Verdict& verdict) {
  std::vector<const Member*> representatives;
  std::vector<Side> sides;
  std::size_t calls = 0;
  for (const Member& member : group.members) {
    const Operation* call = CallOf(member, sequence);
    if (call == nullptr || call->kind.empty()) continue;
    ++calls;
    std::size_t side = 0;
    while (side < sides.size() && !SameCall(sides[side].call, *call)) ++side;
    // More sides than this tell nobody more.
    constexpr std::size_t kMostSides = 64;
    if (side == kMostSides) side = kMostSides - 1;
    if (side == sides.size()) {
      sides.push_back({*call, {}});
      representatives.push_back(&member);
    }
    sides[side].ranks.push_back(member.rank);
  }
  if (sides.size() < 2) {
    if (!UnevenExchange(group, sequence)) return false;
    verdict.cause = Cause::kMismatch;
    verdict.sides = std::move(sides);
    return true;
  }
  std::size_t largest = 0;
  for (std::size_t i = 1; i < sides.size(); ++i)
    if (sides[i].ranks.size() > sides[largest].ranks.size()) largest = i;
  const bool agreed = 3 * sides[largest].ranks.size() >= 2 * calls;
  bool kinds = false, less = false, more = false;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    if (i == largest) continue;
    kinds |= sides[i].call.kind != sides[largest].call.kind;
    bool one_less = false, one_more = false;
    CompareNext(*representatives[i], *representatives[largest], sequence, one_less, one_more);
    less |= one_less;
    more |= one_more;
    if (agreed) verdict.culprits.insert(verdict.culprits.end(), sides[i].ranks.begin(), sides[i].ranks.end());
  }
  std::sort(verdict.culprits.begin(), verdict.culprits.end());
  verdict.cause = less != more ? Cause::kExtraOrMissingCall : kinds ? Cause::kOtherOperation : Cause::kMismatch;
  verdict.made_one_less = agreed && less && !more;
  verdict.made_one_more = agreed && more && !less;
  std::stable_sort(sides.begin(), sides.end(),
                   [](const Side& a, const Side& b) { return a.ranks.size() > b.ranks.size(); });
  verdict.sides = std::move(sides);
  return true;
}

}  // namespace lockstep::hang
