#include "analysis/report/html/what_if_grid.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "analysis/communication/bucket_curve.h"
#include "analysis/core/named_ranks.h"
#include "analysis/replayed/replayed_run.h"
#include "merge/parallel.h"

namespace lockstep::report {
namespace {

using replay::Answer;
using replay::Question;

constexpr std::size_t kLeastPoints = 12, kMostPoints = 72, kMostCaps = 6;
// As in the curve of bucket sizes (bucket_curve.cc).
constexpr std::size_t kPlaysPerPoint = 9;
constexpr double kFree = 0;  // A bandwidth without limit.

struct Axes {
  std::vector<double> bandwidth{0.25, 0.5, 1, 2, 4, kFree};
  std::vector<const analysis::BucketCurvePoint*> caps{nullptr};  // nullptr: as it is.
  std::vector<std::vector<std::int32_t>> without{{}};
  std::size_t points() const { return bandwidth.size() * caps.size() * without.size(); }
};

// Caps spread over the curve, including the recommended one and both ends.
std::vector<const analysis::BucketCurvePoint*> Caps(const analysis::Buckets& buckets, std::size_t most) {
  std::vector<const analysis::BucketCurvePoint*> caps{nullptr};
  if (buckets.curve.empty() || most < 2) return caps;
  std::set<std::size_t> chosen;
  for (std::size_t i = 0; i < buckets.curve.size(); ++i)
    if (buckets.recommended_cap_mb && buckets.curve[i].cap_mb == *buckets.recommended_cap_mb) chosen.insert(i);
  chosen.insert(buckets.curve.size() - 1);
  const std::size_t room = most - 1;
  for (std::size_t i = 0; chosen.size() < std::min(room, buckets.curve.size()) && i < room; ++i)
    chosen.insert(room > 1 ? i * (buckets.curve.size() - 1) / (room - 1) : 0);
  for (const std::size_t i : chosen)
    if (!buckets.current_cap_mb || buckets.curve[i].cap_mb != *buckets.current_cap_mb)
      caps.push_back(&buckets.curve[i]);
  return caps;
}

Axes AxesFor(const analysis::Analysis& analysis, std::size_t most) {
  Axes axes;
  if (!analysis.stragglers.empty()) {
    axes.without.push_back(analysis::StragglerRanks(analysis));
  }
  axes.caps = Caps(analysis.buckets, kMostCaps);
  if (axes.points() > most) axes.caps = Caps(analysis.buckets, 3);
  if (axes.points() > most) axes.bandwidth = {0.5, 1, 2, kFree};
  if (axes.points() > most) axes.caps = Caps(analysis.buckets, 1);
  if (axes.points() > most) axes.bandwidth = {1, 2, kFree};
  return axes;
}

}  // namespace

PageJson WhatIfGridOf(const analysis::Context& context, const analysis::Analysis& analysis) {
  const analysis::ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr) {
    const std::string& why = context.replay_skipped();
    return {{"skipped", why.empty() ? "this run cannot be replayed" : why}};
  }
  const replay::WhatIf& what_if = replayed->what_if();
  // Every position of the sliders changes the time for which other ranks wait.
  if (const Status can = what_if.Answerable({.kind = Question::kFreeCommunication}); !can.ok())
    return {{"skipped", can.error().what}};
  const std::size_t most =
      replayed->Plays(kLeastPoints * kPlaysPerPoint, kMostPoints * kPlaysPerPoint) / kPlaysPerPoint;
  const Axes axes = AxesFor(analysis, most);

  std::vector<Question> asked(axes.points());
  std::size_t at = 0;
  for (const double bandwidth : axes.bandwidth)
    for (const analysis::BucketCurvePoint* cap : axes.caps)
      for (const std::vector<std::int32_t>& without : axes.without) {
        std::vector<Question> parts;
        if (bandwidth != 1) {
          parts.push_back({.kind = bandwidth == kFree ? Question::kFreeCommunication : Question::kNetwork});
          if (bandwidth != kFree) parts.back().bandwidth = bandwidth;
        }
        if (cap != nullptr)
          parts.push_back(analysis::QuestionOfCap(analysis.buckets, *what_if.buckets(), cap->cap_mb, cap->one_bucket));
        if (!without.empty()) parts.push_back({.kind = Question::kWithoutRanks, .ranks = without});
        Question& question = asked[at++];
        question.kind = Question::kTogether;
        if (parts.size() == 1)
          question = parts[0];
        else
          question.together = std::move(parts);
      }

  std::vector<std::int64_t> step(asked.size(), kUnknownCell), low = step, high = step, extrapolated(asked.size(), 0);
  std::vector<std::string> unanswered(asked.size());
  merge::ParallelFor(context.options().jobs, asked.size(), [&](std::size_t i) {
    if (asked[i].kind == Question::kTogether && asked[i].together.empty()) {
      step[i] = what_if.replayed_step_ns();
      return;
    }
    const Result<Answer> answer = what_if.Ask(asked[i]);
    if (!answer.ok()) {
      unanswered[i] = answer.error().what;
      return;
    }
    step[i] = answer.value().step_ns;
    if (answer.value().step_interval_ns) std::tie(low[i], high[i]) = *answer.value().step_interval_ns;
    extrapolated[i] = answer.value().extrapolated;
  });

  PageJson json{{"skipped", nullptr},
                {"steps", what_if.run().steps.size()},
                {"measured_step_ns", what_if.measured_step_ns()},
                {"replayed_step_ns", what_if.replayed_step_ns()},
                {"self_error", what_if.self_error()}};
  json["axes"]["bandwidth"] = PageJson::array();
  for (const double bandwidth : axes.bandwidth)
    json["axes"]["bandwidth"].push_back(bandwidth == kFree ? PageJson(nullptr) : PageJson(bandwidth));
  json["axes"]["cap_mb"] = PageJson::array();
  json["axes"]["one_bucket"] = PageJson::array();
  for (const analysis::BucketCurvePoint* cap : axes.caps) {
    json["axes"]["cap_mb"].push_back(cap == nullptr ? PageJson(nullptr) : PageJson(cap->cap_mb));
    json["axes"]["one_bucket"].push_back(cap != nullptr && cap->one_bucket);
  }
  json["axes"]["without"] = axes.without;
  json["points"] = {{"step_ns", Packed(step)},
                    {"low_ns", Packed(low)},
                    {"high_ns", Packed(high)},
                    {"extrapolated", Packed(extrapolated)}};
  const auto why =
      std::find_if(unanswered.begin(), unanswered.end(), [](const std::string& text) { return !text.empty(); });
  json["unanswered"] = why == unanswered.end() ? PageJson(nullptr) : PageJson(*why);
  return json;
}

}  // namespace lockstep::report
