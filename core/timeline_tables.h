#pragma once
// Tables of timeline.h5, see core/schema.h for the notation. LS_META, LS_STRINGS
// and LS_STRING_BYTES are those of core/rank_tables.h.

#include "core/rank_tables.h"

// cluster = local + interpolated offset; eps(t) = base + slew * distance to the
// nearer knot. Between knots both are linear; outside, the nearest segment's.
#define LS_CLOCK(X)                                                       \
  X(i32, rank, "1", "rank")                                               \
  X(i64, local_ns, "ns", "knot, rank clock")                              \
  X(i64, offset_ns, "ns", "cluster time minus rank time at the knot")     \
  X(i64, base_error_ns, "ns", "error bound at the knot")                  \
  X(i64, slew_ppb, "1", "error growth away from the knot, ns per second") \
  X(u8, method, "enum", "0 reference 1 same domain 2 bursts 3 corridors 4 none 5 wall clock")

#define LS_TL_COLLECTIVES(X)                                                               \
  X(u64, comm_id, "1", "communicator's global_id")                                         \
  X(u64, seq, "1", "instance key, with start")                                             \
  X(u32, start, "1", "instance key")                                                       \
  X(u8, kind, "enum", "CollectiveKind")                                                    \
  X(u8, mode, "enum", "as in the rank files")                                              \
  X(u64, bytes, "bytes", "whole array S; largest over the members if uneven")              \
  X(u32, expected, "count", "members of the communicator")                                 \
  X(u32, seen, "count", "members whose record was found")                                  \
  X(i64, first_arrival_ns, "ns", "cluster time")                                           \
  X(i64, last_arrival_ns, "ns", "A_c, cluster time")                                       \
  X(i64, end_ns, "ns", "latest end, cluster time")                                         \
  X(i32, last_rank, "1", "last arriver, -1 tie or unknown")                                \
  X(i64, charge_ns, "ns", "A_c minus second largest arrival; 0 on a tie")                  \
  X(i64, transfer_ns, "ns", "lower median of transfer over ranks, -1 unsplit or censored") \
  X(i64, wait_ns, "ns", "lower median of wait over ranks, -1 unsplit")                     \
  X(i64, error_ns, "ns", "largest sum of two members' clock errors")                       \
  X(u8, splits, "bool", "1: a split kind (definitions.md)")                                \
  X(u8, censored, "bool", "1: the end is too uncertain for cost tables")                   \
  X(u8, uneven, "bool", "1: out of cost tables")                                           \
  X(u8, violation, "bool", "1: A_c after some end beyond the clocks' error")               \
  X(u8, mismatch, "bool", "1: members disagree on kind or bytes")                          \
  X(i64, step, "1", "index of the step it began in on its last arriver, -1 none")          \
  X(u32, operations, "count", "operations that share its kernel; above 1: its times are all of theirs")

#define LS_TL_COLLECTIVE_RANKS(X)                                                \
  X(u32, collective, "rows", "row of collectives")                               \
  X(i32, rank, "1", "world rank")                                                \
  X(u32, row, "rows", "row of collectives in the rank's file")                   \
  X(i64, arrival_ns, "ns", "a, cluster time")                                    \
  X(i64, end_low_ns, "ns", "earliest possible end, cluster time")                \
  X(i64, end_high_ns, "ns", "latest possible end, cluster time")                 \
  X(i64, wait_ns, "ns", "A' - a, -1 unsplit")                                    \
  X(i64, transfer_ns, "ns", "e - A', -1 unsplit or censored")                    \
  X(u8, censored, "bool", "1: this rank's end is too uncertain for cost tables") \
  X(i64, step, "1", "index of the step it arrived in, -1 none")

#define LS_TL_STEPS(X)                                                                           \
  X(i64, index, "1", "step number")                                                              \
  X(i64, begin_ns, "ns", "latest begin over ranks, cluster time")                                \
  X(i64, end_ns, "ns", "latest end over ranks, cluster time")                                    \
  X(i64, step_ns, "ns", "max_r end_i - max_r end_(i-1); first: max end - max begin; -1 unknown") \
  X(u32, ranks, "count", "ranks that have it complete")                                          \
  X(u8, complete, "bool", "1: complete on every rank")                                           \
  X(u8, warmup, "bool", "1: kept out of medians")                                                \
  X(u8, source, "enum", "as in the rank files")

