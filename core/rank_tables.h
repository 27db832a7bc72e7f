#pragma once
// Tables of a rank file (rank-00005.h5), see core/schema.h for the notation.
// Times are nanoseconds of the rank clock unless the description says else.

#define LS_META(X)                              \
  X(u32, key, Text, Always, "name of the fact") \
  X(u32, value, Text, Always, "its value as text")

#define LS_STRINGS(X)                                                           \
  X(u64, offset_bytes, Bytes, Always, "first byte of the text in string_bytes") \
  X(u32, length_bytes, Bytes, Always, "length of the text, UTF-8")

#define LS_STRING_BYTES(X) X(u8, value, Number, Always, "all texts one after the other")

#define LS_PROCESSES(X)                                                           \
  X(u32, process, Id, Always, "process within this slot, in order of appearance") \
  X(i64, pid, Number, Always, "process id in its own namespace")                  \
  X(i64, parent_pid, Number, Always, "parent's process id")                       \
  X(u32, exe, Text, Always, "executable")                                         \
  X(i64, begin_ns, Moment, Always, "first use of a source")                       \
  X(i64, end_ns, Moment, Unknown(kNoTime, "if unknown"), "last sign of life")     \
  X(i32, world_rank, Number, Unknown(-1), "rank in the job")                      \
  X(u8, rank_source, Enum<RankSource>, Always, "where world_rank came from")      \
  X(u8, ended, Enum<ProcessEnd>, Always, "")                                      \
  X(i32, end_code, Number, Always, "exit code or signal number")                  \
  X(u8, mpi_thread_level, Enum<MpiThreadLevel>, Unknown(255, "no MPI"), "")

#define LS_THREADS(X)                                                      \
  X(u32, thread, Id, Always, "thread within this file")                    \
  X(u32, process, Id, Always, "row of processes")                          \
  X(i64, tid, Number, Always, "kernel thread id")                          \
  X(u32, name, Text, Always, "thread name")                                \
  X(i64, begin_ns, Moment, Always, "first record")                         \
  X(i64, end_ns, Moment, Always, "last record")                            \
  X(u64, records, Count, Always, "records committed by this thread")       \
  X(u64, dropped, Count, Always, "records lost because its ring was full") \
  X(u8, training, Flag, Always,                                            \
    "1 for the training thread: marks steps; else communicates while main sleeps; else main")

#define LS_COMMS(X)                                                                                \
  X(u32, comm, Id, Always, "communicator within this file")                                        \
  X(u64, global_id, Number, Means(0, "unidentified"), "same value on every member rank")           \
  X(u64, parent_id, Number, Means(0, "none"), "global_id of the communicator it was made from")    \
  X(u32, size, Count, Always, "members (remote group not counted)")                                \
  X(i32, rank, Number, Always, "this rank's rank in it")                                           \
  X(u8, kind, Enum<CommKind>, Always, "")                                                          \
  X(u8, unidentified, Flag, Always, "1: cannot be matched across ranks (spawn, accept)")           \
  X(i32, first_world_rank, Number, Unknown(-1), "world rank of member 0")                          \
  X(i32, stride, Number, Always, "member i is first_world_rank + i * stride; 0: see comm_members") \
  X(u32, name, Text, Always, "name given by the application or by Lockstep")                       \
  X(i64, begin_ns, Moment, Always, "creation")                                                     \
  X(i64, end_ns, Moment, Unknown(kNoTime, "if never"), "free")                                     \
  X(u8, identity, Enum<CommIdentity>, Always, "")

#define LS_COMM_MEMBERS(X)                              \
  X(u32, comm, Id, Always, "row of comms")              \
  X(u32, comm_rank, Number, Always, "rank within comm") \
  X(i32, world_rank, Number, Always, "rank in the job")

