#include "analysis/passes.h"

#include <string>

namespace lockstep::analysis {
namespace {

bool Always(const Context&) { return true; }
bool HasSteps(const Context& context) { return context.tables().steps.rows() > 0; }
bool HasTotals(const Context& context) { return context.tables().rank_totals.rows() > 0; }
bool HasCollectives(const Context& context) { return context.tables().collectives.rows() > 0; }
bool HasBuckets(const Context& context) { return context.tables().gradient_buckets.rows() > 0; }
bool HasMessages(const Context& context) { return context.tables().p2p_pairs.rows() > 0; }
bool HasGpus(const Context& context) { return context.tables().rank_gpus.rows() > 0; }
bool HasUnits(const Context& context) { return context.ranks().size() >= 2 && context.units().size() >= 2; }

constexpr Pass kPasses[] = {
    {"run", "", Always, DescribeRun},
    {"losses", "", Always, CollectLosses},
    {"trust", "", Always, JudgeTrust},
    {"gpus", "GPUs", HasGpus, TabulateGpus},
    {"summary", "", Always, Summarize},
    {"collectives", "matched collectives", HasCollectives, TabulateCollectives},
    {"arrivals", "matched collectives", HasCollectives, CountArrivals},
    {"ranks", "totals per rank", HasTotals, TabulateRanks},
    {"steps", "steps", HasSteps, TabulateSteps},
    {"stragglers", "two ranks and two steps, or enough collectives to slice the run", HasUnits, FindStragglers},
    {"wait_only", "matched collectives", HasCollectives, FindWaitOnlyProgress},
    {"turns", "matched collectives", HasCollectives, FindTurns},
    {"p2p", "point-to-point messages", HasMessages, TabulateP2p},
    {"input", "totals per rank", HasTotals, FindInputBound},
    {"causes", "totals per rank", HasTotals, FindCauses},
    {"bursts", "steps", HasSteps, FindBursts},
    {"warmup", "steps", HasSteps, TellWarmup},
    {"transfer", "totals per rank", HasTotals, FindExposedTransfer},
    {"starved", "totals per rank", HasTotals, FindStarved},
    {"buckets", "gradient buckets recorded by PyTorch's hooks", HasBuckets, JoinBuckets},
    {"replay", "", Always, DescribeReplay},
    {"overlap", "", Always, ScoreOverlap},
    {"bucket_curve", "", Always, PredictBuckets},
    {"counterfactual", "", Always, CountCounterfactuals},
    {"critical_path", "", Always, FindCriticalPath},
    {"delays", "", Always, AttributeDelays},
    {"fsdp", "", Always, RecogniseShards},
    {"backends", "", Always, FindUnrecordedBackend},
    {"gpus_unrecorded", "", Always, FindUnrecordedGpus},
    {"verdict", "", Always, Conclude},
};

}  // namespace

void RunPasses(const Context& context, Analysis& analysis) {
  for (const Pass& pass : kPasses) {
    if (pass.applies(context))
      pass.run(context, analysis);
    else
      analysis.skipped.push_back(std::string(pass.name) + ": needs " + std::string(pass.needs));
  }
}

}  // namespace lockstep::analysis
