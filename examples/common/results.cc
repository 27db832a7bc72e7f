#include "examples/common/results.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::example {
namespace {

std::vector<std::int64_t> AfterWarmup(const std::vector<std::int64_t>& step_ns) {
  const auto skip = static_cast<std::ptrdiff_t>(std::min(kWarmupSteps, step_ns.size()));
  return {step_ns.begin() + skip, step_ns.end()};
}

}  // namespace

double MeanStepMs(const std::vector<std::int64_t>& step_ns) {
  const std::vector<std::int64_t> steps = AfterWarmup(step_ns);
  if (steps.empty()) return 0;
  return static_cast<double>(std::accumulate(steps.begin(), steps.end(), std::int64_t{0})) / 1e6 /
         static_cast<double>(steps.size());
}

double MedianStepMs(std::vector<std::int64_t> step_ns) {
  std::vector<std::int64_t> steps = AfterWarmup(step_ns);
  if (steps.empty()) return 0;
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>((steps.size() - 1) / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  return static_cast<double>(*middle) / 1e6;
}

double RelativeError(std::span<const float> value, std::span<const float> expected) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const double off = static_cast<double>(value[i]) - static_cast<double>(expected[i]);
    difference += off * off;
    size += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

bool SaveFloats(const std::string& path, std::span<const float> values) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return false;
  const bool written = std::fwrite(values.data(), sizeof(float), values.size(), file) == values.size();
  return std::fclose(file) == 0 && written;
}

void PrintCalls(std::FILE* file, std::span<const char* const> names, std::span<const std::int64_t> counts) {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t name = i % names.size();
    std::fprintf(file, "%s\"%s\": %" PRId64,
                 name != 0 ? ", "
                 : i == 0  ? "[\n    {"
                           : "},\n    {",
                 names[name], counts[i]);
  }
  std::fputs(counts.empty() ? "[]" : "}]", file);
}

}  // namespace lockstep::example