#define LS_MPI_CALLS(X)                                                                                   \
  X(i64, begin_ns, Moment, Always, "entry")                                                               \
  X(i64, duration_ns, Duration, Always, "return minus entry")                                             \
  X(u32, thread, Id, Always, "row of threads")                                                            \
  X(u16, op, Enum<MpiOp>, Always, "MPI function")                                                         \
  X(u32, comm, Id, Unknown(kNone, "for calls without communicator"), "row of comms")                      \
  X(u64, bytes, Bytes, Always, "see core/mpi_ops.def; number of requests for completion calls")           \
  X(i32, peer, Number, Unknown(-1, "none, -2 any source"), "destination, source or root in comm's ranks") \
  X(i32, tag, Number, Unknown(-1, "none, -2 any tag"), "tag")                                             \
  X(u32, count, Count, Always, "calls in this row: above 1 only for coalesced unsuccessful polls")        \
  X(u8, outcome, Enum<CallOutcome>, Always, "")

#define LS_COLLECTIVES(X)                                                                                              \
  X(u32, comm, Id, Always, "row of comms")                                                                             \
  X(u64, seq, Number, Always, "number of this collective on comm; persistent: initialisation's number")                \
  X(u32, start, Number, Means(0, "otherwise"), "n-th start of a persistent collective from 1")                         \
  X(u8, kind, Enum<CollectiveKind>, Always, "")                                                                        \
  X(u8, mode, Enum<CollectiveMode>, Always, "")                                                                        \
  X(u8, uneven, Number, Always,                                                                                        \
    "bits: 1 members' byte counts may differ (v-variants), 2 this one gives the others nothing, 4 it takes nothing")   \
  X(u32, thread, Id, Always, "row of threads that called or posted")                                                   \
  X(i64, begin_ns, Moment, Always, "arrival: entry, post, or GPU kernel start")                                        \
  X(i64, post_end_ns, Moment, Always, "return of the posting call; the end when blocking")                             \
  X(i64, last_incomplete_ns, Moment, Unknown(kNoTime, "none"), "return of the last unsuccessful test that covered it") \
  X(i64, wait_begin_ns, Moment, Unknown(kNoTime, "never completed"),                                                   \
    "entry of the completing call; begin_ns when blocking")                                                            \
  X(i64, end_ns, Moment, Unknown(kNoTime, "never completed"), "return of the completing call or kernel end")           \
  X(u64, bytes, Bytes, Always, "whole array S as in definitions.md (all-gather: received; reduce-scatter: sent)")      \
  X(u64, count, Count, Always, "elements in bytes")                                                                    \
  X(u16, dtype, Enum<DataType>, Always, "")                                                                            \
  X(i32, root, Number, Unknown(-1, "none"), "root in comm's ranks")                                                    \
  X(u32, call, RowNumber, Unknown(kNone, "none"), "row of mpi_calls that posted it")                                   \
  X(u32, kernel, RowNumber, Unknown(kNone, "none"), "row of kernels that carried it")                                  \
  X(u32, kernel_operations, Count, Means(0, "no kernel"), "operations that share that kernel: 1 alone")                \
  X(i64, enqueue_begin_ns, Moment, Unknown(kNoTime), "GPU collectives: entry of the host call that enqueued it")       \
  X(u8, reduction, Enum<Reduction>, Always, "")                                                                        \
  X(u32, algorithm, Text, Unknown(kNone), "NCCL's algorithm")                                                          \
  X(u32, protocol, Text, Unknown(kNone), "NCCL's protocol")                                                            \
  X(u16, channels, Count, Unknown(0), "NCCL channels")                                                                 \
  X(u64, buffer, Number, Unknown(0), "address sent from")                                                              \
  X(u32, caller, RowNumber, Unknown(kNone), "row of stacks: what called it (--stacks calls)")                          \
  X(u64, user_tag, Number, Unknown(0), "what the caller marked the call with (NCCL's userProfilerTag)")

