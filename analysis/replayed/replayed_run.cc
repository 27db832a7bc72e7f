#include "analysis/replayed/replayed_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "analysis/context.h"
#include "analysis/core/format.h"
#include "analysis/core/gpu_clocks.h"
#include "analysis/passes.h"
#include "analysis/rules/network.h"
#include "analysis/rules/run.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

// Of the parts that ranks had in collectives of usable steps those whose collective is not whole.
double Lacking(const Context& context) {
  const auto& c = context.tables().collectives;
  const auto& usable = context.usable_steps();
  const auto& index = context.tables().steps.index;
  double all = 0, lacking = 0;
  for (std::size_t i = 0; i < c.rows(); ++i) {
    if (!usable.empty() && (c.step[i] < index[usable.front()] || c.step[i] > index[usable.back()])) continue;
    all += c.seen[i];
    if (c.seen[i] != c.expected[i] || c.mismatch[i]) lacking += c.seen[i];
  }
  return all > 0 ? lacking / all : 0;
}

Error TooMuch(const Context& context, std::uint64_t events) {
  return Error{
      ErrorCode::kUnsupported,
      fmt::format("{} are too many for the replay within analyze", Plural(static_cast<std::int64_t>(events), "event")),
      context.timeline().run_dir, "lockstep whatif RUN replays it anyway"};
}

// What a step becomes, from its events: at least this, and most often far less.
double OperationsOfStep(const Context& context, std::uint64_t events) {
  const std::size_t all = std::max<std::size_t>(1, context.tables().steps.rows());
  return std::max({1.0, rules::kReplayedOperationsPerEvent * static_cast<double>(events) / static_cast<double>(all),
                   rules::kReplayedOperationsPerRank * static_cast<double>(context.ranks().size())});
}

std::uint64_t EventsOf(const Context& context) {
  std::uint64_t events = 0;
  for (std::size_t i = 0; i < context.ranks().size(); ++i) events += context.tables().ranks.events[context.RankRow(i)];
  return events;
}

}  // namespace

Result<std::unique_ptr<replay::RecordedRun>> ReadStepsToReplay(const Context& context, bool anyway) {
  const auto fit = [&](double operations_of_step) {
    const double usual = anyway
                             ? rules::kReplayedSteps
                             : std::min<double>(rules::kReplayedSteps, rules::kReplayedOperations / operations_of_step);
    const double cheap = std::min(
        rules::kReplayedOperationsCheap / operations_of_step,
        rules::kReplayedRankStepsCheap / static_cast<double>(std::max<std::size_t>(1, context.ranks().size())));
    return std::max(rules::kReplayedLeastSteps, static_cast<std::size_t>(std::max(usual, cheap)));
  };
  replay::ReadRunOptions options;
  options.most_steps = fit(OperationsOfStep(context, EventsOf(context)));
  options.first_step = context.first_step();
  options.last_step = context.last_step();
  // First steps that are left out of means are not replayed either.
  if (!context.usable_steps().empty())
    options.first_step = std::max(options.first_step, context.tables().steps.index[context.usable_steps().front()]);
  options.jobs = context.options().jobs;
  options.read_rank = context.options().read_rank;
  LS_TRY(std::unique_ptr<replay::RecordedRun> run, replay::ReadRun(context.timeline(), options));
  if (run->steps.size() < options.most_steps || run->steps.size() == context.usable_steps().size()) return run;
  // There may be room for more of them.
  const double made =
      static_cast<double>(run->MakeJob().graph.operations().size()) / static_cast<double>(run->steps.size());
  const std::size_t room = fit(std::max(1.0, made));
  if (room < rules::kReplayedReadAgainTimes * options.most_steps) return run;
  options.most_steps = room;
  return replay::ReadRun(context.timeline(), options);
}

std::optional<Error> WhyNotReplayed(const Context& context) {
  if (const std::int64_t error_ns = NotableGpuClocks(context.timeline()).contradicts_ns; error_ns > 0)
    return Error{ErrorCode::kUnsupported,
                 fmt::format("launches and waits contradict the GPU's clock by up to {}", Duration(error_ns)),
                 context.timeline().run_dir, "record with one clock for the host and the GPU"};
  const double lacking = Lacking(context);
  if (lacking <= rules::kLittle) return std::nullopt;
  return Error{ErrorCode::kUnsupported,
               fmt::format("{} of the ranks' collectives lack members, so replayed ranks would not wait for each other",
                           Percent(lacking)),
               context.timeline().run_dir, "record all ranks"};
}

bool ReplayedRun::Reproduces() const { return what_if_.self_error() <= rules::kMostErrorOfAnything; }

bool ReplayedRun::Holds() const { return what_if_.self_error() <= rules::kMostSelfError; }

Result<std::unique_ptr<const ReplayedRun>> ReplayedRun::Make(const Context& context) {
  const std::uint64_t events = EventsOf(context);
  const bool steps_fit = rules::kReplayedOperations / OperationsOfStep(context, events) >=
                         static_cast<double>(rules::kReplayedLeastSteps) / rules::kReplayedEstimateTimes;
  if (events > rules::kReplayedEvents ||
      (context.usable_steps().empty() ? events > rules::kReplayedEventsWhole : !steps_fit))
    return TooMuch(context, events);
  if (std::optional<Error> why = WhyNotReplayed(context)) return *why;
  LS_TRY(std::unique_ptr<replay::RecordedRun> run, ReadStepsToReplay(context, false));
  replay::Job job = run->MakeJob();
  if (run->whole_window && static_cast<double>(job.graph.operations().size()) > rules::kReplayedOperationsWhole)
    return TooMuch(context, events);
  LS_TRY(replay::WhatIf what_if, replay::WhatIf::Make(std::move(run)));
  std::unique_ptr<ReplayedRun> replayed(new ReplayedRun(std::move(what_if)));
  replayed->job_ = std::move(job);
  LS_TRY(replayed->schedule_, replay::Simulator(replayed->job_.graph).Run());
  const std::size_t steps = replayed->run().steps.size(), usable = context.usable_steps().size();
  if (steps < usable) replayed->sampled_ = fmt::format("{} of {} steps", steps, usable);
  return std::unique_ptr<const ReplayedRun>(std::move(replayed));
}

std::size_t ReplayedRun::Plays(std::size_t least, std::size_t most) const {
  const double fit =
      rules::kReplayedOperationsPerPass / std::max(1.0, static_cast<double>(job_.graph.operations().size()));
  return std::max(least, static_cast<std::size_t>(std::min(fit, static_cast<double>(most))));
}

}  // namespace lockstep::analysis
