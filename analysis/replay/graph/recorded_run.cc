#include "analysis/replay/graph/recorded_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "analysis/core/source.h"
#include "analysis/core/statistics.h"
#include "analysis/core/unrecorded.h"
#include "analysis/replay/gpu/gpu_run.h"
#include "analysis/replay/graph/gradients.h"
#include "analysis/replay/host/host_run.h"
#include "analysis/rules/replay.h"
#include "core/order_statistics.h"
#include "merge/timeline/step_length.h"

namespace lockstep::replay {
namespace {

std::size_t JobRanks(const merge::Timeline& timeline) {
  const std::int64_t expected = std::max<std::int64_t>(timeline.MetaNumber("ranks_expected", 0), 0);
  return std::max(static_cast<std::size_t>(expected), timeline.tables.ranks.rows());
}

}  // namespace

std::int64_t RecordedRun::LatencyNs(std::uint64_t comm) const {
  std::vector<std::int64_t> few_ns;
  for (const TransferBeside& each : beside)
    if (each.comm == comm && each.bytes <= rules::kTinyTransferBytes) few_ns.push_back(each.transfer_ns);
  return few_ns.empty() ? 0 : LowerMedian(std::move(few_ns));
}

std::int64_t MeanStep(const RecordedRun& run, const std::vector<std::int64_t>& by_step) {
  if (by_step.empty()) return 0;
  if (run.step_weights.empty()) return merge::MeanLength(by_step);
  return static_cast<std::int64_t>(std::floor(analysis::MeanOf(analysis::Weighted(by_step, run.step_weights))));
}

Result<std::unique_ptr<RecordedRun>> ReadRun(const merge::Timeline& timeline, const ReadRunOptions& options) {
  const analysis::Unrecorded unrecorded = analysis::FindUnrecorded(timeline);
  if (unrecorded.any())
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{} was not recorded, so a replay would not wait for it",
                             !unrecorded.mpi_library.empty() ? unrecorded.mpi_library
                             : !unrecorded.backends.empty()
                                 ? fmt::format("communication over {}", fmt::join(unrecorded.backends, " and "))
                                 : "work of GPUs"),
                 timeline.run_dir, "lockstep analyze RUN says how to record it"};
  const auto& ranks = timeline.tables.ranks;
  std::int32_t gpu = -1, cpu = -1;
  for (std::size_t i = 0; i < ranks.rows(); ++i)
    if (merge::IsPresent(ranks.state[i])) (ranks.gpu[i] ? gpu : cpu) = ranks.rank[i];
  if (gpu >= 0 && cpu >= 0)
    return Error{ErrorCode::kUnsupported,
                 "rank " + std::to_string(gpu) + " works on a GPU and rank " + std::to_string(cpu) + " does not",
                 timeline.run_dir, "a replay needs ranks of one kind: leave the others out with --ranks"};
  if (gpu >= 0) {
    LS_TRY(GpuRun run, ReadGpuRun(timeline, options));
    run.gradients = GradientsOf(timeline);
    run.job_ranks = JobRanks(timeline);
    run.torch = analysis::SourceOf(timeline).torch;
    return std::unique_ptr<RecordedRun>(std::make_unique<GpuRun>(std::move(run)));
  }
  LS_TRY(HostRun run, ReadHostRun(timeline, options));
  run.gradients = GradientsOf(timeline);
  run.job_ranks = JobRanks(timeline);
  run.torch = analysis::SourceOf(timeline).torch;
  return std::unique_ptr<RecordedRun>(std::make_unique<HostRun>(std::move(run)));
}

}  // namespace lockstep::replay
