#pragma once
// Reader of the jobs published with ByteDance's what-if analysis (OSDI'25), and the
// dependencies between their operations: Megatron-style training, pipeline stages x data
// parallel ranks. Facts of the model are the artifact's (github.com/ByteDance-Seed/
// StragglerAnalysis, analyzer/dependency_model.py, Apache-2.0), the code is our own.

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/replay/graph/counterfactual.h"

namespace lockstep::replay {

// Durations that would be equal were the job ideal share `alike`.
struct Likeness {
  std::vector<std::uint32_t> alike;  // Per operation.
  // Per operation: ordinary is the median (communication: few outliers are huge) or the mean
  // (compute: what balancing the work would give).
  std::vector<bool> by_median;
};
// Per operation: its duration were the job ideal.
std::vector<std::int64_t> OrdinaryDurations(const Graph& graph, const Likeness& likeness);

struct PipelineJob {
  Graph graph;
  Likeness likeness;
  // Per operation.
  std::vector<std::string> type;
  std::vector<std::int32_t> stage, data_rank, step;
  std::vector<std::int32_t> steps;  // Distinct, ascending.
  std::int32_t stages = 0, data_ranks = 0;

  std::int32_t WorkerOf(std::uint32_t operation) const { return stage[operation] * data_ranks + data_rank[operation]; }
  // Each step begins at 0; its length is the latest end of its operations.
  std::vector<std::int64_t> Lengths(const Schedule& schedule) const;
};

// `csv`: dp_rank,thread,optype,step,mb_id,seq_id,model_chunk,ts_us,dur_us; a communication's row holds its
// transfer only. Empty job if it is not of that form (one model chunk per stage, gradients not overlapped).
PipelineJob ReadPipelineJob(std::istream& csv);

}  // namespace lockstep::replay
