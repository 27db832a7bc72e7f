#pragma once
// Tables of timeline.h5, see core/schema.h for the notation. LS_META, LS_STRINGS
// and LS_STRING_BYTES are those of core/rank_tables.h.

#include "core/rank_tables.h"

// cluster = local + interpolated offset; eps(t) = base + slew * distance to the
// nearer knot. Between knots both are linear; outside, the nearest segment's.
#define LS_CLOCK(X)                                                                  \
  X(i32, rank, Number, Always, "rank")                                               \
  X(i64, local_ns, Moment, Always, "knot, rank clock")                               \
  X(i64, offset_ns, Duration, Always, "cluster time minus rank time at the knot")    \
  X(i64, base_error_ns, Duration, Always, "error bound at the knot")                 \
  X(i64, slew_ppb, Number, Always, "error growth away from the knot, ns per second") \
  X(u8, method, Enum<ClockMethod>, Always, "")

#define LS_TL_COLLECTIVES(X)                                                                               \
  X(u64, comm_id, Number, Always, "communicator's global_id")                                              \
  X(u64, seq, Number, Always, "instance key, with start")                                                  \
  X(u32, start, Number, Always, "instance key")                                                            \
  X(u8, kind, Enum<CollectiveKind>, Always, "")                                                            \
  X(u8, mode, Enum<CollectiveMode>, Always, "")                                                            \
  X(u64, bytes, Bytes, Always, "whole array S; largest over the members if uneven")                        \
  X(u32, expected, Count, Always, "members of the communicator")                                           \
  X(u32, seen, Count, Always, "members whose record was found")                                            \
  X(i64, first_arrival_ns, ClusterMoment, Always, "cluster time")                                          \
  X(i64, last_arrival_ns, ClusterMoment, Always, "A_c, cluster time")                                      \
  X(i64, end_ns, ClusterMoment, Always, "latest end, cluster time")                                        \
  X(i32, last_rank, Number, Unknown(-1, "tie or unknown"), "last arriver")                                 \
  X(i64, charge_ns, Duration, Means(0, "on a tie"), "A_c minus second largest arrival")                    \
  X(i64, transfer_ns, Duration, Unknown(-1, "unsplit or censored"), "lower median of transfer over ranks") \
  X(i64, wait_ns, Duration, Unknown(-1, "unsplit"), "mean of wait over ranks, floored")                    \
  X(i64, error_ns, Duration, Always, "largest sum of two members' clock errors")                           \
  X(u8, splits, Flag, Always, "1: a split kind (definitions.md)")                                          \
  X(u8, censored, Flag, Always, "1: the end is too uncertain for cost tables")                             \
  X(u8, uneven, Flag, Always, "1: out of cost tables")                                                     \
  X(u8, violation, Flag, Always, "1: A_c after some end beyond the clocks' error")                         \
  X(u8, mismatch, Flag, Always, "1: members disagree on kind or bytes")                                    \
  X(i64, step, Number, Unknown(-1, "none"), "index of the step it began in on its last arriver")           \
  X(u32, operations, Count, Always, "operations that share its kernel; above 1: its times are all of theirs")

#define LS_TL_COLLECTIVE_RANKS(X)                                                      \
  X(u32, collective, RowNumber, Always, "row of collectives")                          \
  X(i32, rank, Number, Always, "world rank")                                           \
  X(u32, row, RowNumber, Always, "row of collectives in the rank's file")              \
  X(i64, arrival_ns, ClusterMoment, Always, "a, cluster time")                         \
  X(i64, end_low_ns, ClusterMoment, Always, "earliest possible end, cluster time")     \
  X(i64, end_high_ns, ClusterMoment, Always, "latest possible end, cluster time")      \
  X(i64, wait_ns, Duration, Unknown(-1, "unsplit"), "A' - a")                          \
  X(i64, transfer_ns, Duration, Unknown(-1, "unsplit or censored"), "e - A'")          \
  X(u8, censored, Flag, Always, "1: this rank's end is too uncertain for cost tables") \
  X(i64, step, Number, Unknown(-1, "none"), "index of the step it arrived in")         \
  X(u8, exempt, Number, Always, "1: it waits for nobody; 2: nobody waits for it; 0: also where neither is known")

#define LS_TL_STEPS(X)                                                                        \
  X(i64, index, Number, Always, "step number")                                                \
  X(i64, begin_ns, ClusterMoment, Always, "latest begin over ranks, cluster time")            \
  X(i64, end_ns, ClusterMoment, Always, "latest end over ranks, cluster time")                \
  X(i64, step_ns, Duration, Unknown(-1), "mean over ranks of their windows' length, floored") \
  X(u32, ranks, Count, Always, "ranks that have it complete")                                 \
  X(u8, complete, Flag, Always, "1: complete on every rank")                                  \
  X(u8, warmup, Flag, Always, "1: kept out of medians")                                       \
  X(u8, source, Enum<StepSource>, Always, "")

