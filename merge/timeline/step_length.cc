#include "merge/timeline/step_length.h"

#include <algorithm>
#include <numeric>

namespace lockstep::merge {
namespace {

// The sum over n values as whole * n + rest with 0 <= rest < n, because sums of a damaged trace's times may overflow.
struct Mean {
  std::int64_t whole = 0, rest = 0;
};

template <typename Values, typename Of>
Mean MeanOf(const Values& values, Of&& of) {
  const auto n = static_cast<std::int64_t>(values.size());
  Mean mean;
  for (const auto& value : values) {
    const std::int64_t ns = of(value);
    mean.whole += ns / n;
    mean.rest += ns % n;
  }
  mean.whole += mean.rest / n;
  mean.rest %= n;
  if (mean.rest < 0) {
    mean.rest += n;
    --mean.whole;
  }
  return mean;
}

}  // namespace

JobTime MeanOfTerms(const std::vector<TermValues>& windows) {
  JobTime job;
  if (windows.empty()) return job;
  std::array<Mean, std::tuple_size_v<TermValues>> means;
  std::int64_t rest = 0;
  job.length_ns = 0;
  for (std::size_t k = 0; k < means.size(); ++k) {
    means[k] = MeanOf(windows, [&](const TermValues& terms) { return terms[k]; });
    job.terms[k] = means[k].whole;
    job.length_ns += means[k].whole;
    rest += means[k].rest;
  }
  // The difference between the floored sum of the means and the sum of the floored means.
  const auto over = static_cast<std::size_t>(rest / static_cast<std::int64_t>(windows.size()));
  std::array<std::size_t, std::tuple_size_v<TermValues>> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return means[a].rest > means[b].rest; });
  for (std::size_t k = 0; k < over; ++k) ++job.terms[order[k]];
  job.length_ns += static_cast<std::int64_t>(over);
  return job;
}

std::int64_t MeanLength(const std::vector<std::int64_t>& lengths_ns) {
  if (lengths_ns.empty()) return -1;
  return MeanOf(lengths_ns, [](std::int64_t ns) { return ns; }).whole;
}

}  // namespace lockstep::merge
