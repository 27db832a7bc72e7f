#pragma once
// Everything any report shows, built once by Analyze() and rendered many times:
// text, JSON and HTML differ in form only. Integer ns and bytes; an empty
// optional is "unknown" (JSON null), never 0.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::analysis {

// The identity: the six terms sum to the length of their window, to the ns.
struct IdentityTerms {
  std::int64_t compute_ns = 0;
  std::int64_t exposed_wait_ns = 0;
  std::int64_t exposed_transfer_ns = 0;
  std::int64_t exposed_unsplit_ns = 0;
  std::int64_t exposed_copy_ns = 0;
  std::int64_t idle_ns = 0;
  std::int64_t Sum() const {
    return compute_ns + exposed_wait_ns + exposed_transfer_ns + exposed_unsplit_ns + exposed_copy_ns + idle_ns;
  }
  std::int64_t ExposedComm() const { return exposed_wait_ns + exposed_transfer_ns + exposed_unsplit_ns; }
};

// One stretch that all ranks recorded.
struct CaptureWindow {
  std::optional<std::int64_t> first_step, last_step;
  std::int64_t span_ns = 0, outside_steps = 0;
  bool cut = false;
};

struct RunFacts {
  std::string run_id, command, job;  // job: the program's short name; "" unknown.
  std::int64_t ranks = 0;            // Ranks with a readable file.
  std::int64_t ranks_expected = 0;
  std::vector<std::int32_t> ranks_missing, ranks_ended_early;
  std::vector<std::int32_t> ranks_left_out;  // Not to be recorded (--ranks).
  std::vector<std::string> endings;          // One sentence per rank that failed: "rank 2 was killed by signal 9".
  std::int64_t nodes = 0;
  std::int64_t steps = 0;  // Complete on every rank, within the window.
  std::int64_t warmup_steps = 0;
  std::int64_t incomplete_steps = 0;
  std::string classes;                                         // "lockstep" or "hta".
  std::optional<std::int64_t> first_step, last_step, span_ns;  // The analysis window.
  std::string merged_with;                                     // The timeline's options; equal: the same ones.
  std::string recording;                                       // What was asked for: "all", "steps 110:310".
  std::vector<CaptureWindow> windows;
  std::int64_t outside_steps = 0;                    // Recorded by some ranks only.
  std::int64_t sharing_ranks = 0, shared_cores = 0;  // "4 ranks share 2 cores"; 0: each has its own.
  std::int64_t gpu_ranks = 0;
  std::vector<std::string> gpu_names;                           // Distinct, of ranks with GPU work.
  std::string cuda_driver_version, cupti_version, nccl_plugin;  // As the sources told; "" unknown.
};

struct Trust {
  std::optional<std::int64_t> clock_error_ns_p50, clock_error_ns_max;
  std::int64_t events = 0, dropped = 0;
  std::int64_t collectives = 0, unmatched_collectives = 0, clock_violations = 0, mismatched_collectives = 0;
  std::optional<double> overhead_fraction, agent_cpu_fraction;
};

struct Summary {
  bool per_step = false;  // true: means over ranks of the median step; false: of the whole window (no steps).
  std::optional<std::int64_t> median_step;                                           // Its index.
  std::optional<std::int64_t> step_ns_median;                                        // Sum of the six terms.
  std::optional<std::int64_t> job_step_ns_median, job_step_ns_p10, job_step_ns_p99;  // max_r end_i - max_r end_(i-1).
  IdentityTerms terms;
  std::int64_t comm_ns = 0, hidden_comm_ns = 0, comm_high_ns = 0, hidden_comm_high_ns = 0;
  std::optional<double> overlap_fraction, overlap_low, overlap_high;
  std::int64_t mpi_other_ns = 0, mpi_io_ns = 0, mpi_rma_ns = 0, input_ns = 0;  // Parts of idle.
  std::int64_t helper_wait_ns = 0;                        // Part of compute (merge/timeline/helper_waits.h).
  std::int64_t late_sender_ns = 0, late_receiver_ns = 0;  // Of all time, see docs/definitions.md.
  std::optional<std::int64_t> cpu_ns, offcpu_ns;
};

struct RankRow {
  std::int32_t rank = -1;
  std::string node;
  std::int64_t span_ns = 0;
  IdentityTerms terms;
  std::int64_t comm_ns = 0, overlap_ns = 0, overlap_high_ns = 0, comm_high_ns = 0, copy_ns = 0;
  std::int64_t mpi_other_ns = 0, mpi_io_ns = 0, mpi_rma_ns = 0, input_ns = 0, helper_wait_ns = 0;
  std::int64_t late_sender_ns = 0, late_receiver_ns = 0;
  std::optional<double> overlap_fraction;
  std::optional<std::int64_t> cpu_ns, offcpu_ns;
  std::optional<double> last_fraction;    // Of the collectives that had a last arriver or a tie.
  std::optional<std::int64_t> late_ns;    // Lower median of arrival minus the instance's lower median arrival.
  std::optional<double> straggler_score;  // median_i of ln(work / median rank's work).
  std::optional<std::pair<double, double>> straggler_interval;  // 95 %.
  std::optional<IdentityTerms> step_terms;                      // Lower median step of this rank.
};