// The identity: these terms sum to their window. In the order in which they are shown.
#define LS_IDENTITY(X) \
  X(compute_ns)        \
  X(blocked_ns) X(exposed_wait_ns) X(exposed_transfer_ns) X(exposed_unsplit_ns) X(exposed_copy_ns) X(idle_ns)

#define LS_TERMS(X)                                                                                               \
  X(i64, compute_ns, Duration, Always, "U(compute)")                                                              \
  X(i64, exposed_wait_ns, Duration, Always, "exposed communication, waiting for another rank")                    \
  X(i64, exposed_transfer_ns, Duration, Always, "exposed communication, transferring")                            \
  X(i64, exposed_unsplit_ns, Duration, Always, "exposed communication that cannot be split")                      \
  X(i64, exposed_copy_ns, Duration, Always, "copies outside compute and communication")                           \
  X(i64, idle_ns, Duration, Always, "the rest of the window")                                                     \
  X(i64, comm_ns, Duration, Always, "U(communication), certain part")                                             \
  X(i64, overlap_ns, Duration, Always, "communication hidden under compute, certain part")                        \
  X(i64, comm_high_ns, Duration, Always, "U(communication) if censored operations moved from post to end")        \
  X(i64, overlap_high_ns, Duration, Always, "hidden communication under the same assumption")                     \
  X(i64, copy_ns, Duration, Always, "U(copies)")                                                                  \
  X(i64, mpi_other_ns, Duration, Always, "part of idle inside other MPI calls")                                   \
  X(i64, mpi_io_ns, Duration, Always, "part of mpi_other in MPI-IO, waits for it included")                       \
  X(i64, mpi_rma_ns, Duration, Always, "part of mpi_other in one-sided communication")                            \
  X(i64, mpi_setup_ns, Duration, Always, "part of mpi_other in MPI_Init, MPI_Init_thread and MPI_Finalize")       \
  X(i64, late_sender_ns, Duration, Always, "in receives and their waits before the send had begun")               \
  X(i64, late_receiver_ns, Duration, Always, "in sends and their waits before the receive was posted")            \
  X(i64, input_ns, Duration, Always, "part of idle inside ranges marked as input")                                \
  X(i64, helper_wait_ns, Duration, Always,                                                                        \
    "part of exposed communication: asleep until other threads' collectives end")                                 \
  X(i64, message_wait_ns, Duration, Always, "part of exposed wait: for the other half of messages alone")         \
  X(i64, blocked_ns, Duration, Means(0, "none or not recorded"), "blocked outside of communication and input")    \
  X(i64, blocked_sleep_ns, Duration, Always, "part of blocked: asleep")                                           \
  X(i64, blocked_lock_ns, Duration, Always, "part of blocked: lock, condition variable, semaphore")               \
  X(i64, blocked_python_ns, Duration, Always, "part of blocked: Python's lock (GIL)")                             \
  X(i64, blocked_file_ns, Duration, Always, "part of blocked: file")                                              \
  X(i64, blocked_socket_ns, Duration, Always, "part of blocked: socket or pipe")                                  \
  X(i64, blocked_unplaced_ns, Duration, Always, "part of blocked that no recorded call covers, by the CPU clock") \
  X(i64, cpu_ns, Duration, Unknown(-1), "CPU time of the training thread")                                        \
  X(i64, offcpu_ns, Duration, Unknown(-1), "training thread runnable without a core")

#define LS_TL_STEP_RANKS(X)                                                 \
  X(i64, index, Number, Always, "step number")                              \
  X(i32, rank, Number, Always, "world rank")                                \
  X(i64, begin_ns, Moment, Always, "window begin, rank clock")              \
  X(i64, end_ns, Moment, Always, "window end, rank clock")                  \
  X(i64, cluster_end_ns, ClusterMoment, Always, "window end, cluster time") \
  X(u8, complete, Flag, Always, "1: whole step seen on this rank")          \
  LS_TERMS(X)

#define LS_TL_RANK_TOTALS(X)                                                                  \
  X(i32, rank, Number, Always, "world rank")                                                  \
  X(i64, begin_ns, Moment, Always, "analysis window begin, rank clock")                       \
  X(i64, end_ns, Moment, Always, "analysis window end, rank clock")                           \
  X(i64, span_ns, Duration, Always, "end minus begin, less the gaps between capture windows") \
  LS_TERMS(X)

