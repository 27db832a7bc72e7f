#pragma once
// The labels by which tools that merge the traces of several ranks into one file tell the ranks apart: SGLang's
// "[TP01-DP00-PP00-EP00] 4001", "rank 3 python", "4001 (tp_rank=1)".

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::ingest {

struct RankLabel {
  // Dimension in small letters and number, in the label's order: {"tp", 1}, {"dp", 0}; "rank" is the rank in the job.
  // Empty: the text holds no label.
  std::vector<std::pair<std::string, std::int64_t>> places;
  std::string_view text;  // The label itself, as written, without brackets.
  std::string rest;       // What stands beside it: the process's own number or name.

  std::int64_t In(std::string_view dimension) const;  // -1: the label does not say it.
};

RankLabel RankLabelOf(std::string_view text);

// Order of ranks in a job: as told; else, as launchers number them, by pipeline, data, tensor and expert parallelism,
// then by other dimensions in the label's order.
bool Before(const RankLabel& a, const RankLabel& b);

}  // namespace lockstep::ingest