// Time of the training thread in ranges that say what they are for (hooks, lockstep.h);
// where they nest the innermost counts, so they sum to no more than the step.
struct Phases {
  std::int64_t input_ns = 0, forward_ns = 0, backward_ns = 0, optimizer_ns = 0, communication_ns = 0, checkpoint_ns = 0;
  std::int64_t Sum() const {
    return input_ns + forward_ns + backward_ns + optimizer_ns + communication_ns + checkpoint_ns;
  }
};

struct StepCell {
  std::int32_t rank = -1;
  std::int64_t begin_ns = 0, end_ns = 0;  // Rank clock.
  bool complete = false;
  IdentityTerms terms;
  std::int64_t comm_ns = 0, overlap_ns = 0;
  std::int64_t mpi_other_ns = 0, mpi_io_ns = 0, mpi_rma_ns = 0, late_sender_ns = 0, late_receiver_ns = 0;
  std::optional<Phases> phases;  // Empty where nothing said.
};
struct StepRow {
  std::int64_t index = 0;
  bool complete = false, warmup = false;
  std::optional<std::int64_t> step_ns;
  std::vector<StepCell> ranks;
};

struct CollectiveRow {
  std::string op;                   // "all-reduce"
  std::uint64_t comm = 0;           // global_id.
  std::vector<std::int32_t> group;  // World ranks, ascending.
  std::uint64_t bytes = 0;
  std::int64_t count = 0;     // Instances.
  std::int64_t censored = 0;  // Of them, out of transfer and bandwidths.
  std::int64_t grouped = 0;   // Of them, in a kernel with others: out of transfer and bandwidths too.
  std::optional<std::int64_t> transfer_ns_median, wait_ns_median;
  std::optional<double> algbw, busbw;  // Bytes per second.
};

struct ArrivalRow {
  std::int32_t rank = -1;
  std::int64_t last = 0;       // Instances it was the last arriver of.
  std::int64_t ties = 0;       // Instances it took part in whose last arriver is below clock resolution.
  std::int64_t charge_ns = 0;  // Sum of A_c minus the second largest arrival.
};

// Messages from one rank to another; a row of p2p_pairs.
struct P2pPair {
  std::int32_t source = -1, destination = -1;
  std::int64_t messages = 0;
  std::uint64_t bytes = 0;
  std::int64_t matched = 0, unmatched = 0;
  std::int64_t late_sender_ns = 0, late_sender_count = 0;  // The destination waited.
  std::int64_t wrong_order_ns = 0;
  std::int64_t late_receiver_ns = 0, late_receiver_count = 0;  // The source waited.
  std::int64_t below_resolution = 0;
};
struct P2p {
  std::int64_t pair_count = 0;
  P2pPair total;               // Of all pairs.
  std::int64_t unplaced = 0;   // Operations whose partner is not known: in no pair.
  std::vector<P2pPair> pairs;  // The heaviest, by bytes and by waits.
  bool truncated = false;
};

struct Group {
  std::uint64_t comm = 0;
  std::vector<std::int32_t> ranks;
};

