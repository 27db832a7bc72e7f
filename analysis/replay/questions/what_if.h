#pragma once
// Questions about a run: how long would a step be if ...? Each is answered by replaying the recorded steps, each with
// its own durations, with only that changed. docs/whatif.md explains the graph, its assumptions, and which files make
// it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"
#include "analysis/replay/graph/simulate.h"
#include "analysis/replay/questions/more_ranks.h"

namespace lockstep::replay {

struct Question {
  enum Kind : std::uint8_t {
    kFreeCommunication,  // Transfers take no time; waiting for late ranks stays.
    kNetwork,            // Bandwidth times `bandwidth`, latency times `latency`.
    kNoOverlap,          // Posted operations move data only when they are waited for.
    kWithoutRanks,       // The work of `ranks` takes as long as the same work on the others.
    kBucketCap,          // Gradients in buckets of `first_bytes`, then `cap_bytes`.
    kPerfectSchedule,    // The best valid order of the communication, on the same network (perfect_schedule.h).
    kOverlap,     // Blocking reductions of gradients are posted at their positions, and waited for after the last.
    kPrefetch,    // Parameters are gathered `depth` units before they are used (prefetch.h).
    kMoreRanks,   // Weak scaling to `rank_count` ranks (more_ranks.h).
    kEqualRanks,  // Each piece of work takes on every rank the mean over the ranks (equal_work.h).
    kProgress,    // Posted operations move data at once, even if they moved it only in their wait.
    kSendsGo,     // No send waits until its message is received: a bound for MPI_Isend and for earlier receives.
    kEdit,      // `edit` changes the graph of the unchanged run; not together with a question that makes another graph.
    kTogether,  // All of `together` at once; neither kPerfectSchedule nor kMoreRanks, and at most one bucketing.
  };
  Kind kind;
  double bandwidth = 1, latency = 1;
  std::vector<std::int32_t> ranks;
  std::uint64_t first_bytes = 0, cap_bytes = 0;
  // Of kBucketCap: each reduction takes what those of the run take in the middle, whatever its size. A bound for larger
  // ones, which take no less.
  bool same_for_all = false;
  std::size_t rank_count = 0, depth = 0;
  std::vector<Question> together;
  std::function<void(Job& job)> edit;
};

struct Answer {
  std::string question;                       // "bucket cap 4 MiB"
  std::int64_t step_ns = 0;                   // WhatIf::replayed_step_ns() less the gain.
  std::int64_t gain_ns = 0;                   // Mean over the steps of replayed minus changed: positive is faster.
  std::vector<std::int64_t> step_lengths_ns;  // By step, as Comparable() has them.
  // 95 %: from the mean over steps, and from the costs. Nothing for fewer than rules::kFewest steps.
  std::optional<std::pair<std::int64_t, std::int64_t>> step_interval_ns;
  std::optional<std::pair<std::int64_t, std::int64_t>> gain_interval_ns;  // The same of the gain, paired by step.
  std::vector<std::uint64_t> bucket_bytes;                                // For another bucketing, in launch order.
  bool extrapolated = false;                                              // Outside of what was measured.
  std::string limit;                                                      // The longest part of the changed step.
  std::string try_it;  // What to do to get it; "" if it is only a bound, or gains nothing.
  std::vector<std::string> caveats;
};

class WhatIf {
 public:
  // Replays the run without changes. `calibration`: other runs of the same job, with other bucket sizes.
  static Result<WhatIf> Make(std::unique_ptr<RecordedRun> run,
                             std::vector<std::unique_ptr<RecordedRun>> calibration = {});

  // Mean over the steps, each counted as RecordedRun::step_weights has it; without the first step, whose begin is not
  // comparable.
  std::int64_t measured_step_ns() const;
  std::int64_t replayed_step_ns() const;  // The same of the replay without changes.
  double self_error() const;              // Median over steps of |replayed - measured| / measured.
  std::vector<std::int64_t> replayed_lengths() const { return Comparable(replayed_ns_); }  // Without changes.
  const RecordedRun& run() const { return *run_; }
  const std::optional<BucketSequence>& buckets() const { return buckets_; }
  const CostModel& costs() const { return costs_; }  // Of transfers during which no rank computes.
  const InterferenceEstimate& interference() const { return interference_; }

