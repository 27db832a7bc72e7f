#pragma once
// The files of many ranks on one page: those that hold the same kind of things together, and by name what differs.

#include <cstdint>
#include <string>
#include <vector>

#include "cli/input/file_facts.h"

namespace lockstep::cli {

// More files than that are summarised: a page for one, `--ranks` for some of many.
inline constexpr std::size_t kMostInFull = 1;

struct RankFile {
  std::int32_t rank = -1;  // -1: a file that is of no rank.
  FileFacts facts;
};

// Lines for people. `files` in the order of their names.
std::string SummaryOf(const std::vector<RankFile>& files);

// "3 spans that overlap; more about them".
std::string TextOfLoss(const FileFacts::LossFacts& loss);

}  // namespace lockstep::cli