// A gradient bucket as the framework made it, and what its reductions took.
struct BucketRow {
  std::uint32_t model = 0, bucket = 0;  // bucket: in launch order.
  std::uint64_t bytes = 0;
  std::string dtype, parameters;  // "" unknown.
  bool rebuilt = false;           // In the order of gradient arrival.
  std::int64_t collectives = 0;   // Instances found for it in the steps that count.
  std::optional<std::int64_t> transfer_ns_median, wait_ns_median;
};
// What a step would take with another cap; from replay.
struct BucketCurvePoint {
  double cap_mb = 0;        // MiB, as DDP's bucket_cap_mb; the largest that gives this bucketing.
  std::size_t buckets = 0;  // How many it makes.
  std::int64_t predicted_step_ns = 0, low_ns = 0, high_ns = 0;  // Median; 95 %.
  bool extrapolated = false;                                    // Some size lies outside of what was measured.
  bool one_bucket = false;                                      // All gradients at once.
};
// A measured size and what the cost table and the line alpha + beta * size say of it.
struct BucketCost {
  std::uint64_t bytes = 0;
  std::int64_t transfer_ns = 0;  // Median.
  std::int64_t samples = 0;
  double spread = 0;      // Robust standard deviation of the logarithm.
  bool doubtful = false;  // Outlier, or impossible.
};
struct Buckets {
  std::vector<BucketRow> rows;              // Empty: nothing said.
  std::optional<std::uint64_t> cap_bytes;   // Of the first model.
  std::int64_t steps = 0, steps_whole = 0;  // Steps looked at; those in which every bucket was found.
  // What follows is from replay; empty where nothing could be replayed.
  std::vector<std::uint64_t> sizes;  // Bytes, in launch order.
  std::string recognised_by;         // "hooks", "sequence"; how `sizes` are known.
  bool exact_sizes = false;          // Sizes of single gradients are known: bucketings are exact.
  std::vector<BucketCost> costs;
  std::optional<double> alpha_ns, beta_ns_per_byte, line_error;       // To explain only.
  std::optional<double> interference_compute, interference_transfer;  // Slowdown while both run; estimated.
  std::optional<double> current_cap_mb;
  std::vector<BucketCurvePoint> curve;       // By cap.
  std::optional<double> recommended_cap_mb;  // Empty: no other is better than the intervals.
  std::uint64_t recommended_cap_bytes = 0, recommended_first_bytes = 0;  // As they were replayed.
  std::optional<std::pair<double, double>> flat_cap_mb;  // Caps that are as good as the recommended one.
  std::string try_it;
};

// Parameters sharded (FSDP and its kind): a unit is gathered before it is used and its gradients scattered after.
struct FsdpUnit {
  std::uint32_t unit = 0;  // In forward order.
  std::uint64_t bytes = 0;
  std::int64_t gather_exposed_ns = 0;  // Median over steps: max(0, all-gather's end - end of the compute before).
  std::int64_t scatter_exposed_ns = 0;
};
struct Fsdp {
  std::vector<FsdpUnit> units;                  // Empty: none recognised.
  std::optional<std::int64_t> scatter_tail_ns;  // Reduce-scatter after the backward pass has ended; median.
};

// What was replayed, and how well that gives back what was recorded.
struct ReplayFacts {
  std::int64_t steps = 0, first_step = 0, last_step = 0;
  std::int64_t measured_step_ns = 0, replayed_step_ns = 0;  // Medians.
  double self_error = 0;                                    // Median of |replayed - measured| / measured.
  std::string sampled;                                      // "40 of 400 steps"; "" all.
  std::vector<std::string> notes;                           // What the replay does not know.
};

// Does communication hide as well as it could? From replay; definitions.md, overlap score.
struct OverlapScore {
  std::int64_t actual_ns = 0;                 // T_act, replayed.
  std::optional<std::int64_t> no_overlap_ns;  // T_noov; empty where it is not seen what waits for what.
  std::int64_t free_comm_ns = 0;              // T_free
  std::int64_t best_ns = 0;                   // T_best
  std::optional<double> efficiency;           // (T_noov - T_act) / (T_noov - T_best); empty where these are equal.
};

// OSDI'25; replay/counterfactual.h.
struct CounterfactualResult {
  double slowdown = 1;                                   // S
  std::vector<std::pair<std::string, double>> by_type;   // S_t: "compute", "host", "communication".
  std::vector<std::pair<std::int32_t, double>> by_rank;  // S_w
  std::optional<double> worst_ranks, last_stage;         // M_W, M_S
  double self_error = 0;                                 // |replayed - measured| / measured.
  bool ranks_sampled = false;                            // by_rank has only those with most work beyond the ordinary.
};

// Where the time of a step goes along what it waited for, across ranks; mean over steps.
struct CriticalShare {
  std::int32_t rank = -1;  // -1: communication between ranks.
  std::string what;        // "compute", "host", "transfer", "input", a range's or a kernel's name.
  std::int64_t ns = 0;     // Per step.
};
// Delay as Scalasca defines it (Boehme et al., ICPP'10): work that a rank does beyond the others and that they
// wait for at the next synchronisation (short-term), or later, by those it made late (long-term).
struct DelayRow {
  std::int32_t rank = -1;
  std::string where;                                 // Name of the range or "" if none encloses it.
  std::int64_t short_term_ns = 0, long_term_ns = 0;  // Of all ranks' waiting, per step.
};

// What the sensors of a rank's GPU said, over the samples that count (docs/trace-format.md, rank_gpus).
struct GpuRow {
  std::int32_t rank = -1;
  std::int64_t device = -1;  // -1 unknown.
  std::string name;          // "" unknown.
  std::int64_t samples = 0, throttled = 0;
  std::optional<std::int64_t> sm_clock_mhz, sm_clock_low_mhz, memory_clock_mhz, power_mw, temperature_c;
  std::uint64_t throttle_reasons = 0;  // NVML's bits.
};

