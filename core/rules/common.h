#pragma once
// What most rules come down to: is a part most of the whole, does a value stand out? Rows with reasons: common.def.

#define LS_RULES "core/rules/common.def"
#include "core/rules.inc"

namespace lockstep {

// Of numbers of one unit that are not negative; of nothing, nothing is half, most and nearly all. Any thread.

/// At least half of it.
template <typename Part, typename Whole>
bool HalfOf(Part part, Whole whole) {
  return static_cast<double>(part) >= rules::kHalf * static_cast<double>(whole);
}

/// More than half of it.
template <typename Part, typename Whole>
bool MostOf(Part part, Whole whole) {
  return static_cast<double>(part) > rules::kHalf * static_cast<double>(whole);
}

/// At least nine tenths.
template <typename Part, typename Whole>
bool NearlyAllOf(Part part, Whole whole) {
  return static_cast<double>(part) >= rules::kNearlyAll * static_cast<double>(whole);
}

/// At least a quarter.
template <typename Part, typename Whole>
bool MuchOf(Part part, Whole whole) {
  return static_cast<double>(part) >= rules::kMuch * static_cast<double>(whole);
}

/// Less than a tenth.
template <typename Part, typename Whole>
bool LittleOf(Part part, Whole whole) {
  return static_cast<double>(part) < rules::kLittle * static_cast<double>(whole);
}

/// At least twice the next one.
template <typename Value, typename Next>
bool StandsOut(Value value, Next next) {
  return static_cast<double>(value) >= rules::kStandsOut * static_cast<double>(next);
}

}  // namespace lockstep