#define LS_P2P(X)                                                                                                      \
  X(u32, comm, Id, Always, "row of comms")                                                                             \
  X(u8, direction, Enum<Direction>, Always, "")                                                                        \
  X(u8, mode, Enum<CollectiveMode>, Always, "")                                                                        \
  X(i32, peer, Number, Unknown(-1, "none or unknown"), "partner in comm's ranks, from the status for wildcards")       \
  X(i32, peer_world_rank, Number, Unknown(-1), "partner's world rank")                                                 \
  X(i32, tag, Number, Always, "tag, from the status for wildcards")                                                    \
  X(u64, seq, Number, Always,                                                                                          \
    "k-th send, or k-th matched receive, of (comm, source, destination, tag); partitioned: start k of the n-th, from " \
    "1, n * 2^32 + k")                                                                                                 \
  X(u32, thread, Id, Always, "row of threads that called or posted")                                                   \
  X(i64, begin_ns, Moment, Always, "entry or post")                                                                    \
  X(i64, post_end_ns, Moment, Always, "return of the posting call; the end when blocking")                             \
  X(i64, last_incomplete_ns, Moment, Unknown(kNoTime, "none"), "return of the last unsuccessful test that covered it") \
  X(i64, wait_begin_ns, Moment, Unknown(kNoTime, "never completed"),                                                   \
    "entry of the completing call; begin_ns when blocking")                                                            \
  X(i64, end_ns, Moment, Unknown(kNoTime, "never completed"), "return of the completing call")                         \
  X(u64, bytes, Bytes, Always, "bytes sent, or received as the status says")                                           \
  X(u8, outcome, Enum<RequestOutcome>, Always, "")                                                                     \
  X(u32, call, RowNumber, Unknown(kNone, "none"), "row of mpi_calls that posted it")                                   \
  X(u32, kernel, RowNumber, Unknown(kNone, "none"), "row of kernels that carried it")                                  \
  X(u32, caller, RowNumber, Unknown(kNone), "row of stacks: what called it (--stacks calls)")                          \
  X(u64, user_tag, Number, Unknown(0), "what the caller marked the call with (NCCL's userProfilerTag)")

#define LS_MPI_REQUESTS(X)                                                                           \
  X(u16, op, Enum<MpiOp>, Always, "MPI function that posted it")                                     \
  X(u32, comm, Id, Unknown(kNone), "row of comms the file or window was made on")                    \
  X(u32, thread, Id, Always, "row of threads that posted")                                           \
  X(u32, wait_thread, Id, Unknown(kNone, "never completed"), "row of threads that completed it")     \
  X(i64, begin_ns, Moment, Always, "post")                                                           \
  X(i64, post_end_ns, Moment, Always, "return of the posting call")                                  \
  X(i64, wait_begin_ns, Moment, Unknown(kNoTime, "never completed"), "entry of the completing call") \
  X(i64, end_ns, Moment, Unknown(kNoTime, "never completed"), "return of the completing call")       \
  X(u64, bytes, Bytes, Always, "as mpi_calls.bytes of the post")                                     \
  X(i32, peer, Number, Unknown(-1, "none"), "RMA target in the window's ranks")                      \
  X(u8, outcome, Enum<RequestOutcome>, Always, "")

#define LS_RANGES(X)                                                                                              \
  X(i64, begin_ns, Moment, Always, "push, start or mark")                                                         \
  X(i64, duration_ns, Duration, Always, "0 for marks")                                                            \
  X(u32, thread, Id, Always, "row of threads")                                                                    \
  X(u32, name, Text, Always, "range name")                                                                        \
  X(u32, domain, Text, Unknown(kNone, "default"), "NVTX domain or source module")                                 \
  X(u8, source, Enum<RangeSource>, Always, "")                                                                    \
  X(u8, kind, Enum<RangeKind>, Always, "")                                                                        \
  X(u8, category, Enum<Category>, Always, "")                                                                     \
  X(u16, depth, Number, Means(0, "outermost"), "nesting depth on its thread")                                     \
  X(u8, open, Flag, Always, "1: never closed; duration reaches the last sign of life")                            \
  X(i64, payload, Number, Means(0, "none"), "number given with it; the bits of a double if payload_kind says so") \
  X(u8, payload_kind, Enum<PayloadKind>, Always, "")                                                              \
  X(u32, category_id, Id, Means(0, "none"), "NVTX category of its domain; range_categories has its name")

