#include "analysis/tune/session.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "analysis/core/student.h"
#include "analysis/rules/diff.h"

namespace lockstep::tune {
namespace {

// Pairs after which a confirmation looks at what it has.
constexpr std::array<std::size_t, 8> kLooks = {4, 6, 8, 12, 16, 24, 32, 48};

// Of logarithms of ratios; `error`: two-sided.
Estimate EstimateOf(const std::vector<double>& logs, double error) {
  Estimate estimate;
  estimate.pairs = logs.size();
  double mean = 0, squares = 0;
  for (const double value : logs) mean += value / static_cast<double>(logs.size());
  for (const double value : logs) squares += (value - mean) * (value - mean);
  estimate.gain = 1 - std::exp(mean);
  estimate.low = -INFINITY;
  estimate.high = 1;
  if (logs.size() < 2) return estimate;
  const auto n = static_cast<double>(logs.size());
  const double half = analysis::StudentQuantile(error / 2, logs.size() - 1) * std::sqrt(squares / (n - 1) / n);
  estimate.low = 1 - std::exp(mean + half);
  estimate.high = 1 - std::exp(mean - half);
  return estimate;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

Verdict Of(End end) {
  switch (end) {
    case End::kHung:
      return Verdict::kHung;
    case End::kChanged:
      return Verdict::kChanged;
    case End::kNotApplied:
      return Verdict::kNotApplied;
    case End::kGood:
    case End::kFailed:
      break;
  }
  return Verdict::kFailed;
}

// Runs that screening so many takes: rounds of all that are left and of the job as it is.
std::size_t RunsToScreen(std::size_t candidates) {
  std::size_t runs = 0;
  for (std::size_t live = candidates; live > 1; live = (live + 1) / 2) runs += rules::kTuneRoundsOfStage * (live + 1);
  return runs;
}

}  // namespace

Session::Session(std::vector<std::string> groups, const SessionOptions& options)
    : groups_(std::move(groups)), options_(options), random_(options.seed) {
  rows_.resize(groups_.size());
  for (std::size_t i = 0; i < groups_.size(); ++i) pool_.push_back(i);
  stages_.resize(groups_.size());
  round_.resize(groups_.size());
}

double Session::CostOfRun() const { return runs_ == 0 ? options_.first_cost_s : cost_s_ / static_cast<double>(runs_); }

std::size_t Session::Affordable(double left_s) const {
  const double cost = CostOfRun();
  if (cost <= 0) return static_cast<std::size_t>(-1) / 2;
  return left_s <= 0 ? 0 : static_cast<std::size_t>(left_s / cost);
}

std::optional<std::vector<std::size_t>> Session::Next(double elapsed_s) {
  while (planned_.empty() && phase_ != Phase::kOver)
    phase_ == Phase::kScreening ? PlanScreening(elapsed_s) : PlanConfirming(elapsed_s);
  if (phase_ == Phase::kOver) return std::nullopt;
  // A round that was planned may have become more expensive than what is left.
  if (runs_ > 0 && Affordable(options_.budget_s - elapsed_s) == 0) {
    Stop();
    return std::nullopt;
  }
  std::vector<std::size_t> in_force = best_;
  if (planned_.front() != kAsItIs) in_force.push_back(planned_.front());
  return in_force;
}

// If no candidate fails, none is decided before its last look, and every one of a screening has to be confirmed.
std::size_t Session::MostRunsLeft() const {
  constexpr std::size_t kRunsToConfirm = 2 * kLooks.back();
  std::size_t runs = planned_.size(), candidates = order_.size() + pool_.size();
  if (phase_ == Phase::kScreening) {
    runs += RunsToScreen(live_.size());
    candidates += batch_.size();
  }
  if (in_question_ != kAsItIs)
    runs += kRunsToConfirm - std::min(kRunsToConfirm, 2 * rows_[in_question_].confirming_logs.size() + planned_.size());
  if (!pool_.empty()) runs += RunsToScreen(pool_.size());
  return runs + kRunsToConfirm * std::min(candidates, rules::kTuneConfirmations - confirmations_);
}

double Session::MostLeft(double elapsed_s) const {
  if (phase_ == Phase::kOver) return 0;
  return std::min(std::max(0.0, options_.budget_s - elapsed_s), CostOfRun() * static_cast<double>(MostRunsLeft()));
}

// Whether a value of the same setting is in force already.
bool Session::Taken(std::size_t candidate) const {
  return std::any_of(best_.begin(), best_.end(),
                     [&](std::size_t other) { return groups_[other] == groups_[candidate]; });
}

// As many of those that were not tried yet as the budget can compare, the most promising first.
void Session::StartScreening(double elapsed_s) {
  std::erase_if(pool_, [&](std::size_t i) {
    if (Taken(i)) rows_[i].why = "another value of it was found to be better";
    return Taken(i);
  });
  screening_until_s_ = elapsed_s + rules::kTuneScreeningShare * (options_.budget_s - elapsed_s);
  std::size_t count = pool_.size();
  const std::size_t affordable = Affordable(screening_until_s_ - elapsed_s);
  while (count > 1 && RunsToScreen(count) > affordable) --count;
  const auto end = pool_.begin() + static_cast<std::ptrdiff_t>(count);
  live_.assign(pool_.begin(), end);
  batch_ = live_;
  pool_.erase(pool_.begin(), end);
  rounds_ = 0;
}

void Session::PlanScreening(double elapsed_s) {
  if (batch_.empty()) {
    StartScreening(elapsed_s);
    if (live_.size() <= 1) return EndScreening();
  } else {
    EndRound();
    if (rounds_ % rules::kTuneRoundsOfStage == 0) Halve();
    if (live_.size() <= 1 || live_.size() + 1 > Affordable(screening_until_s_ - elapsed_s)) return EndScreening();
  }
  planned_.push_back(kAsItIs);
  planned_.insert(planned_.end(), live_.begin(), live_.end());
  if (rounds_ % 2 == 1) std::reverse(planned_.begin(), planned_.end());
}

void Session::EndRound() {
  rounds_ += 1;
  for (const std::size_t i : live_)
    if (round_[i] && round_as_it_is_) rows_[i].screening_logs.push_back(*round_[i] - *round_as_it_is_);
  // Where the job as it is failed too, nobody knows whose fault it was.
  if (!round_as_it_is_)
    for (const std::size_t i : live_) rows_[i].verdict = Verdict::kNotTried;
  std::erase_if(live_, [&](std::size_t i) { return rows_[i].verdict != Verdict::kNotTried; });
  std::fill(round_.begin(), round_.end(), std::nullopt);
  round_as_it_is_.reset();
}

void Session::Halve() {
  for (const std::size_t i : live_) stages_[i] += 1;
  std::stable_sort(live_.begin(), live_.end(), [&](std::size_t a, std::size_t b) {
    return Mean(rows_[a].screening_logs) < Mean(rows_[b].screening_logs);
  });
  live_.resize((live_.size() + 1) / 2);
  // A round goes through them in the order of what is promised, as the first one did.
  std::sort(live_.begin(), live_.end());
}

void Session::EndScreening() {
  phase_ = Phase::kConfirming;
  order_.clear();
  for (const std::size_t i : batch_) {
    Row& row = rows_[i];
    if (row.verdict != Verdict::kNotTried || row.screening_logs.empty()) continue;
    row.screened = EstimateOf(row.screening_logs, options_.error);
    row.verdict = Verdict::kNoSign;
    // One that is left alone after a single round has not shown anything yet.
    if (row.screened->gain > 0 || row.screening_logs.size() < rules::kTuneRoundsOfStage) order_.push_back(i);
  }
  // One that was not compared with others has to show itself.
  if (order_.empty() && live_.size() == 1 && rows_[live_[0]].screening_logs.empty()) order_ = live_;
  std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
    if (stages_[a] != stages_[b]) return stages_[a] > stages_[b];
    return Mean(rows_[a].screening_logs) < Mean(rows_[b].screening_logs);
  });
  batch_.clear();
}

