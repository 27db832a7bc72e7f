#pragma once
// A pass answers one question about the run and writes its part of the Analysis. The list, with what each reads and
// writes, is in passes.cc; their order follows from that (pass_order.h).

#include "analysis/context.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

void DescribeRun(const Context& context, Analysis& analysis);            // run_facts.cc
void DescribeWindows(const Context& context, Analysis& analysis);        // windows.cc
void FindHang(const Context& context, Analysis& analysis);               // hang.cc
void CollectLosses(const Context& context, Analysis& analysis);          // run_facts.cc
void AssessTrust(const Context& context, Analysis& analysis);            // trust.cc
void TabulateGpus(const Context& context, Analysis& analysis);           // gpus.cc
void Summarize(const Context& context, Analysis& analysis);              // summary.cc
void TabulateRanks(const Context& context, Analysis& analysis);          // ranks.cc
void TabulateSteps(const Context& context, Analysis& analysis);          // steps.cc
void TabulateCollectives(const Context& context, Analysis& analysis);    // collectives.cc
void CountArrivals(const Context& context, Analysis& analysis);          // arrivals.cc
void TabulateP2p(const Context& context, Analysis& analysis);            // p2p.cc
void FindStragglers(const Context& context, Analysis& analysis);         // stragglers.cc
void FindSlowLinks(const Context& context, Analysis& analysis);          // link.cc
void FindLinkCuts(const Context& context, Analysis& analysis);           // link_cut.cc
void FindTurns(const Context& context, Analysis& analysis);              // turns.cc
void FindWaitOnlyProgress(const Context& context, Analysis& analysis);   // progress.cc
void FindExposedTransfer(const Context& context, Analysis& analysis);    // transfer.cc
void FindInputBound(const Context& context, Analysis& analysis);         // input.cc
void FindCauses(const Context& context, Analysis& analysis);             // causes/causes.cc
void FindWarmup(const Context& context, Analysis& analysis);             // warmup.cc
void FindBursts(const Context& context, Analysis& analysis);             // bursts.cc
void FindStalls(const Context& context, Analysis& analysis);             // stalls.cc
void FindStarved(const Context& context, Analysis& analysis);            // starved.cc
void JoinBuckets(const Context& context, Analysis& analysis);            // buckets.cc
void DescribeReplay(const Context& context, Analysis& analysis);         // overlap_score.cc
void ScoreOverlap(const Context& context, Analysis& analysis);           // overlap_score.cc
void PredictBuckets(const Context& context, Analysis& analysis);         // bucket_curve.cc
void CountCounterfactuals(const Context& context, Analysis& analysis);   // counterfactual_pass.cc
void FindCriticalPath(const Context& context, Analysis& analysis);       // critical_across.cc
void AttributeDelays(const Context& context, Analysis& analysis);        // delay_pass.cc
void RecogniseShards(const Context& context, Analysis& analysis);        // fsdp.cc
void FindUnrecordedBackend(const Context& context, Analysis& analysis);  // backends.cc
void FindUnrecordedGpus(const Context& context, Analysis& analysis);     // gpus_unrecorded.cc
void PriceFindings(const Context& context, Analysis& analysis);          // replayed/prices.cc
void Conclude(const Context& context, Analysis& analysis);               // verdict.cc

// Runs all of them.
void RunPasses(const Context& context, Analysis& analysis);

}  // namespace lockstep::analysis