// NVTX categories that the application named.
#define LS_RANGE_CATEGORIES(X)                             \
  X(u32, domain, Text, Always, "as ranges.domain")         \
  X(u32, category_id, Id, Always, "as ranges.category_id") \
  X(u32, name, Text, Always, "name")

#define LS_KERNELS(X)                                                                         \
  X(i64, begin_ns, Moment, Always, "start on the GPU")                                        \
  X(i64, duration_ns, Duration, Always, "end minus start")                                    \
  X(u16, device, Number, Always, "device ordinal")                                            \
  X(u32, context, Number, Unknown(kNone), "context id")                                       \
  X(u32, stream, Number, Unknown(kNone), "stream id within the context")                      \
  X(u64, correlation, Number, Means(0, "none"), "same value as the api row that launched it") \
  X(u32, name, Text, Always, "kernel name, demangled")                                        \
  X(u32, shape, RowNumber, Unknown(kNone, "none"), "row of kernel_shapes")                    \
  X(u8, work, Enum<Work>, Always, "")                                                         \
  X(u8, work_rule, Enum<WorkRule>, Always, "how work was decided")                            \
  X(u64, graph_node, Number, Means(0, "none"), "CUDA graph node id")                          \
  X(u8, vendor, Enum<Vendor>, Always, "")

#define LS_KERNEL_SHAPES(X)                                                   \
  X(i32, grid_x, Number, Always, "blocks in x")                               \
  X(i32, grid_y, Number, Always, "blocks in y")                               \
  X(i32, grid_z, Number, Always, "blocks in z")                               \
  X(i32, block_x, Number, Always, "threads in x")                             \
  X(i32, block_y, Number, Always, "threads in y")                             \
  X(i32, block_z, Number, Always, "threads in z")                             \
  X(u32, registers_per_thread, Number, Always, "registers")                   \
  X(u32, static_shared_bytes, Bytes, Always, "static shared memory")          \
  X(u32, dynamic_shared_bytes, Bytes, Always, "dynamic shared memory")        \
  X(u32, cluster_size, Number, Means(0, "none"), "thread blocks per cluster") \
  X(i32, occupancy_percent, Number, Unknown(-1), "estimated achieved occupancy in percent")

#define LS_COPIES(X)                                                                          \
  X(i64, begin_ns, Moment, Always, "start on the GPU")                                        \
  X(i64, duration_ns, Duration, Always, "end minus start")                                    \
  X(u16, device, Number, Always, "device ordinal")                                            \
  X(u32, context, Number, Unknown(kNone), "context id")                                       \
  X(u32, stream, Number, Unknown(kNone), "stream id")                                         \
  X(u64, correlation, Number, Means(0, "none"), "same value as the api row that launched it") \
  X(u8, kind, Enum<CopyKind>, Always, "")                                                     \
  X(u64, bytes, Bytes, Always, "bytes moved or set")                                          \
  X(i32, source_device, Number, Unknown(-1, "host or unknown"), "device read")                \
  X(i32, destination_device, Number, Unknown(-1, "host or unknown"), "device written")        \
  X(u8, asynchronous, Flag, Always, "1 for the Async calls")                                  \
  X(u8, vendor, Enum<Vendor>, Always, "")                                                     \
  X(u8, host_memory, Enum<HostMemory>, Always, "the host's side")

