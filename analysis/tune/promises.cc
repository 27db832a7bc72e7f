#include "analysis/tune/promises.h"

#include <algorithm>
#include <cstdlib>

#include "analysis/replayed/replayed_run.h"

namespace lockstep::tune {
namespace {

using replay::Question;

}  // namespace

std::string AddBounds(const analysis::Context& context, Facts& facts) {
  if (const std::optional<Error> why = analysis::WhyNotReplayed(context)) return why->what;
  const analysis::ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr) return context.replay_skipped().empty() ? "it has no steps" : context.replay_skipped();
  if (replayed->run().whole_window) return "it has no steps";
  if (!replayed->Holds()) return "played again, its steps are not as long as they were";
  const Result<replay::Answer> answer = replayed->what_if().Ask({.kind = Question::kFreeCommunication});
  if (!answer.ok()) return answer.error().what;
  const replay::Answer& free = answer.value();
  const std::int64_t gain_ns =
      free.gain_interval_ns ? std::max(free.gain_interval_ns->second, free.gain_ns) : free.gain_ns;
  // Of the steps that were replayed, whose middle is another length than their mean.
  const auto step = static_cast<double>(std::max<std::int64_t>(replayed->what_if().replayed_step_ns(), 1));
  facts.communication_ns = facts.step_ns * std::clamp(static_cast<double>(gain_ns) / step, 0.0, 1.0);
  return "";
}

void AddPromises(const analysis::Context& context, const Facts& facts, std::vector<Candidate>& candidates) {
  const analysis::ReplayedRun* replayed = facts.communication_ns ? context.Replayed() : nullptr;
  if (replayed == nullptr || !replayed->what_if().buckets()) return;
  const auto step = static_cast<double>(std::max<std::int64_t>(replayed->what_if().replayed_step_ns(), 1));
  for (Candidate& candidate : candidates) {
    if (candidate.setting->name != "ddp.bucket_cap_mb") continue;
    const double cap = std::strtod(candidate.value.c_str(), nullptr);
    Question question{.kind = Question::kBucketCap};
    question.cap_bytes = static_cast<std::uint64_t>(cap * (1 << 20));
    // With a cap of the program's own PyTorch's first bucket is as large as the others (2.x); before that it was 1 MiB.
    question.first_bytes = question.cap_bytes;
    const Result<replay::Answer> answer = replayed->what_if().Ask(question);
    if (!answer.ok()) continue;
    const replay::Answer& gain = answer.value();
    const auto low = gain.gain_interval_ns ? gain.gain_interval_ns->first : gain.gain_ns;
    const auto high = gain.gain_interval_ns ? gain.gain_interval_ns->second : gain.gain_ns;
    candidate.promise = Promise{.gain = static_cast<double>(gain.gain_ns) / step,
                                .low = static_cast<double>(low) / step,
                                .high = static_cast<double>(high) / step};
  }
}

}  // namespace lockstep::tune