#define LS_TERMS(X)                                                                            \
  X(i64, compute_ns, "ns", "U(compute)")                                                       \
  X(i64, exposed_wait_ns, "ns", "exposed communication, waiting for another rank")             \
  X(i64, exposed_transfer_ns, "ns", "exposed communication, transferring")                     \
  X(i64, exposed_unsplit_ns, "ns", "exposed communication that cannot be split")               \
  X(i64, exposed_copy_ns, "ns", "copies outside compute and communication")                    \
  X(i64, idle_ns, "ns", "the rest of the window")                                              \
  X(i64, comm_ns, "ns", "U(communication), certain part")                                      \
  X(i64, overlap_ns, "ns", "communication hidden under compute, certain part")                 \
  X(i64, comm_high_ns, "ns", "U(communication) if censored operations moved from post to end") \
  X(i64, overlap_high_ns, "ns", "hidden communication under the same assumption")              \
  X(i64, copy_ns, "ns", "U(copies)")                                                           \
  X(i64, mpi_other_ns, "ns", "part of idle inside other MPI calls")                            \
  X(i64, mpi_io_ns, "ns", "part of mpi_other in MPI-IO, waits for it included")                \
  X(i64, mpi_rma_ns, "ns", "part of mpi_other in one-sided communication")                     \
  X(i64, late_sender_ns, "ns", "in receives and their waits before the send had begun")        \
  X(i64, late_receiver_ns, "ns", "in sends and their waits before the receive was posted")     \
  X(i64, input_ns, "ns", "part of idle inside ranges marked as input")                         \
  X(i64, helper_wait_ns, "ns", "part of compute: asleep until other threads' collectives end") \
  X(i64, cpu_ns, "ns", "CPU time of the training thread, -1 unknown")                          \
  X(i64, offcpu_ns, "ns", "training thread runnable without a core, -1 unknown")

#define LS_TL_STEP_RANKS(X)                                  \
  X(i64, index, "1", "step number")                          \
  X(i32, rank, "1", "world rank")                            \
  X(i64, begin_ns, "ns", "window begin, rank clock")         \
  X(i64, end_ns, "ns", "window end, rank clock")             \
  X(i64, cluster_end_ns, "ns", "window end, cluster time")   \
  X(u8, complete, "bool", "1: whole step seen on this rank") \
  LS_TERMS(X)

#define LS_TL_RANK_TOTALS(X)                                                      \
  X(i32, rank, "1", "world rank")                                                 \
  X(i64, begin_ns, "ns", "analysis window begin, rank clock")                     \
  X(i64, end_ns, "ns", "analysis window end, rank clock")                         \
  X(i64, span_ns, "ns", "end minus begin, less the gaps between capture windows") \
  LS_TERMS(X)

#define LS_TL_RANKS(X)                                                                                          \
  X(i32, rank, "1", "world rank")                                                                               \
  X(u32, file, "string", "rank file, relative to the run directory")                                            \
  X(u32, node, "string", "host name")                                                                           \
  X(u32, domain, "string", "clock domain")                                                                      \
  X(u8, state, "enum", "0 complete 1 recovered from spool or rings 2 cut short 3 missing 4 left out (--ranks)") \
  X(u8, ended_early, "bool", "1: died or stopped before the others")                                            \
  X(u8, gpu, "bool", "1: has GPU work; its windows and identity are the GPU's")                                 \
  X(u32, allowed_cores, "count", "cores in its affinity mask, 0 unknown")                                       \
  X(u32, allowed_cpus, "string", "its affinity mask as a list, as in 0-3,8; kNone unknown")                     \
  X(u64, events, "count", "rows of event tables")                                                               \
  X(u64, dropped, "count", "records lost")                                                                      \
  X(u64, digest, "1", "checksum of the decoded rank file, 0 not computed")                                      \
  X(i64, app_cpu_ns, "ns", "CPU time of the application's processes, -1 unknown")                               \
  X(i64, agent_cpu_ns, "ns", "CPU time of the agent, -1 unknown")                                               \
  X(i64, profiling_ns, "ns", "time that GPU profiling itself took (overheads), 0 none or unknown")              \
  X(i32, exit_code, "1", "application's exit code, or -signal")

// What every rank recorded: the intersection of the ranks' windows.
#define LS_TL_WINDOWS(X)                                                                      \
  X(i64, begin_ns, "ns", "latest begin over ranks, cluster time")                             \
  X(i64, end_ns, "ns", "earliest end over ranks, cluster time")                               \
  X(i64, first_step, "1", "first step that all ranks recorded, -1 no live steps")             \
  X(i64, end_step, "1", "first step after it, -1 no live steps")                              \
  X(u32, ranks, "count", "ranks that recorded")                                               \
  X(i64, outside_steps, "count", "steps of this window that some but not all ranks recorded") \
  X(u8, cut, "bool", "1: some rank's ended before it was complete")

// Messages between two ranks: the rank x rank matrix, sparse. Waits are of the
// analysis window, by the begin of the call that waited; the rest is of all that
// was recorded.
#define LS_TL_P2P_PAIRS(X)                                                                   \
  X(i32, source_rank, "1", "world rank that sends")                                          \
  X(i32, destination_rank, "1", "world rank that receives")                                  \
  X(u64, messages, "count", "sends; receives where the sender's file is missing")            \
  X(u64, bytes, "bytes", "of these messages")                                                \
  X(u64, matched, "count", "messages whose send and receive were both found")                \
  X(u64, unmatched, "count", "sends and receives without their other half")                  \
  X(i64, late_sender_ns, "ns", "destination waited because the send had not begun")          \
  X(u64, late_sender_count, "count", "calls that did")                                       \
  X(i64, wrong_order_ns, "ns", "part of late_sender: an earlier message was received later") \
  X(i64, late_receiver_ns, "ns", "source waited because the receive was not posted")         \
  X(u64, late_receiver_count, "count", "calls that did")                                     \
  X(u64, below_resolution, "count", "waits of either kind shorter than the clocks' error can tell")

