#pragma once
// What a run says about itself, for people and for programs: the parts that the
// examples share.

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace lockstep::example {

// Steps that are not representative: first touches of buffers and connections.
inline constexpr std::size_t kWarmupSteps = 2;

// Mean and lower median over the steps after warm-up, 0 if there are none.
double MeanStepMs(const std::vector<std::int64_t>& step_ns);
double MedianStepMs(std::vector<std::int64_t> step_ns);

// Relative L2 distance of `value` to `expected`.
double RelativeError(std::span<const float> value, std::span<const float> expected);

// False if the file cannot be written.
bool SaveFloats(const std::string& path, std::span<const float> values);

// [a, b, c], each value by `print(value)`.
template <typename Values, typename Print>
void PrintList(std::FILE* file, const Values& values, Print print) {
  std::fputc('[', file);
  bool first = true;
  for (const auto& value : values) {
    if (!first) std::fputs(", ", file);
    first = false;
    print(value);
  }
  std::fputc(']', file);
}

// One object per rank: how often it called which MPI function. `counts` holds
// names.size() numbers per rank.
void PrintCalls(std::FILE* file, std::span<const char* const> names, std::span<const std::int64_t> counts);

}  // namespace lockstep::example
