#pragma once
// How numbers of ranks and slots are written in file names.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// "00005".
inline std::string FiveDigits(std::int32_t number) {
  std::string digits = std::to_string(number);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return digits;
}

// "rank-00005", the stem of rank files.
inline std::string RankName(std::int32_t rank) { return "rank-" + FiveDigits(rank); }

inline bool IsNumberOfFile(std::string_view text) {
  constexpr std::size_t kMostDigits = 10;
  return !text.empty() && text.size() <= kMostDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Whether what follows the stem of a file of a rank is ".h5" (of its first process), ".p2.h5" or ".spool".
inline bool IsRankFileSuffix(std::string_view suffix) {
  if (suffix == ".h5" || suffix == ".spool") return true;
  constexpr std::string_view kProcess = ".p", kFile = ".h5";
  if (!suffix.starts_with(kProcess) || !suffix.ends_with(kFile) || suffix.size() < kProcess.size() + kFile.size())
    return false;
  suffix.remove_prefix(kProcess.size());
  suffix.remove_suffix(kFile.size());
  return IsNumberOfFile(suffix);
}

}  // namespace lockstep
