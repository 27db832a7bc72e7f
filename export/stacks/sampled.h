#pragma once
// The samples of the ranks' stacks, for the formats of flame graphs.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "export/common/writer.h"

namespace lockstep::exporters {

// A function of any rank.
struct SampledFunction {
  std::string name, file;
  std::map<std::uint32_t, std::uint64_t> lines;  // Samples by line.
  std::uint32_t line() const;                    // The one with most; 0 unknown.
};

// The samples of one rank's thread, as they were taken.
struct SampledThread {
  std::string name;  // "" if the rank has samples of one thread only.
  // By sample: numbers of functions, outermost first; never empty.
  std::vector<std::vector<std::uint32_t>> stacks;
  std::vector<bool> late;  // By sample: others waited for this rank.
};

// Functions are numbered over all ranks, in the order in which they are seen.
class SampledFunctions {
 public:
  // The samples of a rank that the run's window holds, by thread, in the order of their times.
  std::vector<SampledThread> Take(const ExportRun& run, const ExportRank& rank);
  const std::vector<SampledFunction>& functions() const { return functions_; }

 private:
  std::uint32_t NumberOf(std::string name, std::string file);

  std::map<std::pair<std::string, std::string>, std::uint32_t> numbers_;  // By file and name.
  std::vector<SampledFunction> functions_;
};

// What a run without samples gets in place of a file.
Error NoSamples(const ExportRun& run);

}  // namespace lockstep::exporters