// Why a rank's GPU is slower than the others': of the straggler `cause` clock.
struct GpuEvidence {
  GpuRow gpu;
  std::optional<std::int64_t> others_sm_clock_mhz;  // Lower median of the other ranks' GPUs of this name.
};

struct Straggler {
  std::int32_t rank = -1;
  double score = 0;  // As RankRow.
  std::pair<double, double> interval{0, 0};
  double p_value = 1;
  std::string kind;                // persistent, transient, drifting.
  std::string cause;               // starved, input, clock (of the GPU), compute, waiting (off the CPU by
                                   // itself), unknown.
  std::optional<GpuEvidence> gpu;  // Cause clock.
  std::optional<std::int64_t> saves_ns_per_step;                  // Empty in runs without steps.
  std::int64_t saves_ns = 0;                                      // Per step, or per slice of a run without steps.
  std::pair<std::int64_t, std::int64_t> saves_interval_ns{0, 0};  // 95 %, of saves_ns.
  std::optional<std::int64_t> onset_step;                         // drifting.
  // What replay without it says: of the step, not of the others' waiting. Empty where nothing could be replayed.
  std::optional<std::int64_t> replayed_saves_ns;
  std::optional<double> removed, added;  // replay/counterfactual.h
};

// Rows behind a finding, for --explain.
struct Evidence {
  std::vector<std::string> columns;
  std::vector<std::vector<std::int64_t>> rows;
  std::vector<std::string> names;  // What each row is of; empty if the numbers say it.
};

struct Finding {
  std::string id;        // Stable: "straggler.arrival".
  std::string headline;  // One sentence a manager could read.
  std::string brief;     // The same in a few words, for the list.
  std::string evidence;  // The numbers, with their counts.
  std::string action;    // The flag, the line, the machine.
  std::optional<std::int64_t> saves_ns_per_step;
  std::optional<std::pair<std::int64_t, std::int64_t>> saves_interval_ns;  // 95 %.
  std::optional<double> saves_share;                                       // Of the window, in runs without steps.
  std::string part;              // Of the step, that it prices: two findings of one part overlap. "" by id.
  std::string then;              // What limits the step next: "work of rank 0". "" unknown.
  bool replayed = false;         // The price is a replay's.
  bool upper_bound = false;      // It saves at most that.
  double confidence = 0;         // 0...1
  std::int32_t rank = -1;        // The rank it names, -1 none.
  bool covers_transfer = false;  // Its price contains the exposed transfer, which no other finding may price again.
  Evidence rows;
};

struct LossRow {
  std::string name;
  std::int32_t rank = -1;
  std::uint64_t count = 0;
  bool data_loss = false;
  std::string sentence, remedy, detail;
};

struct Analysis {
  std::string run_dir;
  RunFacts run;
  Trust trust;
  Summary summary;
  std::vector<RankRow> ranks;
  std::vector<StepRow> steps;
  bool steps_truncated = false;
  std::vector<CollectiveRow> collectives;
  std::vector<ArrivalRow> arrivals;
  P2p p2p;
  std::vector<Group> groups;
  Buckets buckets;
  Fsdp fsdp;
  std::optional<ReplayFacts> replay;
  std::optional<OverlapScore> overlap;
  std::optional<CounterfactualResult> counterfactual;
  std::vector<CriticalShare> critical_path;  // Across ranks, largest first.
  std::vector<DelayRow> delays;              // Largest first.
  std::string replay_skipped;                // Why nothing could be replayed; "".
  std::string unrecorded;                    // Communication that no source records, as a verdict; "" none.
  std::vector<Straggler> stragglers;
  std::vector<GpuRow> gpus;       // Those whose sensors were read.
  std::vector<Finding> findings;  // At most five, costliest first.
  // Of GPU ranks: communication on their critical paths, per step; hiding it gains no more. Empty: unknown.
  std::optional<std::int64_t> comm_on_path_ns;
  std::string additivity;            // How the prices combine; "" if there is nothing to add.
  std::string verdict;               // One sentence.
  std::vector<std::string> remarks;  // Further sentences that belong right under it.
  std::vector<LossRow> losses;
  bool wait_only = false;            // Non-blocking communication moved only in Wait: no overlap is claimed.
  bool mostly_posted = true;         // Next to all communication is non-blocking.
  bool suspicious = false;           // Zero is suspicious: something must have been recorded and was not.
  std::vector<std::string> skipped;  // Passes that had no input, with the reason.

  // Exit 3: data was lost, or the input is suspicious.
  bool incomplete() const {
    if (suspicious || !run.ranks_missing.empty() || !run.ranks_ended_early.empty()) return true;
    if (trust.unmatched_collectives > 0 || trust.clock_violations > 0) return true;
    for (const LossRow& loss : losses)
      if (loss.data_loss) return true;
    return false;
  }
};

}  // namespace lockstep::analysis
