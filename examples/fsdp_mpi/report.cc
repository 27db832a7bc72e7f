#include "examples/fsdp_mpi/report.h"

#include <cinttypes>
#include <cstdio>

#include "examples/common/compare.h"
#include "examples/common/results.h"

namespace lockstep::example {

void PrintOutcome(const Options& options, const Outcome& outcome) {
  std::printf("fsdp_mpi: %zu ranks, %d steps, loss %.6f -> %.6f, parameters %016" PRIx64 " %s\n", outcome.calls.size(),
              options.steps, outcome.initial_loss, outcome.final_loss, outcome.hash,
              outcome.identical ? "on every rank" : "DIFFER BETWEEN RANKS");
  if (outcome.checked) {
    std::printf("fsdp_mpi: against a serial run: parameters off by %.2e: %s\n", outcome.parameter_error,
                outcome.check_passed ? "equal" : "NOT EQUAL");
  }
  // Last and alone on its line, since it is the one number that differs from run to run.
  std::printf("fsdp_mpi: step_ms=%.3f\n", MeanStepMs(outcome.step_ns));
}

bool WriteReport(const Options& options, const Outcome& outcome) {
  std::FILE* file = std::fopen(options.report.c_str(), "w");
  if (!file) return false;
  const bool timed = options.work == Work::kTimed;
  std::fprintf(file, "{\n  \"ranks\": %zu, \"steps\": %d, \"warmup_steps\": %zu,\n", outcome.calls.size(),
               options.steps, kWarmupSteps);
  std::fprintf(file, "  \"prefetch\": %d, \"progress\": \"%s\", \"work\": \"%s\",\n", options.prefetch ? 1 : 0,
               Name(options.progress), timed ? "timed" : "real");
  std::fprintf(file, "  \"step_ms\": %.6f, \"step_ms_median\": %.6f,\n", MeanStepMs(outcome.step_ns),
               MedianStepMs(outcome.step_ns));
  std::fprintf(file, "  \"step_ns\": ");
  PrintList(file, outcome.step_ns, [&](std::int64_t ns) { std::fprintf(file, "%" PRId64, ns); });
  if (!outcome.compared.empty()) PrintCompared(file, options.block_steps, options.compare, outcome.compared);
  if (timed) {
    std::fprintf(file, ",\n  \"healthy_compute_ms\": %.6f, \"input_ms\": %.6f", options.step_ms, options.input_ms);
  }
  std::fprintf(file, ",\n  \"slow\": ");
  PrintList(file, options.faults.slow, [&](double factor) { std::fprintf(file, "%g", factor); });
  std::fprintf(file, ",\n  \"unit_bytes\": ");
  PrintList(file, outcome.unit_bytes, [&](std::uint64_t bytes) { std::fprintf(file, "%" PRIu64, bytes); });
  std::fprintf(file, ",\n  \"initial_loss\": %.9g, \"final_loss\": %.9g, \"parameter_hash\": \"%016" PRIx64 "\",\n",
               outcome.initial_loss, outcome.final_loss, outcome.hash);
  std::fprintf(file, "  \"parameters_identical\": %s", outcome.identical ? "true" : "false");
  if (outcome.checked) {
    std::fprintf(file, ",\n  \"check_passed\": %s, \"parameter_error\": %.3e", outcome.check_passed ? "true" : "false",
                 outcome.parameter_error);
  }
  std::fprintf(file, ",\n  \"mpi_calls\": ");
  PrintCalls(file, kCallNames,
             {reinterpret_cast<const std::int64_t*>(outcome.calls.data()), outcome.calls.size() * kCallNames.size()});
  std::fprintf(file, "\n}\n");
  return std::fclose(file) == 0;
}

}  // namespace lockstep::example
