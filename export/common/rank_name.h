#pragma once
#include <cstdint>
#include <string>

namespace lockstep::exporters {

// "rank-00005", as rank files are called.
inline std::string RankName(std::int32_t rank) {
  std::string digits = std::to_string(rank);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return "rank-" + digits;
}

}  // namespace lockstep::exporters
