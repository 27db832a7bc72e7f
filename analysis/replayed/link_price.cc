#include "analysis/replayed/link_price.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "analysis/replayed/message_rates.h"
#include "analysis/replayed/replayed_run.h"

namespace lockstep::analysis {
std::optional<replay::Question> WithoutSlowLink(const Context& context, const Analysis& analysis) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || !replayed->Holds()) return std::nullopt;
  std::optional<SlowMessages> messages = FindSlowMessages(context, analysis.summary);
  // What the collectives would take without it no other host says, because all wait for each other in them.
  if (!messages) return replay::Question{.kind = replay::Question::kFreeCommunication};
  std::vector<std::int64_t> ordinary = std::move(messages->ordinary_ns);
  replay::Question question{.kind = replay::Question::kEdit};
  question.edit = [ordinary = std::move(ordinary)](replay::Job& job) {
    for (std::size_t i = 0; i < job.operations.size(); ++i) {
      const std::uint32_t message = job.operations[i].message;
      if (message >= ordinary.size() || ordinary[message] < 0) continue;
      std::int64_t& ns = job.graph.operations()[i].duration_ns;
      ns = std::min(ns, ordinary[message]);
    }
  };
  return question;
}

}  // namespace lockstep::analysis