// Devices that this rank used or that the trace describes.
#define LS_DEVICES(X)                                               \
  X(u16, device, Number, Always, "device ordinal")                  \
  X(u32, name, Text, Unknown(kNone), "product name")                \
  X(u64, memory_bytes, Bytes, Unknown(0), "total memory")           \
  X(u32, sm_count, Count, Unknown(0), "multiprocessors")            \
  X(u32, max_threads_per_sm, Count, Unknown(0), "resident threads") \
  X(u16, compute_major, Number, Unknown(0), "compute capability")   \
  X(u16, compute_minor, Number, Always, "compute capability")       \
  X(u8, vendor, Enum<Vendor>, Always, "")

#define LS_SYNC(X)                                                                                                   \
  X(i64, begin_ns, Moment, Always, "start")                                                                          \
  X(i64, duration_ns, Duration, Always, "end minus start")                                                           \
  X(u8, kind, Enum<SyncKind>, Always, "")                                                                            \
  X(u16, device, Number, Always, "device ordinal")                                                                   \
  X(u32, context, Number, Unknown(kNone), "context id")                                                              \
  X(u32, stream, Number, Unknown(kNone, "none"), "stream that waits or is waited for")                               \
  X(u64, event, Number, Means(0, "none"), "event id")                                                                \
  X(u64, correlation, Number, Means(0, "none"), "same value as the api row")                                         \
  X(u8, vendor, Enum<Vendor>, Always, "")                                                                            \
  X(u64, record_correlation, Number, Unknown(0), "kind 1 and 2: correlation of the event record that is waited for") \
  X(u32, record_stream, Number, Unknown(kNone), "kind 1 and 2: stream of that event record")

#define LS_API(X)                                                                   \
  X(i64, begin_ns, Moment, Always, "entry")                                         \
  X(i64, duration_ns, Duration, Always, "return minus entry")                       \
  X(u32, thread, Id, Always, "row of threads")                                      \
  X(u32, name, Text, Always, "function")                                            \
  X(u8, kind, Enum<ApiKind>, Always, "")                                            \
  X(u64, correlation, Number, Means(0, "none"), "ties it to kernels, copies, sync") \
  X(i32, result, Number, Always, "return code")                                     \
  X(u8, vendor, Enum<Vendor>, Always, "")

#define LS_GPU_MEMORY(X)                                             \
  X(i64, time_ns, Moment, Always, "when")                            \
  X(u8, kind, Enum<MemoryKind>, Always, "")                          \
  X(u16, device, Number, Means(65535, "the host"), "device ordinal") \
  X(u64, address, Number, Means(0, "for samples"), "address")        \
  X(i64, bytes, Bytes, Always, "size of the block")                  \
  X(u64, allocated_bytes, Bytes, Unknown(0), "allocated after it")   \
  X(u64, reserved_bytes, Bytes, Unknown(0), "reserved after it")     \
  X(u32, name, Text, Unknown(kNone, "none"), "allocator")

// Readings of the GPU's own sensors, taken on the host at most ten times a second.
#define LS_GPU_SAMPLES(X)                                                                                       \
  X(i64, time_ns, Moment, Always, "when")                                                                       \
  X(u16, device, Number, Unknown(65535), "device ordinal")                                                      \
  X(u32, sm_clock_mhz, Unit("MHz"), Unknown(kNone), "multiprocessor clock")                                     \
  X(u32, memory_clock_mhz, Unit("MHz"), Unknown(kNone), "memory clock")                                         \
  X(u32, power_mw, Unit("mW"), Unknown(kNone), "power drawn")                                                   \
  X(u32, temperature_c, Unit("degrees Celsius"), Unknown(kNone), "temperature")                                 \
  X(u32, utilization_percent, Unit("percent"), Unknown(kNone), "share of the last sample period with a kernel") \
  X(u64, throttle_reasons, Number, Means(0, "none or unknown"),                                                 \
    "why clocks are low, NVML's bits: 1 idle 2 application setting 4 power cap 8 hardware slowdown 32 thermal " \
    "(software) 64 thermal (hardware) 128 power brake")                                                         \
  X(u8, vendor, Enum<Vendor>, Always, "")

