#include "analysis/replay/graph/gradients.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "core/data_type_name.h"
#include "core/fact.h"

namespace lockstep::replay {
namespace {

std::vector<std::uint64_t> Numbers(std::string_view text) {
  std::vector<std::uint64_t> numbers;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    std::uint64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc()) break;
    numbers.push_back(value);
    at = next < end ? next + 1 : next;
  }
  return numbers;
}

}  // namespace

std::vector<std::vector<Gradient>> GradientsOf(const merge::Timeline& timeline) {
  std::vector<std::vector<Gradient>> models;
  const std::string key = "fact.gradients";
  for (std::size_t n = 1;; ++n) {
    const std::string_view line = timeline.Meta(n == 1 ? key : key + "." + std::to_string(n));
    if (line.empty()) return models;
    const std::vector<std::uint64_t> from = Numbers(FactValue(line, "from"));
    if (from.empty() || from[0] == 0) models.emplace_back();
    if (models.empty()) continue;
    const std::string_view name = FactValue(line, "dtype");
    const DataType dtype = name.empty() ? DataType::kFloat32 : DataTypeNamed(name);
    for (const std::uint64_t bytes : Numbers(FactValue(line, "bytes"))) models.back().push_back({bytes, dtype});
  }
}

bool MakeUp(const std::vector<Gradient>& gradients, const std::vector<std::uint64_t>& bucket_bytes) {
  std::uint64_t total = 0;
  std::vector<std::uint64_t> ends;
  for (const Gradient& gradient : gradients) ends.push_back(total += gradient.bytes);
  // Buckets of several types are not contiguous in the gradients, so only their sum is compared.
  const bool one_type = std::all_of(gradients.begin(), gradients.end(),
                                    [&](const Gradient& gradient) { return gradient.dtype == gradients[0].dtype; });
  std::uint64_t at = 0;
  for (const std::uint64_t bytes : bucket_bytes) {
    at += bytes;
    if (one_type && !std::binary_search(ends.begin(), ends.end(), at)) return false;
  }
  return at == total && total > 0;
}

}  // namespace lockstep::replay
