#pragma once
// Some steps of a run, read for replay. What ranks did in them is the business of its kinds
// (host_run.h: CPU ranks over MPI); questions (what_if.h) are asked through this.

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
#include "core/result.h"
#include "core/schema.h"
#include "merge/timeline/timeline.h"

namespace lockstep::replay {

// How much computing and communicating at the same time slow each other, as measured in a run.
struct InterferenceEstimate {
  Interference value;
  std::pair<double, double> compute_interval{0, 0}, transfer_interval{0, 0};  // 95 %.
  std::size_t samples = 0;  // 0: the run has nothing to estimate it from; then all of it is 0.
};

// A point-to-point message between two ranks that are replayed. Cluster time.
struct RunMessage {
  std::uint32_t from = kNone, to = kNone;  // Positions in RecordedRun::ranks.
  std::uint64_t bytes = 0;                 // As the receiver got them.
  // The sender's post, entry and return of the call that completes it; the same of the receiver's completing call.
  std::int64_t send_begin_ns = 0, send_call_ns = 0, send_end_ns = 0;
  std::int64_t receive_call_ns = 0, receive_end_ns = 0;
};

class RecordedRun {
 public:
  virtual ~RecordedRun() = default;

  std::vector<std::int32_t> ranks;             // Ascending.
  std::size_t job_ranks = 0;                   // That the job had, recorded or not; 0: not known.
  std::vector<std::int64_t> steps;             // Their numbers; consecutive.
  std::vector<std::int64_t> measured_step_ns;  // As the timeline has them.
  std::vector<RunCollective> collectives;      // Those that every member has, ended, within the steps.
  std::vector<RunMessage> messages;            // Of CPU ranks, within the steps; JobOperation::message counts them.
  std::uint64_t left_out = 0;  // Collectives that other ranks lack or that never ended: of fixed length here.
  bool torch = false;          // The job uses PyTorch: its settings can be advised.
  std::vector<std::vector<Gradient>> gradients;  // Of each model, if the run says (gradients.h).
  bool whole_window = false;                     // The run has no steps: all that was recorded is replayed as one.
  std::vector<std::string> notes;                // What the replay does not know or had to guess, in words.

  // Of a rank in `ranks`; kNone if it is not replayed.
  std::uint32_t PositionOf(std::int32_t rank) const {
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
    return at != ranks.end() && *at == rank ? static_cast<std::uint32_t>(at - ranks.begin()) : kNone;
  }

  // With nothing changed it replays to what was recorded.
  virtual Job MakeJob(const JobOptions& options) const = 0;
  Job MakeJob() const { return MakeJob(JobOptions{}); }

  // No network moves bytes faster than this: hosts copy them (10 GB/s).
  virtual double floor_bytes_per_ns() const { return 10; }

  // Data moves for certain only while some thread is inside MPI.
  virtual bool moves_in_calls() const { return false; }

  // `others`: runs of the same job that count as well; two bucketings show more than one.
  virtual InterferenceEstimate EstimateInterference(const std::vector<const RecordedRun*>& others = {}) const = 0;

  // A collective that the first rank begins, and the step in which it does, a position in `steps`; kNone: outside.
  struct Launch {
    std::uint32_t collective, step;
  };
  // Those of the first rank that are replayed, in their order. None if the run has no steps.
  virtual std::vector<Launch> LaunchesOfFirstRank() const = 0;
  // The reductions of one communicator that carry most bytes, if every replayed step has the same
  // sequence of at least one: what DDP and its kind do. Nothing otherwise.
  std::optional<BucketSequence> FindBuckets() const;
  // Every step's reductions replaced by ones of `bytes` (together as many as before), each launched when its last
  // gradient is ready and taking what the costs say, times what that step's own took beyond them. kUnsupported if
  // these know no size at all.
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
};

struct ReadRunOptions {
  std::size_t most_steps = 40;  // Of the longest stretch of usable steps, its last ones.
  // Only steps with these numbers.
  std::int64_t first_step = INT64_MIN, last_step = INT64_MAX;
  unsigned jobs = 0;  // Threads that read ranks.
  // Tables of a rank. Empty: Timeline::ReadRank.
  std::function<Result<schema::RankTables>(std::int32_t rank)> read_rank;
};

// kUnsupported if there is nothing to replay: no steps.
Result<std::unique_ptr<RecordedRun>> ReadRun(const merge::Timeline& timeline, const ReadRunOptions& options = {});

}  // namespace lockstep::replay