// Time that the profiling library or the driver's lazy work took, so that the cost of recording is known.
#define LS_OVERHEADS(X)                                                      \
  X(i64, begin_ns, Moment, Always, "begin")                                  \
  X(i64, duration_ns, Duration, Always, "end minus begin")                   \
  X(u32, thread, Id, Unknown(kNone, "none of a thread's"), "row of threads") \
  X(u8, kind, Enum<OverheadKind>, Always, "")                                \
  X(u8, vendor, Enum<Vendor>, Always, "")

#define LS_STEPS(X)                                                                          \
  X(i64, index, Number, Always, "step number, equal on all ranks")                           \
  X(i64, begin_ns, Moment, Always, "boundary that opened it")                                \
  X(i64, end_ns, Moment, Always, "boundary that closed it; last sign of life if incomplete") \
  X(u8, source, Enum<StepSource>, Always, "")                                                \
  X(u8, complete, Flag, Always, "0: cut short by the window, the end or a death")            \
  X(u8, warmup, Flag, Always, "1: not representative (first steps)")                         \
  X(u32, thread, Id, Unknown(kNone, "none"), "row of threads that marked it")                \
  X(i64, cpu_ns, Duration, Unknown(-1), "CPU time of that thread within the step")           \
  X(i64, others_cpu_ns, Duration, Unknown(-1), "CPU time of its process's other threads, to a tick of the kernel each")

// When this rank recorded. Rows do not overlap; outside them only identities were counted.
#define LS_WINDOWS(X)                                                           \
  X(i64, begin_ns, Moment, Always, "recording went on")                         \
  X(i64, end_ns, Moment, Always, "recording went off, or last sign of life")    \
  X(i64, first_step, Number, Unknown(-1, "no live steps"), "first step in it")  \
  X(i64, end_step, Number, Unknown(-1, "no live steps"), "first step after it") \
  X(u8, begin_cause, Enum<WindowCause>, Always, "")                             \
  X(u8, end_cause, Enum<WindowCause>, Always, "")                               \
  X(u8, cut, Flag, Always, "1: ended before it was complete")

// Gradient buckets as the framework says they are (PyTorch: DDP's logging data after its second step).
#define LS_GRADIENT_BUCKETS(X)                                                                           \
  X(u32, model, Id, Always, "n-th wrapped model of the process, from 0")                                 \
  X(u32, bucket, Id, Always, "position in launch order")                                                 \
  X(u64, bytes, Bytes, Always, "size")                                                                   \
  X(u64, cap_bytes, Bytes, Unknown(0), "the model's bucket_cap_mb")                                      \
  X(u16, dtype, Enum<DataType>, Always, "")                                                              \
  X(u32, parameters, Text, Unknown(kNone), "indices of its parameters in registration order, \"3 2 1\"") \
  X(u8, rebuilt, Flag, Always, "1: order of gradient arrival, 0: reverse registration order")

// Calls of libc in which the training thread of a rank was blocked for 20 us or more.
#define LS_BLOCKED(X)                                                                                           \
  X(i64, begin_ns, Moment, Always, "entry")                                                                     \
  X(i64, duration_ns, Duration, Always, "return minus entry")                                                   \
  X(u32, thread, Id, Always, "row of threads that was blocked")                                                 \
  X(u8, kind, Enum<BlockedKind>, Always, "")                                                                    \
  X(u32, function, Text, Always, "function of libc")                                                            \
  X(u64, object, Number, Means(0, "none"), "address of the lock, or descriptor")                                \
  X(u32, waker, Id, Unknown(kNone, "not seen"), "row of threads that signalled the object")                     \
  X(i64, woken_ns, Moment, Unknown(kNoTime, "not seen"), "when it signalled")                                   \
  X(i64, others_cpu_ns, Duration, Unknown(-1, "not read"), "CPU time of the process's other threads meanwhile") \
  X(u8, timed_out, Flag, Always, "1: ended by its own time limit")                                              \
  X(u32, module, Text, Unknown(kNone), "library that called")                                                   \
  X(u32, detail, Text, Unknown(kNone, "none"), "path of the file, or name of the peer")                         \
  X(u32, caller, RowNumber, Unknown(kNone), "row of stacks: what called it")

