#pragma once
// A small data-parallel job simulated straight into timeline tables and rank
// tables: what the analysis must find is known because it was put in.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/analyze.h"
#include "core/schema.h"
#include "merge/timeline/timeline.h"

namespace lockstep::test {

enum class Moves : std::uint8_t {
  kAtOnce,  // As soon as all have posted.
  kOnlyInWait,
};

// A call of libc in which a training thread is blocked.
struct BlockedCall {
  std::uint8_t kind = schema::BlockedKind::kSleep;
  std::string call = "nanosleep", detail, function = "slow_layer", file = "/job/train.py";  // function "": no stack.
  std::uint32_t line = 32;
};

struct JobSpec {
  int ranks = 4, steps = 60, warmup = 2, buckets = 5;
  bool blocking = false, mark_steps = true;
  Moves moves = Moves::kAtOnce;
  std::uint64_t bucket_bytes = 1'000'000;
  std::int64_t transfer_ns = 400'000;  // Of a bucket.
  std::function<std::int64_t(int step, int bucket)> more_transfer_ns = [](int, int) { return 0; };
  std::int64_t input_ns = 0;                                                    // Opens each step, outside compute.
  std::function<std::int64_t(int rank)> more_input_ns = [](int) { return 0; };  // On top of it.
  std::int64_t clock_error_ns = 500;                                            // Of every rank.
  int ranks_per_node = 64;
  // Compute of a rank in a step, ns. Split evenly over the buckets.
  std::function<std::int64_t(int step, int rank)> compute = [](int, int) { return 40'000'000; };
  std::function<std::int64_t(int rank, int bucket)> more_compute_ns = [](int, int) { return 0; };  // Before a bucket.
  // Of that compute: CPU time and time runnable without a core, as fractions.
  std::function<double(int rank)> cpu_share = [](int) { return 1.0; };
  std::function<double(int rank)> offcpu_share = [](int) { return 0.0; };
  // Of that compute: the time blocked in this call, from the step's begin on, at most that of the first bucket.
  std::function<std::int64_t(int step, int rank)> blocked_ns = [](int, int) { return 0; };
  BlockedCall blocked_in;
  std::uint32_t allowed_cores = 64;
};

struct Job {
  merge::Timeline timeline;
  std::vector<schema::RankTables> ranks;
  std::vector<std::int64_t> step_ns;  // Job step times, warm-up included.

  analysis::AnalyzeOptions Options() const;
  // Fails the test on an error. Without replay: for many runs of which only the naming is asked.
  analysis::Analysis Analyze(bool replay = true) const;
  // Median of the job's steps without warm-up.
  std::int64_t MedianStep(int warmup) const;
  std::int64_t MeanStep(int warmup) const;
};

Job Simulate(const JobSpec& spec);

// Adds a text to the timeline's strings.
std::uint32_t Intern(schema::TimelineTables& tables, std::string_view text);
void AddMeta(schema::TimelineTables& tables, std::string_view key, std::string_view value);
void AddLoss(schema::TimelineTables& tables, std::string_view name, std::int32_t rank, std::uint64_t count);

// Deterministic noise, about normal: mean 0, deviation 1.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed) {}
  double Next();

 private:
  std::uint64_t state_;
};

}  // namespace lockstep::test