#define LS_TL_RANKS(X)                                                                                           \
  X(i32, rank, Number, Always, "world rank")                                                                     \
  X(u32, file, Text, Always, "rank file, relative to the run directory")                                         \
  X(u32, node, Text, Always, "host name")                                                                        \
  X(u32, domain, Text, Always, "clock domain")                                                                   \
  X(u8, state, Enum<RankState>, Always, "")                                                                      \
  X(u8, ended_early, Flag, Always, "1: died or stopped before the others")                                       \
  X(u8, gpu, Flag, Always, "1: has GPU work; its windows and identity are the GPU's")                            \
  X(u32, allowed_cores, Count, Unknown(0), "cores in its affinity mask")                                         \
  X(u32, allowed_cpus, Text, Unknown(kNone), "its affinity mask as a list, as in 0-3,8")                         \
  X(u64, events, Count, Always, "rows of event tables")                                                          \
  X(u64, dropped, Count, Always, "records lost")                                                                 \
  X(u64, digest, Number, Means(0, "not computed"), "checksum of the decoded rank file")                          \
  X(i64, app_cpu_ns, Duration, Unknown(-1), "CPU time of the application's processes")                           \
  X(i64, agent_cpu_ns, Duration, Unknown(-1), "CPU time of the agent")                                           \
  X(i64, profiling_ns, Duration, Means(0, "none or unknown"), "time that GPU profiling itself took (overheads)") \
  X(i32, exit_code, Number, Unknown(kNoExitCode), "application's exit code, or -signal")

// What every rank recorded: the intersection of the ranks' windows.
#define LS_TL_WINDOWS(X)                                                                            \
  X(i64, begin_ns, ClusterMoment, Always, "latest begin over ranks, cluster time")                  \
  X(i64, end_ns, ClusterMoment, Always, "earliest end over ranks, cluster time")                    \
  X(i64, first_step, Number, Unknown(-1, "no live steps"), "first step that all ranks recorded")    \
  X(i64, end_step, Number, Unknown(-1, "no live steps"), "first step after it")                     \
  X(u32, ranks, Count, Always, "ranks that recorded")                                               \
  X(i64, outside_steps, Count, Always, "steps of this window that some but not all ranks recorded") \
  X(u8, cut, Flag, Always, "1: some rank's ended before it was complete")

// Messages between two ranks: the rank x rank matrix, sparse. Waits are of the
// analysis window, by the begin of the call that waited; the rest is of all that
// was recorded.
#define LS_TL_P2P_PAIRS(X)                                                                               \
  X(i32, source_rank, Number, Always, "world rank that sends")                                           \
  X(i32, destination_rank, Number, Always, "world rank that receives")                                   \
  X(u64, messages, Count, Always, "sends; receives where the sender's file is missing")                  \
  X(u64, bytes, Bytes, Always, "of these messages")                                                      \
  X(u64, matched, Count, Always, "messages whose send and receive were both found")                      \
  X(u64, unmatched, Count, Always, "sends and receives without their other half")                        \
  X(i64, late_sender_ns, Duration, Always, "destination waited because the send had not begun")          \
  X(u64, late_sender_count, Count, Always, "calls that did")                                             \
  X(i64, wrong_order_ns, Duration, Always, "part of late_sender: an earlier message was received later") \
  X(i64, late_receiver_ns, Duration, Always, "source waited because the receive was not posted")         \
  X(u64, late_receiver_count, Count, Always, "calls that did")                                           \
  X(u64, below_resolution, Count, Always, "waits of either kind shorter than the clocks' error can tell")

// Receives that are numbered from another message on than their sends, because the ranks' recording windows differ.
// Other receives of such a channel have no recorded send.
#define LS_TL_MESSAGE_NUMBERS(X)                                        \
  X(i32, source_rank, Number, Always, "world rank that sends")          \
  X(i32, destination_rank, Number, Always, "world rank that receives")  \
  X(u64, comm_id, Number, Always, "communicator's global_id")           \
  X(i32, tag, Number, Always, "message tag")                            \
  X(u64, first, Number, Always, "p2p.seq of the first of the receives") \
  X(u64, messages, Count, Always, "consecutive receives")               \
  X(u64, send, Number, Always, "p2p.seq of the send of the first of them")

// Time of the training thread inside ranges that say what they are for; where they nest the
// innermost counts, so the rows of a step sum to no more than the step.
#define LS_TL_STEP_PHASES(X)                                               \
  X(i64, index, Number, Unknown(-1, "the analysis window"), "step number") \
  X(i32, rank, Number, Always, "world rank")                               \
  X(u8, phase, Enum<Phase>, Always, "")                                    \
  X(i64, phase_ns, Duration, Always, "time in it")