// Cumulative counters; segments are differences of two rows of one thread.
#define LS_CPU_SAMPLES(X)                                                     \
  X(i64, time_ns, Moment, Always, "when")                                     \
  X(u32, thread, Id, Always, "row of threads")                                \
  X(i64, cpu_ns, Duration, Unknown(-1, "not read"), "thread CPU time so far") \
  X(i64, run_delay_ns, Duration, Unknown(-1, "not read"), "time runnable but without a core so far (schedstat)")

// Stacks that were seen, as a tree: a row is a frame, and with those that called it a stack.
#define LS_STACKS(X)                                                                           \
  X(u32, parent, RowNumber, Unknown(kNone, "it is the outermost"), "the frame that called it") \
  X(u32, function, Text, Always, "function")                                                   \
  X(u32, file, Text, Unknown(kNone), "source file, or library")                                \
  X(u32, line, Number, Unknown(0), "line in that file")                                        \
  X(u8, python, Flag, Always, "1: a function of Python")                                       \
  X(u8, library, Flag, Always, "1: of the system, of the interpreter or of an installed package")

// Looks at a thread from outside, at irregular moments: while its rank was late, or another was that it is compared
// with.
#define LS_SAMPLES(X)                                                                                  \
  X(i64, time_ns, Moment, Always, "when")                                                              \
  X(u32, thread, Id, Unknown(kNone, "one without records"), "row of threads")                          \
  X(u32, stack, RowNumber, Means(kNone, "inside communication"), "row of stacks: its innermost frame") \
  X(i64, stopped_ns, Duration, Always, "for how long the thread was stopped")

#define LS_CLOCK_BURSTS(X)                                                             \
  X(u32, burst, Id, Always, "exchanges of one burst share it; unique within the file") \
  X(i32, peer_rank, Number, Always, "rank at the other end")                           \
  X(u8, transport, Enum<Transport>, Always, "")                                        \
  X(u8, purpose, Enum<Purpose>, Always, "")                                            \
  X(i64, send_ns, Moment, Always, "t1: this rank sends")                               \
  X(i64, peer_receive_ns, OtherMoment, Always, "t2: peer receives, peer's clock")      \
  X(i64, peer_send_ns, OtherMoment, Always, "t3: peer answers, peer's clock")          \
  X(i64, receive_ns, Moment, Always, "t4: this rank receives")

#define LS_CLOCK_SNAPSHOTS(X)                                                \
  X(u64, ticks, Ticks, Always, "event clock's raw counter (TSC), or raw_ns") \
  X(i64, raw_ns, Moment, Always, "CLOCK_MONOTONIC_RAW: the rank clock")      \
  X(i64, monotonic_ns, OtherMoment, Always, "CLOCK_MONOTONIC")               \
  X(i64, realtime_ns, OtherMoment, Always, "CLOCK_REALTIME since the epoch") \
  X(i64, width_ns, Duration, Always, "bracket of the reading: its uncertainty")

#define LS_LOSSES(X)                                                 \
  X(u32, name, Text, Always, "Loss, see core/loss.def")              \
  X(u64, count, Count, Always, "records, calls or blocks concerned") \
  X(i64, first_ns, Moment, Unknown(kNoTime), "first time")           \
  X(i64, last_ns, Moment, Unknown(kNoTime), "last time")             \
  X(u32, thread, Id, Unknown(kNone, "none"), "row of threads")       \
  X(u32, detail, Text, Unknown(kNone, "none"), "what exactly")

