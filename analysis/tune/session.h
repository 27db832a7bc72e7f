#pragma once
// How `lockstep tune` decides: which run of the job comes next, and what the runs so far say. Pure: it starts nothing,
// reads no clock, and can be tried on simulated jobs.
//
// 1 Screening. Rounds of one run of the job as it is and one with each candidate, every second round in reverse order,
//   so that a machine that becomes steadily slower favours none. After two rounds the better half stays (successive
//   halving: Jamieson and Talwalkar, AISTATS 2016). What is found here is never said to be a gain.
// 2 Confirmation. The best one against the job as it is, on new runs only: pairs, neighbours in time, whose order is
//   drawn. How many candidates there were, and that the luckiest was taken, therefore makes no false gain. The
//   logarithm of the ratio of a pair's steps is one value; after 4, 6, 8, 12, .. of them an interval of their mean by
//   Student's t decides or asks for more (repeated confidence intervals: Jennison and Turnbull, JRSS B 51, 1989). The
//   permitted error is divided among the looks, and among the confirmations of a session: half of it to the first, a
//   quarter to the second.
// 3 What is better stays in force, and the next best candidate of another group is tried on top of it. Then those are
//   screened for which the budget was too small before, if enough of it is left.
//
// The error: in a session in which nothing is better, something is recommended with at most `error` / 2, as far as the
// pairs of one confirmation are independent and their logarithms alike on both sides of their median, which they are
// where a setting makes no difference, since the order was drawn.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "analysis/core/statistics.h"
#include "analysis/rules/diff.h"
#include "core/rules/common.h"

namespace lockstep::tune {

struct SessionOptions {
  double budget_s = rules::kTuneBudgetS;  // For everything, from when `elapsed_s` was 0.
  double first_cost_s = 0;                // What a run takes, as far as is known before the first one.
  double error = rules::kTuneError;       // Intervals miss with at most this probability, over the whole session.
  double worth = rules::kWorthShare;      // A gain of a smaller part of the step is none.
  std::uint64_t seed = rules::kTuneSeed;
};

enum class End : std::uint8_t {
  kGood,
  kFailed,      // It ended in another way than the job as it is, or made no steps that can be measured.
  kHung,        // It took several times as long as the job as it is.
  kChanged,     // Its results are others.
  kNotApplied,  // The setting did not take effect.
};

struct RunResult {
  End end = End::kGood;
  double step_ns = 0;  // Mean length of a step; kGood only.
  double cost_s = 0;   // Of the whole run.
  std::string why;     // In words, unless kGood.
};

// Part of the step that is gained; negative: lost.
struct Estimate {
  double gain = 0, low = 0, high = 0;
  std::size_t pairs = 0;  // From so many.
};

enum class Verdict : std::uint8_t {
  kNotTried,  // The budget was spent on more promising ones.
  kFailed,
  kHung,
  kChanged,
  kNotApplied,
  kNoSign,  // No sign of a gain, or less of one than others: not confirmed.
  kBetter,
  kNoGain,     // Certainly no gain of `worth` or more.
  kUndecided,  // Confirmation has ended, by the budget or after its last look, and 0 is in the interval.
};

struct Row {
  Verdict verdict = Verdict::kNotTried;
  std::string why;
  std::optional<Estimate> screened;   // Without a guarantee, and of the best ones by selection too good. 95 %.
  std::optional<Estimate> confirmed;  // On runs that had no part in choosing it.
  std::vector<double> screening_logs, confirming_logs;  // By pair: ln(step with it / step without it).
};

class Session {
 public:
  // `groups`: of each candidate, the most promising first. Of a group at most one is in force at a time.
  Session(std::vector<std::string> groups, const SessionOptions& options);

  // The candidates that are in force in the next run, none: the job as it is; nothing: the session is over.
  std::optional<std::vector<std::size_t>> Next(double elapsed_s);
  // At most so long until it is over: what is left of the budget, or of the runs that the plan may still need at what
  // runs took so far. Of the run that Next() has just named, all.
  double MostLeft(double elapsed_s) const;
  // What that run gave.
  void Took(const RunResult& result);
  // No further run can be made: the same as a budget that is spent.
  void Stop();

  const std::vector<Row>& rows() const { return rows_; }
  // What is recommended, in the order in which it was found; empty: nothing.
  const std::vector<std::size_t>& best() const { return best_; }
  // Of all that is recommended over the job as it is.
  std::optional<Estimate> total() const;
  // Whether the answer is one: not if the budget ended the session before a candidate that looked better was decided,
  // or before any was tried.
  bool decided() const;
  // Why the session had to end: the job as it is failed. "" if it did not.
  const std::string& trouble() const { return trouble_; }
  std::size_t runs() const { return runs_; }

 private:
  static constexpr std::size_t kAsItIs = static_cast<std::size_t>(-1);
  enum class Phase : std::uint8_t { kScreening, kConfirming, kOver };
  struct Pair {
    std::optional<double> without, with;
  };

  std::size_t Affordable(double left_s) const;
  double CostOfRun() const;
  std::size_t MostRunsLeft() const;
  bool Taken(std::size_t candidate) const;
  void StartScreening(double elapsed_s);
  // Both plan runs, or go on to the next phase.
  void PlanScreening(double elapsed_s);
  void PlanConfirming(double elapsed_s);
  void EndRound();
  void Halve();
  void EndScreening();
  bool ChooseNext();
  // Whether the candidate in question is decided; at the `last` look with all of the error that is left.
  bool Look(bool last);
  void Decide(Verdict verdict, std::string why);
  void Refuse(std::size_t candidate, const RunResult& result);

  std::vector<std::string> groups_;
  SessionOptions options_;
  analysis::SeededRandom random_;
  Phase phase_ = Phase::kScreening;
  std::vector<Row> rows_;
  std::deque<std::size_t> planned_;  // Of the round, or of the pairs: a candidate, or kAsItIs.
  // Not tried yet; of the screening at work: all, and those that stay; to be confirmed, the best first; in force.
  std::vector<std::size_t> pool_, batch_, live_, order_, best_;
  std::vector<std::size_t> stages_;  // Of each candidate: how many times it was among those that stayed.
  std::vector<std::optional<double>> round_;
  std::optional<double> round_as_it_is_;
  std::size_t rounds_ = 0, runs_ = 0, looks_ = 0, confirmations_ = 0, failures_ = 0;
  std::size_t in_question_ = kAsItIs;
  Pair pair_;
  double cost_s_ = 0, spent_error_ = 0, screening_until_s_ = 0;
  bool cut_ = false;
  std::string trouble_;
};

}  // namespace lockstep::tune