// Time of the training thread inside ranges that say what they are for; where they nest the
// innermost counts, so the rows of a step sum to no more than the step.
#define LS_TL_STEP_PHASES(X)                                                       \
  X(i64, index, "1", "step number, -1 the analysis window")                        \
  X(i32, rank, "1", "world rank")                                                  \
  X(u8, phase, "enum",                                                             \
    "as ranges.category; 128: calls of torch.distributed that no source records, " \
    "also counted in their category")                                              \
  X(i64, phase_ns, "ns", "time in it")

// Of each rank's GPUs, over the samples taken within its steps while the GPU was not idle (all samples,
// if there is none such).
#define LS_TL_RANK_GPUS(X)                                                                             \
  X(i32, rank, "1", "whose")                                                                           \
  X(u16, device, "1", "device ordinal, 65535 unknown")                                                 \
  X(u32, name, "string", "product name, kNone unknown")                                                \
  X(u64, memory_bytes, "bytes", "total memory, 0 unknown")                                             \
  X(u64, samples, "count", "readings of its sensors that count, 0 none")                               \
  X(u32, sm_clock_mhz, "MHz", "multiprocessor clock, lower median, kNone unknown")                     \
  X(u32, sm_clock_low_mhz, "MHz", "lowest, kNone unknown")                                             \
  X(u32, memory_clock_mhz, "MHz", "memory clock, lower median, kNone unknown")                         \
  X(u32, power_mw, "mW", "power drawn, lower median, kNone unknown")                                   \
  X(u32, temperature_c, "degrees Celsius", "highest temperature, kNone unknown")                       \
  X(u64, throttled, "count", "samples in which something lowered its clocks: power, heat, a slowdown") \
  X(u64, throttle_reasons, "1", "what did, as gpu_samples.throttle_reasons")

// Of the lowest rank that has any.
#define LS_TL_GRADIENT_BUCKETS(X)                                     \
  X(i32, rank, "1", "whose")                                          \
  X(u32, model, "id", "n-th wrapped model of the process, from 0")    \
  X(u32, bucket, "id", "position in launch order")                    \
  X(u64, bytes, "bytes", "size")                                      \
  X(u64, cap_bytes, "bytes", "the model's bucket_cap_mb, 0 unknown")  \
  X(u16, dtype, "enum", "DataType")                                   \
  X(u32, parameters, "string", "as in the rank files, kNone unknown") \
  X(u8, rebuilt, "bool", "1: order of gradient arrival, 0: reverse registration order")

#define LS_TL_LOSSES(X)                             \
  X(i32, rank, "1", "rank, -1 the whole run")       \
  X(u32, name, "string", "Loss, see core/loss.def") \
  X(u64, count, "count", "how many")                \
  X(u32, detail, "string", "what exactly, kNone")

#define LS_TIMELINE_TABLES(T)                                                                      \
  T(meta, TlMeta, LS_META, "facts about the run, key and value")                                   \
  T(strings, TlStrings, LS_STRINGS, "interned texts")                                              \
  T(string_bytes, TlStringBytes, LS_STRING_BYTES, "the texts themselves")                          \
  T(ranks, TlRanks, LS_TL_RANKS, "rank files that went in")                                        \
  T(clock, Clock, LS_CLOCK, "per-rank map to cluster time and its error")                          \
  T(collectives, TlCollectives, LS_TL_COLLECTIVES, "matched collective instances, one row each")   \
  T(collective_ranks, TlCollectiveRanks, LS_TL_COLLECTIVE_RANKS, "members of the instances")       \
  T(steps, TlSteps, LS_TL_STEPS, "steps of the job")                                               \
  T(step_ranks, TlStepRanks, LS_TL_STEP_RANKS, "where each step went, per rank")                   \
  T(rank_totals, TlRankTotals, LS_TL_RANK_TOTALS, "the same over the analysis window")             \
  T(windows, TlWindows, LS_TL_WINDOWS, "what all ranks recorded")                                  \
  T(p2p_pairs, TlP2pPairs, LS_TL_P2P_PAIRS, "point-to-point messages between two ranks")           \
  T(step_phases, TlStepPhases, LS_TL_STEP_PHASES, "what the application says it did in each step") \
  T(gradient_buckets, TlGradientBuckets, LS_TL_GRADIENT_BUCKETS, "gradient buckets of DDP models") \
  T(rank_gpus, TlRankGpus, LS_TL_RANK_GPUS, "the ranks' GPUs and what their sensors said")         \
  T(losses, TlLosses, LS_TL_LOSSES, "losses of all ranks and of the merge")
