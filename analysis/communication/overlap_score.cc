// Computes by replay how much communication could overlap with compute, and what the present overlap costs.

#include <algorithm>

#include "analysis/passes.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/words/render.h"

namespace lockstep::analysis {
namespace {

using replay::Answer;
using replay::Question;

Result<Answer> Ask(const ReplayedRun& replayed, Question::Kind kind) {
  Question question;
  question.kind = kind;
  return replayed.what_if().Ask(question);
}

}  // namespace

void DescribeReplay(const Context& context, Analysis& analysis) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr) {
    analysis.replay_skipped = context.replay_skipped();
    return;
  }
  const replay::WhatIf& what_if = replayed->what_if();
  ReplayFacts facts;
  facts.steps = static_cast<std::int64_t>(replayed->run().steps.size());
  facts.first_step = replayed->run().steps.front();
  facts.last_step = replayed->run().steps.back();
  facts.measured_step_ns = what_if.measured_step_ns();
  facts.replayed_step_ns = what_if.replayed_step_ns();
  facts.self_error = what_if.self_error();
  facts.sampled = replayed->sampled();
  facts.notes = replayed->run().notes;
  if (!replayed->Reproduces()) facts.notes.push_back(Told(Word::kReplayIsOff, {{"error", Share{facts.self_error}}}));
  analysis.replay = std::move(facts);
}

void ScoreOverlap(const Context& context, Analysis& analysis) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || !replayed->Reproduces() || replayed->run().collectives.empty()) return;
  const Result<Answer> serial = Ask(*replayed, Question::kNoOverlap),
                       free = Ask(*replayed, Question::kFreeCommunication),
                       best = Ask(*replayed, Question::kPerfectSchedule);
  if (!free.ok() || !best.ok()) return;
  OverlapScore score;
  score.t_actual_ns = replayed->what_if().replayed_step_ns();
  // The lengths follow from the gains, which are paired by step, so that a change has the same value here as in
  // findings and in whatif.
  const auto step_of = [&](const Answer& answer) { return score.t_actual_ns - answer.gain_ns; };
  // Neither makes a step longer; a replay of few steps may show one that is, by what it is off.
  score.t_free_comm_ns = std::min(score.t_actual_ns, step_of(free.value()));
  score.t_best_ns = std::min(score.t_actual_ns, step_of(best.value()));
  if (serial.ok()) {
    const std::int64_t slowest = step_of(serial.value()), could = slowest - score.t_best_ns;
    score.t_no_overlap_ns = slowest;
    if (could > 0) score.efficiency = static_cast<double>(slowest - score.t_actual_ns) / static_cast<double>(could);
  }
  analysis.overlap = score;
}

}  // namespace lockstep::analysis
