#pragma once
// Work measured in real runs, drawn from for synthetic ranks: README.md, "Resampled work".

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace lockstep::make_run {

class Resample {
 public:
  // Text of a file as README.md describes it. kMalformed with the line as `where`.
  static Result<Resample> Parse(std::string_view text, const std::string& file_name);
  static Result<Resample> Read(const std::string& file_name);

  // Millionths by which the n-th compute operation of a rank's step differs from what it takes as a rule.
  std::int64_t FactorPpm(std::uint64_t seed, std::int32_t rank, std::int64_t step, std::size_t nth) const;

  std::int64_t block = 16;             // Neighbouring steps that are drawn together.
  std::int64_t scale_ppm = 1'000'000;  // Of the deviations from 1.

 private:
  // [step][segment], millionths.
  using Factors = std::vector<std::vector<std::int64_t>>;
  struct Run {
    Factors common;             // What all its ranks had in common.
    std::vector<Factors> rank;  // What each had beyond that.
  };
  struct Raw;
  void Add(const Raw& raw);
  const std::vector<std::int64_t>& Draw(const Factors& of, std::uint64_t start, std::int64_t in_block) const;

  std::vector<Run> runs_;
};

}  // namespace lockstep::make_run