// Returns whether there is a candidate to confirm.
bool Session::ChooseNext() {
  if (confirmations_ == rules::kTuneConfirmations) return false;
  while (!order_.empty() && Taken(order_.front())) order_.erase(order_.begin());
  if (order_.empty()) return false;
  in_question_ = order_.front();
  order_.erase(order_.begin());
  confirmations_ += 1;
  looks_ = 0;
  spent_error_ = 0;
  pair_ = {};
  return true;
}

void Session::PlanConfirming(double elapsed_s) {
  const std::size_t affordable = Affordable(options_.budget_s - elapsed_s);
  if (in_question_ == kAsItIs) {
    // Fewer pairs than the first look needs decide nothing.
    const bool enough = affordable >= 2 * kLooks[0];
    if (enough && ChooseNext()) {
      // Its first pairs are planned below.
    } else if (enough && confirmations_ < rules::kTuneConfirmations && !pool_.empty()) {
      phase_ = Phase::kScreening;
      return;
    } else {
      cut_ = cut_ || (!enough && !order_.empty());
      phase_ = Phase::kOver;
      return;
    }
  } else if (looks_ < kLooks.size() && rows_[in_question_].confirming_logs.size() >= kLooks[looks_]) {
    looks_ += 1;
    if (Look(looks_ == kLooks.size())) return;
  }
  if (affordable < 2) return Stop();
  const std::size_t pairs = affordable >= 2 * rules::kTunePairs ? rules::kTunePairs : 1;
  bool with_first = random_.Below(2) == 1;
  for (std::size_t i = 0; i < pairs; ++i, with_first = !with_first) {
    planned_.push_back(with_first ? in_question_ : kAsItIs);
    planned_.push_back(with_first ? kAsItIs : in_question_);
  }
}