  // kUnsupported if this run cannot answer it, kUsage if the question is not valid. `intervals`: without them it is one
  // replay, with them some more.
  Result<Answer> Ask(const Question& question, bool intervals = true) const;
  // Ok, or why the recorded ranks cannot answer it, whatever the answer would be.
  Status Answerable(const Question& question) const;
  std::string Name(const Question& question) const;  // As Answer::question.

 private:
  // A run with reductions that can be predicted with other buckets: the one in question, or a calibration run.
  struct Base {
    const RecordedRun* run = nullptr;
    BucketSequence buckets;
    ReductionTimes times;
    double step_ns = 0;      // Measured, mean.
    double correction = 1;   // The ratio of that to its replay with its own buckets predicted as if they were others.
    double as_asked_ns = 0;  // Its replay with predicted buckets of the run in question; mean.
  };
  // The assumptions of one replay. An answer's interval comes from replays with other assumptions.
  struct Assumptions {
    Interference interference;
    double cost_factor = 1;  // Multiplies the table's costs of transfers that were not measured.
    // For kMoreRanks: how latency grows, and which deviations the new ranks get.
    LatencyGrowth growth = LatencyGrowth::kRing;
    std::uint64_t draw = 0;
  };
  // The job that results from a question.
  struct ChangedJob {
    Job job;
    std::vector<std::uint32_t> predicted;  // Operations whose durations are those of the cost table.
  };
  // How much less and more than predicted a step may take, mean, under the other assumptions.
  struct Range {
    std::int64_t less_ns = 0, more_ns = 0;
  };

  // Sets the answer's name and advice. what_if_names.cc, as Answerable and Name
  Status Describe(const Question& question, Answer& answer) const;
  Result<ChangedJob> Changed(const Question& question, const Assumptions& assume, Answer* answer) const;
  Result<std::vector<std::int64_t>> Play(const Job& job, const Simulator& simulator, const Assumptions& assume,
                                         Answer* answer) const;
  Result<Job> WithEqualWork(const RecordedRun& run, const Assumptions& assume, Job job) const;
  Result<std::vector<std::int64_t>> BestLengths(Answer* answer) const;
  // Mean step under these assumptions.
  Result<std::int64_t> StepUnder(const Question& question, const Assumptions& assume) const;
  // `changed` and its simulator are those of the prediction and are run again; its durations are unchanged afterwards.
  Result<Range> RangeOf(const Question& question, const Assumptions& assume, const Answer& answer,
                        std::int64_t predicted_ns, ChangedJob& changed, const Simulator* simulator) const;

  // what_if_buckets.cc
  void AddBases(const std::vector<const RecordedRun*>& others);
  void AddBeside();
  // `base` has its run, buckets and times; the rest is added. Returns an error if it cannot be played with other
  // buckets.
  Status FinishBase(Base& base) const;
  Result<std::vector<std::int64_t>> BucketLengths(const Base& base, const std::vector<std::uint64_t>& bytes) const;
  double CorrectionFor(std::size_t buckets) const;
  // Corrects the steps predicted for a question of other buckets by the bases. Returns the relative uncertainty that
  // remains: the difference of runs of one configuration, or of the bases' answers.
  Result<double> CorrectByBases(const Question& question, const std::vector<std::uint64_t>& bytes,
                                std::vector<std::int64_t>& lengths) const;
  Result<std::unique_ptr<RecordedRun>> OtherBuckets(const Question& question, double cost_factor, Answer* answer) const;
  // The step with `factor` times the costs of the table.
  Result<std::int64_t> StepAtCosts(const Question& question, Assumptions assume, double factor, ChangedJob& changed,
                                   const Simulator& simulator) const;

  std::unique_ptr<RecordedRun> run_;
  std::vector<std::unique_ptr<RecordedRun>> calibration_;
  InterferenceEstimate interference_;
  std::vector<Base> bases_;  // run_'s first, if it has buckets.
  std::optional<BucketSequence> buckets_;
  CostModel costs_;
  ReductionTimes times_;
  std::vector<std::int64_t> replayed_ns_;
  bool communicates_ = false;  // Whether there is an operation of several ranks.
};

}  // namespace lockstep::replay
