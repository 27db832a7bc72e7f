#pragma once
// The run as passes replay it: read once, when the first of them asks, and within a bound
// on what it may cost, so that the analysis of a large run stays linear and short.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "analysis/replay/questions/what_if.h"
#include "core/result.h"

namespace lockstep::analysis {

class Context;

// What is replayed of a run, by an analysis as by `lockstep whatif`: all usable steps in a row where that is cheap,
// else the last 40 of them, and fewer where these are too much for an analysis, unless `anyway`. Each stands for the
// steps that are about as long (RecordedRun::step_weights).
Result<std::unique_ptr<replay::RecordedRun>> ReadStepsToReplay(const Context& context, bool anyway);

// Why a replay would say nothing that is true: collectives lack so many members that replayed ranks would not wait for
// each other.
std::optional<Error> WhyNotReplayed(const Context& context);

class ReplayedRun {
 public:
  // The error says why nothing can be replayed: no steps, too much of it, collectives that lack members.
  static Result<std::unique_ptr<const ReplayedRun>> Make(const Context& context);

  const replay::WhatIf& what_if() const { return what_if_; }
  const replay::RecordedRun& run() const { return what_if_.run(); }
  // Nothing changed, and when everything then happens.
  const replay::Job& job() const { return job_; }
  const replay::Schedule& schedule() const { return schedule_; }

  // It gives back what was recorded, if roughly: no further off than rules::kMostErrorOfAnything. Where it does not,
  // nothing is said from it.
  bool Reproduces() const;
  // It gives back what was recorded well enough to say what a change gains: no further off than rules::kMostSelfError.
  bool Holds() const;
  // Likewise of each step: there are steps.
  bool HoldsInSteps() const { return Holds() && !run().whole_window; }

  // How often a pass may play the whole job again: at least `least`, at most `most`.
  std::size_t Plays(std::size_t least, std::size_t most) const;
  // "the last 12 of 400 steps"; "" if all of them are replayed.
  const std::string& sampled() const { return sampled_; }

 private:
  explicit ReplayedRun(replay::WhatIf what_if) : what_if_(std::move(what_if)) {}

  replay::WhatIf what_if_;
  replay::Job job_;
  replay::Schedule schedule_;
  std::string sampled_;
};

}  // namespace lockstep::analysis
