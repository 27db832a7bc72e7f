#pragma once
// How numbers of ranks and slots are written in file names.

#include <cstdint>
#include <string>

namespace lockstep {

// "00005".
inline std::string FiveDigits(std::int32_t number) {
  std::string digits = std::to_string(number);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return digits;
}

// "rank-00005", the stem of rank files.
inline std::string RankName(std::int32_t rank) { return "rank-" + FiveDigits(rank); }

}  // namespace lockstep
