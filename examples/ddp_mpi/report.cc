#include "examples/ddp_mpi/report.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <numeric>

namespace lockstep::example {
namespace {

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

std::vector<std::int64_t> AfterWarmup(const std::vector<std::int64_t>& step_ns) {
  const auto skip = static_cast<std::ptrdiff_t>(std::min(kWarmupSteps, step_ns.size()));
  return {step_ns.begin() + skip, step_ns.end()};
}

const char* Name(Progress progress) {
  switch (progress) {
    case Progress::kTest:
      return "test";
    case Progress::kThread:
      return "thread";
    case Progress::kNone:
      return "none";
  }
  return "";
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

void PrintBuckets(const std::vector<Bucket>& buckets) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    std::printf("bucket %zu: %" PRIu64 " bytes, %zu tensors (%zu ... %zu)\n", b, buckets[b].bytes,
                buckets[b].tensors.size(), buckets[b].tensors.front(), buckets[b].tensors.back());
  }
}

void PrintOutcome(const Options& options, const Outcome& outcome) {
  std::printf("ddp_mpi: %zu ranks, %d steps, loss %.6f -> %.6f, parameters %016" PRIx64 " %s\n", outcome.calls.size(),
              options.steps, outcome.initial_loss, outcome.final_loss, outcome.hash,
              outcome.identical ? "on every rank" : "DIFFER BETWEEN RANKS");
  if (outcome.checked) {
    std::printf("ddp_mpi: against a serial run: gradients off by %.2e, parameters by %.2e: %s\n",
                outcome.gradient_error, outcome.parameter_error, outcome.check_passed ? "equal" : "NOT EQUAL");
  }
  // Last and alone on its line, since it is the one number that differs from run to run.
  std::printf("ddp_mpi: step_ms=%.3f\n", MeanStepMs(outcome.step_ns));
}

bool WriteReport(const Options& options, const std::vector<Bucket>& buckets, const Outcome& outcome) {
  std::FILE* file = std::fopen(options.report.c_str(), "w");
  if (!file) return false;
  const bool timed = options.work == Work::kTimed;
  std::fprintf(file, "{\n  \"ranks\": %zu, \"steps\": %d, \"warmup_steps\": %zu,\n", outcome.calls.size(),
               options.steps, kWarmupSteps);
  std::fprintf(file, "  \"overlap\": \"%s\", \"progress\": \"%s\", \"work\": \"%s\",\n", options.overlap ? "on" : "off",
               Name(options.progress), timed ? "timed" : "real");
  std::fprintf(file, "  \"step_ms\": %.6f, \"step_ms_median\": %.6f,\n", MeanStepMs(outcome.step_ns),
               MedianStepMs(outcome.step_ns));
  std::fprintf(file, "  \"step_ns\": ");
  PrintList(file, outcome.step_ns, [&](std::int64_t ns) { std::fprintf(file, "%" PRId64, ns); });
  if (timed) {
    std::fprintf(file, ",\n  \"healthy_compute_ms\": %.6f, \"input_ms\": %.6f", options.step_ms, options.input_ms);
  }
  std::fprintf(file, ",\n  \"slow\": ");
  PrintList(file, options.slow, [&](double factor) { std::fprintf(file, "%g", factor); });
  std::fprintf(file, ",\n  \"first_bucket_mb\": %g, \"bucket_cap_mb\": %g", options.first_bucket_mb,
               options.bucket_cap_mb);
  std::fprintf(file, ",\n  \"tensor_bytes\": ");
  PrintList(file, outcome.tensor_bytes, [&](std::uint64_t bytes) { std::fprintf(file, "%" PRIu64, bytes); });
  std::fprintf(file, ",\n  \"bucket_bytes\": ");
  PrintList(file, buckets, [&](const Bucket& bucket) { std::fprintf(file, "%" PRIu64, bucket.bytes); });
  std::fprintf(file, ",\n  \"initial_loss\": %.9g, \"final_loss\": %.9g, \"parameter_hash\": \"%016" PRIx64 "\",\n",
               outcome.initial_loss, outcome.final_loss, outcome.hash);
  std::fprintf(file, "  \"parameters_identical\": %s", outcome.identical ? "true" : "false");
  if (outcome.checked) {
    std::fprintf(file, ",\n  \"check_passed\": %s, \"gradient_error\": %.3e, \"parameter_error\": %.3e",
                 outcome.check_passed ? "true" : "false", outcome.gradient_error, outcome.parameter_error);
  }
  std::fprintf(file, ",\n  \"mpi_calls\": ");
  PrintList(file, outcome.calls, [&](const CallCounts& calls) {
    std::array<std::int64_t, kCallNames.size()> counts;
    std::memcpy(counts.data(), &calls, sizeof(calls));
    std::fputs("\n    {", file);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      std::fprintf(file, "%s\"%s\": %" PRId64, i ? ", " : "", kCallNames[i], counts[i]);
    }
    std::fputc('}', file);
  });
  std::fprintf(file, "\n}\n");
  return std::fclose(file) == 0;
}

}  // namespace lockstep::example