// T(member, Type, COLUMNS, traits, description)
#define LS_RANK_TABLES(T)                                                                                          \
  T(meta, Meta, LS_META, kHead | kFacts | kExported, "facts about the rank and its capture, key and value")        \
  T(processes, Processes, LS_PROCESSES, kHead | kExported, "processes that used a source in this slot")            \
  T(threads, Threads, LS_THREADS, kHead | kExported, "threads that wrote records")                                 \
  T(strings, Strings, LS_STRINGS, kHead | kTexts, "interned texts: where each lies in string_bytes")               \
  T(string_bytes, StringBytes, LS_STRING_BYTES, kHead | kTexts, "the texts themselves")                            \
  T(comms, Comms, LS_COMMS, kHead | kExported, "communicators")                                                    \
  T(comm_members, CommMembers, LS_COMM_MEMBERS, kHead | kExported, "members of communicators that have no stride") \
  T(mpi_calls, MpiCalls, LS_MPI_CALLS, kLong, "MPI calls, one row each")                                           \
  T(collectives, Collectives, LS_COLLECTIVES, kHeadInPart | kPieces | kShown,                                      \
    "collective operations of this rank, one row each")                                                            \
  T(p2p, P2p, LS_P2P, kHeadInPart | kPieces | kShown, "point-to-point operations of this rank, one row each")      \
  T(mpi_requests, MpiRequests, LS_MPI_REQUESTS, kHead | kShown, "non-blocking MPI-IO and RMA operations")          \
  T(ranges, Ranges, LS_RANGES, kLong, "ranges and marks of the application")                                       \
  T(blocked, Blocked, LS_BLOCKED, kLong, "calls of libc in which the training thread was blocked")                 \
  T(range_categories, RangeCategories, LS_RANGE_CATEGORIES, kNoTraits, "names of NVTX categories")                 \
  T(kernels, Kernels, LS_KERNELS, kLong, "GPU kernels")                                                            \
  T(kernel_shapes, KernelShapes, LS_KERNEL_SHAPES, kPieces | kExported, "distinct launch geometries")              \
  T(copies, Copies, LS_COPIES, kLong, "GPU copies and memsets")                                                    \
  T(devices, Devices, LS_DEVICES, kHead | kExported, "GPUs")                                                       \
  T(sync, Sync, LS_SYNC, kLong, "GPU synchronisations and event edges")                                            \
  T(api, Api, LS_API, kLong, "host calls into the GPU runtime or driver")                                          \
  T(gpu_memory, GpuMemory, LS_GPU_MEMORY, kLong, "GPU memory events and per-step samples")                         \
  T(gpu_samples, GpuSamples, LS_GPU_SAMPLES, kHead | kShown, "GPU clocks, power and temperature")                  \
  T(overheads, Overheads, LS_OVERHEADS, kHead | kShown, "time taken by GPU profiling and the driver's lazy work")  \
  T(steps, Steps, LS_STEPS, kHead | kExported, "training steps as this rank marked them")                          \
  T(windows, Windows, LS_WINDOWS, kHead | kExported, "when this rank recorded")                                    \
  T(gradient_buckets, GradientBuckets, LS_GRADIENT_BUCKETS, kHead | kExported, "gradient buckets of DDP models")   \
  T(cpu_samples, CpuSamples, LS_CPU_SAMPLES, kPieces, "thread CPU time and run-queue delay, cumulative")           \
  T(stacks, Stacks, LS_STACKS, kHead | kExported, "stacks of threads, as a tree of frames")                        \
  T(samples, Samples, LS_SAMPLES, kHead | kExported, "stacks of threads, when they were taken")                    \
  T(clock_bursts, ClockBursts, LS_CLOCK_BURSTS, kHead, "raw clock exchanges, never only their fit")                \
  T(clock_snapshots, ClockSnapshots, LS_CLOCK_SNAPSHOTS, kHead, "event clock against the system's clocks")         \
  T(losses, Losses, LS_LOSSES, kHead | kExported, "what is not in this file, counted")