bool Session::Look(bool last) {
  Row& row = rows_[in_question_];
  const double all = options_.error / std::pow(2, static_cast<double>(confirmations_));
  const double error = last ? all - spent_error_ : all / static_cast<double>(kLooks.size());
  spent_error_ += error;
  const Estimate estimate = EstimateOf(row.confirming_logs, error);
  row.confirmed = estimate;
  if (estimate.high < options_.worth) {
    Decide(Verdict::kNoGain, "");
    return true;
  }
  if (estimate.low > 0 && estimate.gain >= options_.worth) {
    best_.push_back(in_question_);
    Decide(Verdict::kBetter, "");
    return true;
  }
  if (last) Decide(Verdict::kUndecided, "");
  return last;
}

void Session::Decide(Verdict verdict, std::string why) {
  rows_[in_question_].verdict = verdict;
  rows_[in_question_].why = std::move(why);
  planned_.clear();
  pair_ = {};
  in_question_ = kAsItIs;
}

void Session::Refuse(std::size_t candidate, const RunResult& result) {
  rows_[candidate].verdict = Of(result.end);
  rows_[candidate].why = result.why;
}

void Session::Took(const RunResult& result) {
  const std::size_t what = planned_.front();
  planned_.pop_front();
  runs_ += 1;
  cost_s_ += result.cost_s;
  const bool good = result.end == End::kGood && result.step_ns > 0;
  // The job as it is may fail once by accident.
  if (!good && what == kAsItIs && ++failures_ > 1) {
    trouble_ = result.why;
    planned_.clear();
    phase_ = Phase::kOver;
    return;
  }
  const std::optional<double> value = good ? std::optional(std::log(result.step_ns)) : std::nullopt;
  if (phase_ == Phase::kScreening) {
    (what == kAsItIs ? round_as_it_is_ : round_[what]) = value;
    if (!good && what != kAsItIs) Refuse(what, result);
    return;
  }
  if (!good && what != kAsItIs) {
    Refuse(what, result);
    return Decide(rows_[what].verdict, result.why);
  }
  (what == kAsItIs ? pair_.without : pair_.with) = value;
  // The second of a pair: what is left of it are whole pairs.
  if (planned_.size() % 2 != 0) return;
  if (pair_.without && pair_.with) rows_[in_question_].confirming_logs.push_back(*pair_.with - *pair_.without);
  pair_ = {};
}

void Session::Stop() {
  planned_.clear();
  if (phase_ == Phase::kScreening) {
    cut_ = true;
    EndScreening();
  } else if (phase_ == Phase::kConfirming && in_question_ != kAsItIs) {
    const std::size_t candidate = in_question_;
    if (rows_[candidate].confirming_logs.size() >= kLooks[0])
      Look(true);
    else
      Decide(Verdict::kUndecided, "the budget was spent before it could be confirmed");
    cut_ = cut_ || rows_[candidate].verdict == Verdict::kUndecided;
  }
  phase_ = Phase::kOver;
}

std::optional<Estimate> Session::total() const {
  if (best_.empty()) return std::nullopt;
  Estimate total;
  double kept = 1, kept_low = 1, kept_high = 1;  // Parts of the step.
  for (const std::size_t i : best_) {
    const Estimate& one = *rows_[i].confirmed;
    kept *= 1 - one.gain;
    kept_low *= 1 - one.high;
    kept_high *= 1 - one.low;
    total.pairs += one.pairs;
  }
  total.gain = 1 - kept;
  total.low = 1 - kept_high;
  total.high = 1 - kept_low;
  return total;
}

bool Session::decided() const {
  return trouble_.empty() &&
         (!best_.empty() || (!cut_ && (pool_.empty() || confirmations_ == rules::kTuneConfirmations)));
}

}  // namespace lockstep::tune