// Of each rank's GPUs, over the samples taken within its steps while the GPU was not idle (all samples,
// if there is none such).
#define LS_TL_RANK_GPUS(X)                                                                                   \
  X(i32, rank, Number, Always, "whose")                                                                      \
  X(u16, device, Number, Unknown(65535), "device ordinal")                                                   \
  X(u32, name, Text, Unknown(kNone), "product name")                                                         \
  X(u64, memory_bytes, Bytes, Unknown(0), "total memory")                                                    \
  X(u64, samples, Count, Means(0, "none"), "readings of its sensors that count")                             \
  X(u32, sm_clock_mhz, Unit("MHz"), Unknown(kNone), "multiprocessor clock, lower median")                    \
  X(u32, sm_clock_low_mhz, Unit("MHz"), Unknown(kNone), "lowest")                                            \
  X(u32, memory_clock_mhz, Unit("MHz"), Unknown(kNone), "memory clock, lower median")                        \
  X(u32, power_mw, Unit("mW"), Unknown(kNone), "power drawn, lower median")                                  \
  X(u32, temperature_c, Unit("degrees Celsius"), Unknown(kNone), "highest temperature")                      \
  X(u64, throttled, Count, Always, "samples in which something lowered its clocks: power, heat, a slowdown") \
  X(u64, throttle_reasons, Number, Always, "what did, as gpu_samples.throttle_reasons")

// Of the lowest rank that has any.
#define LS_TL_GRADIENT_BUCKETS(X)                                        \
  X(i32, rank, Number, Always, "whose")                                  \
  X(u32, model, Id, Always, "n-th wrapped model of the process, from 0") \
  X(u32, bucket, Id, Always, "position in launch order")                 \
  X(u64, bytes, Bytes, Always, "size")                                   \
  X(u64, cap_bytes, Bytes, Unknown(0), "the model's bucket_cap_mb")      \
  X(u16, dtype, Enum<DataType>, Always, "")                              \
  X(u32, parameters, Text, Unknown(kNone), "as in the rank files")       \
  X(u8, rebuilt, Flag, Always, "1: order of gradient arrival, 0: reverse registration order")

#define LS_TL_LOSSES(X)                                      \
  X(i32, rank, Number, Unknown(-1, "the whole run"), "rank") \
  X(u32, name, Text, Always, "Loss, see core/loss.def")      \
  X(u64, count, Count, Always, "how many")                   \
  X(u32, detail, Text, Unknown(kNone, "none"), "what exactly")

#define LS_TIMELINE_TABLES(T)                                                                                          \
  T(meta, TlMeta, LS_META, kFacts | kExported, "facts about the run, key and value")                                   \
  T(strings, TlStrings, LS_STRINGS, kTexts, "interned texts")                                                          \
  T(string_bytes, TlStringBytes, LS_STRING_BYTES, kTexts, "the texts themselves")                                      \
  T(ranks, TlRanks, LS_TL_RANKS, kExported, "rank files that went in")                                                 \
  T(clock, Clock, LS_CLOCK, kExported, "per-rank map to cluster time and its error")                                   \
  T(collectives, TlCollectives, LS_TL_COLLECTIVES, kSharded | kExported, "matched collective instances, one row each") \
  T(collective_ranks, TlCollectiveRanks, LS_TL_COLLECTIVE_RANKS, kSharded | kExported, "members of the instances")     \
  T(steps, TlSteps, LS_TL_STEPS, kExported, "steps of the job")                                                        \
  T(step_ranks, TlStepRanks, LS_TL_STEP_RANKS, kSharded | kExported, "where each step went, per rank")                 \
  T(rank_totals, TlRankTotals, LS_TL_RANK_TOTALS, kExported, "the same over the analysis window")                      \
  T(windows, TlWindows, LS_TL_WINDOWS, kExported, "what all ranks recorded")                                           \
  T(p2p_pairs, TlP2pPairs, LS_TL_P2P_PAIRS, kSharded | kExported, "point-to-point messages between two ranks")         \
  T(message_numbers, TlMessageNumbers, LS_TL_MESSAGE_NUMBERS, kExported,                                               \
    "sends of receives that the ranks number differently")                                                             \
  T(step_phases, TlStepPhases, LS_TL_STEP_PHASES, kSharded | kExported,                                                \
    "what the application says it did in each step")                                                                   \
  T(gradient_buckets, TlGradientBuckets, LS_TL_GRADIENT_BUCKETS, kExported, "gradient buckets of DDP models")          \
  T(rank_gpus, TlRankGpus, LS_TL_RANK_GPUS, kExported, "the ranks' GPUs and what their sensors said")                  \
  T(losses, TlLosses, LS_TL_LOSSES, kExported, "losses of all ranks and of the merge")
