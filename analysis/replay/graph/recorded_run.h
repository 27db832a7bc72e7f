#pragma once
// Some steps of a run, read for replay. Its derived classes contain what the ranks did (host_run.h: CPU ranks over
// MPI); questions (what_if.h) use this interface.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/replay/graph/bucket_rule.h"
#include "analysis/replay/graph/cost_model.h"
#include "analysis/replay/graph/job.h"
#include "analysis/replay/graph/rebucket.h"
#include "analysis/rules/replay.h"
#include "core/result.h"
#include "core/schema.h"
#include "merge/timeline/timeline.h"

namespace lockstep::replay {

// How much computing and communicating at the same time slow each other, as measured in a run.
struct InterferenceEstimate {
  Interference value;
  std::pair<double, double> compute_interval{0, 0}, transfer_interval{0, 0};  // 95 %.
  // Where nothing moved beside work: as large as it may be, if both take turns on the cores that the ranks have.
  Interference possible;
  std::size_t samples = 0;  // 0: the run contains nothing from which to estimate it, and all values are 0.
};

// A point-to-point message between two ranks that are replayed. Cluster time.
struct RunMessage {
  std::uint32_t from = kNone, to = kNone;  // Indices in RecordedRun::ranks.
  std::uint64_t bytes = 0;                 // The bytes that the receiver got.
  // The sender's post, entry and return of the call that completes it; the same of the receiver.
  std::int64_t send_begin_ns = 0, send_call_ns = 0, send_end_ns = 0;
  std::int64_t receive_begin_ns = 0, receive_call_ns = 0, receive_end_ns = 0;
};

// A collective of all ranks that says what others of its communicator would take: one outside of the replayed steps, or
// of few bytes wherever it is.
struct TransferBeside {
  std::uint64_t comm = 0;  // comm_id
  CollectiveKind kind{};
  std::uint64_t bytes = 0;
  std::int64_t transfer_ns = 0;
};

struct UnitCollectives;  // units.h

class RecordedRun {
 public:
  virtual ~RecordedRun() = default;

  std::vector<std::int32_t> ranks;             // Ascending.
  std::size_t job_ranks = 0;                   // The size of the job, recorded or not; 0: unknown.
  std::vector<std::int64_t> steps;             // Their numbers, which are consecutive.
  std::vector<std::int64_t> measured_step_ns;  // From the timeline.
  // Of each step that Comparable() keeps: how many of the run's steps it stands for, those whose length is nearest to
  // its own. So means are those of all steps that count, also where the long ones are rarer or more frequent among the
  // replayed ones. Empty: all steps that count are replayed.
  std::vector<double> step_weights;
  std::vector<RunCollective> collectives;  // Those with all members, ended, within the steps.
  std::vector<TransferBeside> beside;
  std::vector<RunMessage> messages;  // For CPU ranks, within the steps; JobOperation::message is an index here.
  std::uint64_t left_out = 0;        // Collectives that other ranks lack or that never ended: they have a fixed length.
  bool torch = false;                // The job uses PyTorch: its settings can be advised.
  std::vector<std::vector<Gradient>> gradients;  // For each model, if the run contains them (gradients.h).
  bool whole_window = false;                     // The run has no steps: everything recorded is replayed as one.
  std::vector<std::string> notes;                // What the replay does not know or had to estimate, as text.

  // The index of a rank in `ranks`; kNone if it is not replayed.
  std::uint32_t PositionOf(std::int32_t rank) const {
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
    return at != ranks.end() && *at == rank ? static_cast<std::uint32_t>(at - ranks.begin()) : kNone;
  }

  // Without changes it replays to the recorded times.
  virtual Job MakeJob(const JobOptions& options) const = 0;
  Job MakeJob() const { return MakeJob(JobOptions{}); }

  // No network that is asked about is faster.
  virtual double floor_bytes_per_ns() const { return rules::kHostLinkBytesPerNs; }

  // What the collectives of few bytes of a communicator take, whatever they are; median. 0: there are none.
  std::int64_t LatencyNs(std::uint64_t comm) const;

  // Whether it is certain only inside MPI calls that data moves.
  virtual bool moves_in_calls() const { return false; }

  // `others`: runs of the same job to include; two bucketings contain more information than one.
  virtual InterferenceEstimate EstimateInterference(const std::vector<const RecordedRun*>& others = {}) const = 0;

  // A collective that the first rank begins, and the index in `steps` of the step in which it does; kNone: outside.
  struct Launch {
    std::uint32_t collective, step;
  };
  // The first rank's replayed collectives, in order. Empty if the run has no steps.
  virtual std::vector<Launch> LaunchesOfFirstRank() const = 0;
  // For each of the buckets' collectives: which part of its transfer would be its own if those that a rank has under
  // way beside each other shared the time evenly; median over ranks. Empty: all of it, as they take turns.
  virtual std::vector<double> PartsOfTime(const BucketSequence&) const { return {}; }
  // The reductions of one communicator with the most bytes, if every replayed step has the same sequence of at least
  // one, as with DDP. Otherwise nothing; so where units of sharded parameters are what is reduced (units.h).
  std::optional<BucketSequence> FindBuckets() const;
  // Replaces every step's reductions by ones of `bytes` (with the same sum), each launched when its last gradient is
  // ready. Their durations are those of the costs, times the factor by which that step's own reductions exceeded the
  // costs. kUnsupported if the costs contain no size.
  Result<std::unique_ptr<RecordedRun>> Rebucket(const BucketSequence& buckets, const std::vector<std::uint64_t>& bytes,
                                                const CostModel& costs, const ReductionTimes& times) const;

 protected:
  // A copy whose ranks launch bytes.size() new reductions in each step, in place of those of `buckets`: step by step,
  // `collectives` from `first_new` on.
  virtual std::unique_ptr<RecordedRun> WithReductions(const BucketSequence& buckets,
                                                      const std::vector<std::uint64_t>& bytes,
                                                      std::uint32_t first_new) const = 0;
  RecordedRun() = default;
  RecordedRun(const RecordedRun&) = default;
  RecordedRun& operator=(const RecordedRun&) = default;

 private:
  std::optional<BucketSequence> BucketsOf(const UnitCollectives& units, std::uint64_t more_than) const;
};

// Mean over steps of values that Comparable() keeps one of for each step, by step_weights; floored.
std::int64_t MeanStep(const RecordedRun& run, const std::vector<std::int64_t>& by_step);

struct ReadRunOptions {
  std::size_t most_steps = rules::kReplayMostSteps;  // The last ones of the longest sequence of usable steps.
  // Uses only steps with these numbers.
  std::int64_t first_step = INT64_MIN, last_step = INT64_MAX;
  unsigned jobs = 0;  // Threads that read ranks.
  // Of a GPU rank with more rows only those around the steps are read.
  std::uint64_t most_rows = rules::kReplayWholeRankRows;
  // Reads the tables of a rank. Empty: Timeline::ReadRank.
  std::function<Result<schema::RankTables>(std::int32_t rank)> read_rank;
};

// kUnsupported if there is nothing to replay: no steps.
Result<std::unique_ptr<RecordedRun>> ReadRun(const merge::Timeline& timeline, const ReadRunOptions& options = {});

}  // namespace lockstep::replay
