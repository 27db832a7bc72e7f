#include "analysis/passes.h"

#include <string>

#include "analysis/pass_order.h"

namespace lockstep::analysis {
namespace {

bool Always(const Context&) { return true; }
bool HasSteps(const Context& context) { return context.tables().steps.rows() > 0; }
bool HasTotals(const Context& context) { return context.tables().rank_totals.rows() > 0; }
bool HasCollectives(const Context& context) { return context.tables().collectives.rows() > 0; }
bool HasBuckets(const Context& context) { return context.tables().gradient_buckets.rows() > 0; }
bool HasMessages(const Context& context) { return context.tables().p2p_pairs.rows() > 0; }
bool Communicates(const Context& context) { return HasCollectives(context) || HasMessages(context); }
bool HasGpus(const Context& context) { return context.tables().rank_gpus.rows() > 0; }
bool HasUnits(const Context& context) { return context.ranks().size() >= 2 && context.units().size() >= 2; }

// Without steps work can be compared, if nothing else.
bool CanBeLate(const Context& context) {
  return HasUnits(context) || (context.ranks().size() >= 2 && (HasMessages(context) || HasCollectives(context)));
}

using enum Section;

constexpr Pass kPasses[] = {
    {"run", "", Always, DescribeRun, {}, {run_dir, run, remarks}},
    {"losses", "", Always, CollectLosses, {}, {losses}},
    {"trust", "", Always, AssessTrust, {}, {trust}},
    {"gpus", "GPUs", HasGpus, TabulateGpus, {run, trust}, {gpus, run, trust}, {"run", "trust"}},
    {"hang", "", Always, FindHang, {run}, {hang}, {"run"}},
    {"summary", "", Always, Summarize, {}, {summary, remarks}, {"run"}},
    {"collectives", "matched collectives", HasCollectives, TabulateCollectives, {}, {collectives, groups}},
    {"arrivals", "matched collectives", HasCollectives, CountArrivals, {}, {arrivals}},
    {"ranks", "totals per rank", HasTotals, TabulateRanks, {summary, arrivals}, {ranks}},
    {"stragglers",
     "two ranks and two steps, or collectives or messages of a run without steps",
     CanBeLate,
     FindStragglers,
     {run, trust, summary, ranks, arrivals, gpus},
     {stragglers, findings, remarks},
     {"summary"}},
    {"links",
     "two ranks and two steps, or enough collectives to slice the run",
     HasUnits,
     FindSlowLinks,
     {summary, stragglers, findings},
     {findings},
     {"stragglers"}},
    {"link_cuts", "matched collectives", HasCollectives, FindLinkCuts, {run, findings}, {findings, remarks}, {"links"}},
    {"wait_only",
     "matched collectives",
     HasCollectives,
     FindWaitOnlyProgress,
     {run, summary, collectives, stragglers, findings},
     {wait_only, mostly_posted, findings},
     {"link_cuts"}},
    {"turns",
     "matched collectives or point-to-point messages",
     Communicates,
     FindTurns,
     {run, summary, arrivals, stragglers, findings},
     {findings},
     {"wait_only"}},
    {"critical_path", "", Always, FindCriticalPath, {}, {critical_path}},
    {"p2p",
     "point-to-point messages",
     HasMessages,
     TabulateP2p,
     {run, summary, ranks, critical_path},
     {p2p, findings},
     {"turns"}},
    {"input", "totals per rank", HasTotals, FindInputBound, {summary, ranks}, {findings}, {"p2p"}},
    {"causes",
     "totals per rank",
     HasTotals,
     FindCauses,
     {summary, findings},
     {comm_on_path_ns, idle_causes, findings},
     {"input"}},
    {"bursts", "steps", HasSteps, FindBursts, {summary}, {findings}, {"causes"}},
    {"stalls",
     "two ranks and two steps, or enough collectives to slice the run",
     HasUnits,
     FindStalls,
     {run},
     {findings},
     {"bursts"}},
    {"warmup", "steps", HasSteps, FindWarmup, {}, {findings}, {"stalls"}},
    {"transfer",
     "totals per rank",
     HasTotals,
     FindExposedTransfer,
     {run, summary, collectives, stragglers, comm_on_path_ns, findings},
     {findings, remarks},
     {"warmup"}},
    {"starved",
     "totals per rank",
     HasTotals,
     FindStarved,
     {run, summary, ranks},
     {without_core_share, findings},
     {"transfer"}},
    {"buckets", "gradient buckets recorded by PyTorch's hooks", HasBuckets, JoinBuckets, {}, {buckets}},
    {"replay", "", Always, DescribeReplay, {}, {replay, replay_skipped}},
    {"overlap", "", Always, ScoreOverlap, {}, {overlap}},
    {"bucket_curve", "", Always, PredictBuckets, {buckets, ranks}, {buckets, findings}, {"buckets", "starved"}},
    {"counterfactual", "", Always, CountCounterfactuals, {stragglers}, {stragglers_replayed, counterfactual}},
    {"delays", "", Always, AttributeDelays, {}, {delays}},
    {"fsdp", "", Always, RecogniseShards, {run, wait_only}, {fsdp, findings}, {"bucket_curve"}},
    {"backends",
     "",
     Always,
     FindUnrecordedBackend,
     {run, losses},
     {unrecorded, losses, remarks},
     {"losses", "transfer"}},
    {"gpus_unrecorded",
     "",
     Always,
     FindUnrecordedGpus,
     {run, losses, unrecorded, findings},
     {unrecorded, findings},
     {"backends", "fsdp"}},
    {"prices",
     "",
     Always,
     PriceFindings,
     {summary, stragglers, buckets, fsdp, findings, stragglers_replayed},
     {stragglers_replayed, findings},
     {"counterfactual", "gpus_unrecorded"}},
    {"verdict",
     "",
     Always,
     Conclude,
     {run, trust, summary, ranks, stragglers, buckets, findings, unrecorded, without_core_share, wait_only,
      mostly_posted, losses, remarks},
     {findings, impossible_findings, idle_causes, additivity, verdict, remarks, suspicious},
     {"prices", "backends"}},
    {"steps",
     "steps",
     HasSteps,
     TabulateSteps,
     {summary, ranks, stragglers, findings},
     {steps, truncated},
     {"verdict"}},
};

}  // namespace

std::span<const Pass> Passes() { return kPasses; }

void RunPasses(const Context& context, Analysis& analysis) {
  std::string problem;
  const std::vector<std::size_t> order = OrderOf(kPasses, problem);
  for (std::size_t at = 0; at < order.size(); ++at) {
    const Pass& pass = kPasses[order[at]];
    if (context.options().progress) context.options().progress(at + 1, order.size());
    if (pass.applies(context))
      pass.run(context, analysis);
    else
      analysis.skipped.push_back(std::string(pass.name) + ": needs " + std::string(pass.needs));
  }
}

}  // namespace lockstep::analysis
