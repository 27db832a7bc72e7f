#pragma once
// Tables of a rank file (rank-00005.h5), see core/schema.h for the notation.
// Times are nanoseconds of the rank clock unless the description says else.

#define LS_META(X)                          \
  X(u32, key, "string", "name of the fact") \
  X(u32, value, "string", "its value as text")

#define LS_STRINGS(X)                                                     \
  X(u64, offset_bytes, "bytes", "first byte of the text in string_bytes") \
  X(u32, length_bytes, "bytes", "length of the text, UTF-8")

#define LS_STRING_BYTES(X) X(u8, value, "1", "all texts one after the other")

#define LS_PROCESSES(X)                                                                      \
  X(u32, process, "id", "process within this slot, in order of appearance")                  \
  X(i64, pid, "1", "process id in its own namespace")                                        \
  X(i64, parent_pid, "1", "parent's process id")                                             \
  X(u32, exe, "string", "executable")                                                        \
  X(i64, begin_ns, "ns", "first use of a source")                                            \
  X(i64, end_ns, "ns", "last sign of life; kNoTime if unknown")                              \
  X(i32, world_rank, "1", "rank in the job, -1 unknown")                                     \
  X(u8, rank_source, "enum", "where world_rank came from: 0 none 1 mpi 2 env 3 nccl 4 slot") \
  X(u8, ended, "enum", "0 unknown 1 exit 2 signal 3 still running when recording stopped")   \
  X(i32, end_code, "1", "exit code or signal number")                                        \
  X(u8, mpi_thread_level, "enum", "0 single 1 funneled 2 serialized 3 multiple 255 no MPI")

#define LS_THREADS(X)                                                \
  X(u32, thread, "id", "thread within this file")                    \
  X(u32, process, "id", "row of processes")                          \
  X(i64, tid, "1", "kernel thread id")                               \
  X(u32, name, "string", "thread name")                              \
  X(i64, begin_ns, "ns", "first record")                             \
  X(i64, end_ns, "ns", "last record")                                \
  X(u64, records, "count", "records committed by this thread")       \
  X(u64, dropped, "count", "records lost because its ring was full") \
  X(u8, training, "bool", "1 for the training thread: the one that marks steps, else main")

#define LS_COMMS(X)                                                                            \
  X(u32, comm, "id", "communicator within this file")                                          \
  X(u64, global_id, "1", "same value on every member rank; 0 unidentified")                    \
  X(u64, parent_id, "1", "global_id of the communicator it was made from, 0 none")             \
  X(u32, size, "count", "members (remote group not counted)")                                  \
  X(i32, rank, "1", "this rank's rank in it")                                                  \
  X(u8, kind, "enum", "0 intra-communicator 1 inter-communicator 2 self 3 nccl 4 torch group") \
  X(u8, unidentified, "bool", "1: cannot be matched across ranks (spawn, accept)")             \
  X(i32, first_world_rank, "1", "world rank of member 0, -1 unknown")                          \
  X(i32, stride, "1", "member i is first_world_rank + i * stride; 0: see comm_members")        \
  X(u32, name, "string", "name given by the application or by Lockstep")                       \
  X(i64, begin_ns, "ns", "creation")                                                           \
  X(i64, end_ns, "ns", "free; kNoTime if never")                                               \
  X(u8, identity, "enum",                                                                      \
    "0 counted by the library: global_id and seq mean the same on every member "               \
    "1 group named by an imported trace, seq is the order within this file "                   \
    "2 group guessed from an imported trace, seq as in 1")

#define LS_COMM_MEMBERS(X)                   \
  X(u32, comm, "id", "row of comms")         \
  X(u32, comm_rank, "1", "rank within comm") \
  X(i32, world_rank, "1", "rank in the job")

#define LS_MPI_CALLS(X)                                                                      \
  X(i64, begin_ns, "ns", "entry")                                                            \
  X(i64, duration_ns, "ns", "return minus entry")                                            \
  X(u32, thread, "id", "row of threads")                                                     \
  X(u16, op, "enum", "MPI function, see core/mpi_ops.def")                                   \
  X(u32, comm, "id", "row of comms, kNone for calls without communicator")                   \
  X(u64, bytes, "bytes", "see core/mpi_ops.def; number of requests for completion calls")    \
  X(i32, peer, "1", "destination, source or root in comm's ranks; -1 none, -2 any source")   \
  X(i32, tag, "1", "tag, -1 none, -2 any tag")                                               \
  X(u32, count, "count", "calls in this row: above 1 only for coalesced unsuccessful polls") \
  X(u8, outcome, "enum", "0 completed 1 nothing completed 2 error 3 had not returned at the last sign of life")

#define LS_COLLECTIVES(X)                                                                                      \
  X(u32, comm, "id", "row of comms")                                                                           \
  X(u64, seq, "1", "number of this collective on comm; persistent: initialisation's number")                   \
  X(u32, start, "1", "n-th start of a persistent collective from 1, 0 otherwise")                              \
  X(u8, kind, "enum", "CollectiveKind")                                                                        \
  X(u8, mode, "enum", "0 blocking 1 non-blocking 2 persistent 3 gpu kernel")                                   \
  X(u8, uneven, "bool", "1: members' byte counts may differ (v-variants)")                                     \
  X(u32, thread, "id", "row of threads that called or posted")                                                 \
  X(i64, begin_ns, "ns", "arrival: entry, post, or GPU kernel start")                                          \
  X(i64, post_end_ns, "ns", "return of the posting call; the end when blocking")                               \
  X(i64, last_incomplete_ns, "ns", "return of the last unsuccessful test that covered it, kNoTime none")       \
  X(i64, wait_begin_ns, "ns", "entry of the completing call; begin_ns when blocking, kNoTime never completed") \
  X(i64, end_ns, "ns", "return of the completing call or kernel end, kNoTime never completed")                 \
  X(u64, bytes, "bytes", "whole array S as in definitions.md (all-gather: received; reduce-scatter: sent)")    \
  X(u64, count, "count", "elements in bytes")                                                                  \
  X(u16, dtype, "enum", "DataType")                                                                            \
  X(i32, root, "1", "root in comm's ranks, -1 none")                                                           \
  X(u32, call, "rows", "row of mpi_calls that posted it, kNone")                                               \
  X(u32, kernel, "rows", "row of kernels that carried it, kNone")                                              \
  X(u32, kernel_operations, "count", "operations that share that kernel: 1 alone, 0 no kernel")                \
  X(i64, enqueue_begin_ns, "ns", "GPU collectives: entry of the host call that enqueued it, kNoTime unknown")  \
  X(u8, reduction, "enum", "0 none or unknown 1 sum 2 product 3 maximum 4 minimum 5 average 6 user's own")     \
  X(u32, algorithm, "string", "NCCL's algorithm, kNone unknown")                                               \
  X(u32, protocol, "string", "NCCL's protocol, kNone unknown")                                                 \
  X(u16, channels, "count", "NCCL channels, 0 unknown")                                                        \
  X(u64, buffer, "1", "address sent from, 0 unknown")

#define LS_P2P(X)                                                                                              \
  X(u32, comm, "id", "row of comms")                                                                           \
  X(u8, direction, "enum", "0 send 1 receive")                                                                 \
  X(u8, mode, "enum", "0 blocking 1 non-blocking 2 persistent 3 gpu kernel")                                   \
  X(i32, peer, "1", "partner in comm's ranks, from the status for wildcards; -1 none or unknown")              \
  X(i32, peer_world_rank, "1", "partner's world rank, -1 unknown")                                             \
  X(i32, tag, "1", "tag, from the status for wildcards")                                                       \
  X(u64, seq, "1", "k-th send, or k-th matched receive, of (comm, source, destination, tag)")                  \
  X(u32, thread, "id", "row of threads that called or posted")                                                 \
  X(i64, begin_ns, "ns", "entry or post")                                                                      \
  X(i64, post_end_ns, "ns", "return of the posting call; the end when blocking")                               \
  X(i64, last_incomplete_ns, "ns", "return of the last unsuccessful test that covered it, kNoTime none")       \
  X(i64, wait_begin_ns, "ns", "entry of the completing call; begin_ns when blocking, kNoTime never completed") \
  X(i64, end_ns, "ns", "return of the completing call, kNoTime never completed")                               \
  X(u64, bytes, "bytes", "bytes sent, or received as the status says")                                         \
  X(u8, outcome, "enum", "0 completed 1 cancelled 2 error 3 never completed 4 freed")                          \
  X(u32, call, "rows", "row of mpi_calls that posted it, kNone")                                               \
  X(u32, kernel, "rows", "row of kernels that carried it, kNone")

#define LS_MPI_REQUESTS(X)                                                             \
  X(u16, op, "enum", "MPI function that posted it, see core/mpi_ops.def")              \
  X(u32, comm, "id", "row of comms the file or window was made on, kNone unknown")     \
  X(u32, thread, "id", "row of threads that posted")                                   \
  X(u32, wait_thread, "id", "row of threads that completed it, kNone never completed") \
  X(i64, begin_ns, "ns", "post")                                                       \
  X(i64, post_end_ns, "ns", "return of the posting call")                              \
  X(i64, wait_begin_ns, "ns", "entry of the completing call, kNoTime never completed") \
  X(i64, end_ns, "ns", "return of the completing call, kNoTime never completed")       \
  X(u64, bytes, "bytes", "as mpi_calls.bytes of the post")                             \
  X(i32, peer, "1", "RMA target in the window's ranks, -1 none")                       \
  X(u8, outcome, "enum", "0 completed 1 cancelled 2 error 3 never completed 4 freed")

#define LS_RANGES(X)                                                                                      \
  X(i64, begin_ns, "ns", "push, start or mark")                                                           \
  X(i64, duration_ns, "ns", "0 for marks")                                                                \
  X(u32, thread, "id", "row of threads")                                                                  \
  X(u32, name, "string", "range name")                                                                    \
  X(u32, domain, "string", "NVTX domain or source module, kNone default")                                 \
  X(u8, source, "enum", "0 lockstep.h 1 nvtx 2 torch 3 cpu op 4 python function")                         \
  X(u8, kind, "enum", "0 push/pop 1 start/end 2 mark")                                                    \
  X(u8, category, "enum", "0 none 1 input 2 forward 3 backward 4 optimizer 5 communication 6 checkpoint") \
  X(u16, depth, "1", "nesting depth on its thread, 0 outermost")                                          \
  X(u8, open, "bool", "1: never closed; duration reaches the last sign of life")                          \
  X(i64, payload, "1", "number given with it, 0 none; the bits of a double if payload_kind says so")      \
  X(u8, payload_kind, "enum", "0 none 1 integer 2 double 3 autograd sequence number")                     \
  X(u32, category_id, "id", "NVTX category of its domain, 0 none; range_categories has its name")

// NVTX categories that the application named.
#define LS_RANGE_CATEGORIES(X)                       \
  X(u32, domain, "string", "as ranges.domain")       \
  X(u32, category_id, "id", "as ranges.category_id") \
  X(u32, name, "string", "name")

#define LS_KERNELS(X)                                                                                         \
  X(i64, begin_ns, "ns", "start on the GPU")                                                                  \
  X(i64, duration_ns, "ns", "end minus start")                                                                \
  X(u16, device, "1", "device ordinal")                                                                       \
  X(u32, context, "1", "context id")                                                                          \
  X(u32, stream, "1", "stream id within the context")                                                         \
  X(u64, correlation, "1", "same value as the api row that launched it, 0 none")                              \
  X(u32, name, "string", "kernel name, demangled")                                                            \
  X(u32, shape, "rows", "row of kernel_shapes, kNone")                                                        \
  X(u8, work, "enum", "0 compute 1 communication 2 sync pseudo-kernel")                                       \
  X(u8, work_rule, "enum", "how work was decided: 0 default 1 launched by a recorded collective 2 name list") \
  X(u64, graph_node, "1", "CUDA graph node id, 0 none")                                                       \
  X(u8, vendor, "enum", "1 nvidia 2 amd")

#define LS_KERNEL_SHAPES(X)                                      \
  X(i32, grid_x, "1", "blocks in x")                             \
  X(i32, grid_y, "1", "blocks in y")                             \
  X(i32, grid_z, "1", "blocks in z")                             \
  X(i32, block_x, "1", "threads in x")                           \
  X(i32, block_y, "1", "threads in y")                           \
  X(i32, block_z, "1", "threads in z")                           \
  X(u32, registers_per_thread, "1", "registers")                 \
  X(u32, static_shared_bytes, "bytes", "static shared memory")   \
  X(u32, dynamic_shared_bytes, "bytes", "dynamic shared memory") \
  X(u32, cluster_size, "1", "thread blocks per cluster, 0 none") \
  X(i32, occupancy_percent, "1", "estimated achieved occupancy in percent, -1 unknown")

#define LS_COPIES(X)                                                                                                   \
  X(i64, begin_ns, "ns", "start on the GPU")                                                                           \
  X(i64, duration_ns, "ns", "end minus start")                                                                         \
  X(u16, device, "1", "device ordinal")                                                                                \
  X(u32, context, "1", "context id")                                                                                   \
  X(u32, stream, "1", "stream id")                                                                                     \
  X(u64, correlation, "1", "same value as the api row that launched it, 0 none")                                       \
  X(u8, kind, "enum", "0 unknown 1 host to device 2 device to host 3 device to device 4 peer 5 host to host 6 memset") \
  X(u64, bytes, "bytes", "bytes moved or set")                                                                         \
  X(i32, source_device, "1", "device read, -1 host or unknown")                                                        \
  X(i32, destination_device, "1", "device written, -1 host or unknown")                                                \
  X(u8, asynchronous, "bool", "1 for the Async calls")                                                                 \
  X(u8, vendor, "enum", "1 nvidia 2 amd")                                                                              \
  X(u8, host_memory, "enum", "the host's side: 0 unknown or none 1 pageable 2 pinned 3 managed")

// Devices that this rank used or that the trace describes.
#define LS_DEVICES(X)                                                \
  X(u16, device, "1", "device ordinal")                              \
  X(u32, name, "string", "product name, kNone unknown")              \
  X(u64, memory_bytes, "bytes", "total memory, 0 unknown")           \
  X(u32, sm_count, "count", "multiprocessors, 0 unknown")            \
  X(u32, max_threads_per_sm, "count", "resident threads, 0 unknown") \
  X(u16, compute_major, "1", "compute capability, 0 unknown")        \
  X(u16, compute_minor, "1", "compute capability")                   \
  X(u8, vendor, "enum", "1 nvidia 2 amd")

#define LS_SYNC(X)                                                                                               \
  X(i64, begin_ns, "ns", "start")                                                                                \
  X(i64, duration_ns, "ns", "end minus start")                                                                   \
  X(u8, kind, "enum", "1 event 2 stream wait event 3 stream 4 context 5 event record")                           \
  X(u16, device, "1", "device ordinal")                                                                          \
  X(u32, context, "1", "context id")                                                                             \
  X(u32, stream, "1", "stream that waits or is waited for, kNone")                                               \
  X(u64, event, "1", "event id, 0 none")                                                                         \
  X(u64, correlation, "1", "same value as the api row, 0 none")                                                  \
  X(u8, vendor, "enum", "1 nvidia 2 amd")                                                                        \
  X(u64, record_correlation, "1", "kind 1 and 2: correlation of the event record that is waited for, 0 unknown") \
  X(u32, record_stream, "1", "kind 1 and 2: stream of that event record, kNone unknown")

#define LS_API(X)                                                                       \
  X(i64, begin_ns, "ns", "entry")                                                       \
  X(i64, duration_ns, "ns", "return minus entry")                                       \
  X(u32, thread, "id", "row of threads")                                                \
  X(u32, name, "string", "function")                                                    \
  X(u8, kind, "enum", "0 other 1 launch 2 copy 3 sync 4 graph launch 5 memory 6 event") \
  X(u64, correlation, "1", "ties it to kernels, copies, sync; 0 none")                  \
  X(i32, result, "1", "return code")                                                    \
  X(u8, vendor, "enum", "1 nvidia 2 amd")

#define LS_GPU_MEMORY(X)                                                      \
  X(i64, time_ns, "ns", "when")                                               \
  X(u8, kind, "enum", "1 allocate 2 free 3 sample 4 peak since the last one") \
  X(u16, device, "1", "device ordinal, 65535 the host")                       \
  X(u64, address, "1", "address, 0 for samples")                              \
  X(i64, bytes, "bytes", "size of the block")                                 \
  X(u64, allocated_bytes, "bytes", "allocated after it, 0 unknown")           \
  X(u64, reserved_bytes, "bytes", "reserved after it, 0 unknown")             \
  X(u32, name, "string", "allocator, kNone")

// What the GPU's own sensors said, read on the host at most ten times a second.
#define LS_GPU_SAMPLES(X)                                                                                \
  X(i64, time_ns, "ns", "when")                                                                          \
  X(u16, device, "1", "device ordinal, 65535 unknown")                                                   \
  X(u32, sm_clock_mhz, "MHz", "multiprocessor clock, kNone unknown")                                     \
  X(u32, memory_clock_mhz, "MHz", "memory clock, kNone unknown")                                         \
  X(u32, power_mw, "mW", "power drawn, kNone unknown")                                                   \
  X(u32, temperature_c, "degrees Celsius", "temperature, kNone unknown")                                 \
  X(u32, utilization_percent, "percent", "share of the last sample period with a kernel, kNone unknown") \
  X(u64, throttle_reasons, "1",                                                                          \
    "why clocks are low, NVML's bits: 1 idle 2 application setting 4 power cap 8 hardware slowdown "     \
    "32 thermal (software) 64 thermal (hardware) 128 power brake; 0 none or unknown")                    \
  X(u8, vendor, "enum", "1 nvidia 2 amd")

// Time that the profiling library or the driver's lazy work took, for honest accounts.
#define LS_OVERHEADS(X)                                                                                     \
  X(i64, begin_ns, "ns", "begin")                                                                           \
  X(i64, duration_ns, "ns", "end minus begin")                                                              \
  X(u32, thread, "id", "row of threads, kNone none of a thread's")                                          \
  X(u8, kind, "enum",                                                                                       \
    "0 other 1 compiler 2 buffer flush 3 instrumentation 4 resources 5 lazy loading 6 command buffer full " \
    "7 activity buffer request")                                                                            \
  X(u8, vendor, "enum", "1 nvidia 2 amd")

#define LS_STEPS(X)                                                                             \
  X(i64, index, "1", "step number, equal on all ranks")                                         \
  X(i64, begin_ns, "ns", "boundary that opened it")                                             \
  X(i64, end_ns, "ns", "boundary that closed it; last sign of life if incomplete")              \
  X(u8, source, "enum", "0 lockstep_step 1 step range 2 torch hook 3 ProfilerStep 4 signature") \
  X(u8, complete, "bool", "0: cut short by the window, the end or a death")                     \
  X(u8, warmup, "bool", "1: not representative (first steps)")                                  \
  X(u32, thread, "id", "row of threads that marked it, kNone")                                  \
  X(i64, cpu_ns, "ns", "CPU time of that thread within the step, -1 unknown")

// When this rank recorded. Rows do not overlap; outside them only identities were counted.
#define LS_WINDOWS(X)                                                                                      \
  X(i64, begin_ns, "ns", "recording went on")                                                              \
  X(i64, end_ns, "ns", "recording went off, or last sign of life")                                         \
  X(i64, first_step, "1", "first step in it, -1 no live steps")                                            \
  X(i64, end_step, "1", "first step after it, -1 no live steps")                                           \
  X(u8, begin_cause, "enum", "0 run 1 steps 2 schedule 3 range 4 timer 5 lockstep_start 6 trigger")        \
  X(u8, end_cause, "enum", "as begin_cause; 5 lockstep_stop 7 size limit 8 end of the run or the process") \
  X(u8, cut, "bool", "1: ended before it was complete")

// Gradient buckets as the framework says they are (PyTorch: DDP's logging data after its second step).
#define LS_GRADIENT_BUCKETS(X)                                                                              \
  X(u32, model, "id", "n-th wrapped model of the process, from 0")                                          \
  X(u32, bucket, "id", "position in launch order")                                                          \
  X(u64, bytes, "bytes", "size")                                                                            \
  X(u64, cap_bytes, "bytes", "the model's bucket_cap_mb, 0 unknown")                                        \
  X(u16, dtype, "enum", "DataType")                                                                         \
  X(u32, parameters, "string", "indices of its parameters in registration order, \"3 2 1\"; kNone unknown") \
  X(u8, rebuilt, "bool", "1: order of gradient arrival, 0: reverse registration order")

// Cumulative counters; segments are differences of two rows of one thread.
#define LS_CPU_SAMPLES(X)                                     \
  X(i64, time_ns, "ns", "when")                               \
  X(u32, thread, "id", "row of threads")                      \
  X(i64, cpu_ns, "ns", "thread CPU time so far, -1 not read") \
  X(i64, run_delay_ns, "ns", "time runnable but without a core so far (schedstat), -1 not read")

#define LS_CLOCK_BURSTS(X)                                                                       \
  X(u32, burst, "id", "exchanges of one burst share it; unique within the file")                 \
  X(i32, peer_rank, "1", "rank at the other end")                                                \
  X(u8, transport, "enum", "1 mpi in the application 2 tcp between agents 3 mpi between agents") \
  X(u8, purpose, "enum", "0 offset 1 check within one clock domain")                             \
  X(i64, send_ns, "ns", "t1: this rank sends")                                                   \
  X(i64, peer_receive_ns, "ns", "t2: peer receives, peer's clock")                               \
  X(i64, peer_send_ns, "ns", "t3: peer answers, peer's clock")                                   \
  X(i64, receive_ns, "ns", "t4: this rank receives")

#define LS_CLOCK_SNAPSHOTS(X)                                          \
  X(u64, ticks, "ticks", "event clock's raw counter (TSC), or raw_ns") \
  X(i64, raw_ns, "ns", "CLOCK_MONOTONIC_RAW: the rank clock")          \
  X(i64, monotonic_ns, "ns", "CLOCK_MONOTONIC")                        \
  X(i64, realtime_ns, "ns", "CLOCK_REALTIME since the epoch")          \
  X(i64, width_ns, "ns", "bracket of the reading: its uncertainty")

#define LS_LOSSES(X)                                           \
  X(u32, name, "string", "Loss, see core/loss.def")            \
  X(u64, count, "count", "records, calls or blocks concerned") \
  X(i64, first_ns, "ns", "first time, kNoTime unknown")        \
  X(i64, last_ns, "ns", "last time, kNoTime unknown")          \
  X(u32, thread, "id", "row of threads, kNone")                \
  X(u32, detail, "string", "what exactly, kNone")

// T(member, Type, COLUMNS, description)
#define LS_RANK_TABLES(T)                                                                           \
  T(meta, Meta, LS_META, "facts about the rank and its capture, key and value")                     \
  T(processes, Processes, LS_PROCESSES, "processes that used a source in this slot")                \
  T(threads, Threads, LS_THREADS, "threads that wrote records")                                     \
  T(strings, Strings, LS_STRINGS, "interned texts: where each lies in string_bytes")                \
  T(string_bytes, StringBytes, LS_STRING_BYTES, "the texts themselves")                             \
  T(comms, Comms, LS_COMMS, "communicators")                                                        \
  T(comm_members, CommMembers, LS_COMM_MEMBERS, "members of communicators that have no stride")     \
  T(mpi_calls, MpiCalls, LS_MPI_CALLS, "MPI calls, one row each")                                   \
  T(collectives, Collectives, LS_COLLECTIVES, "collective operations of this rank, one row each")   \
  T(p2p, P2p, LS_P2P, "point-to-point operations of this rank, one row each")                       \
  T(mpi_requests, MpiRequests, LS_MPI_REQUESTS, "non-blocking MPI-IO and RMA operations")           \
  T(ranges, Ranges, LS_RANGES, "ranges and marks of the application")                               \
  T(range_categories, RangeCategories, LS_RANGE_CATEGORIES, "names of NVTX categories")             \
  T(kernels, Kernels, LS_KERNELS, "GPU kernels")                                                    \
  T(kernel_shapes, KernelShapes, LS_KERNEL_SHAPES, "distinct launch geometries")                    \
  T(copies, Copies, LS_COPIES, "GPU copies and memsets")                                            \
  T(devices, Devices, LS_DEVICES, "GPUs")                                                           \
  T(sync, Sync, LS_SYNC, "GPU synchronisations and event edges")                                    \
  T(api, Api, LS_API, "host calls into the GPU runtime or driver")                                  \
  T(gpu_memory, GpuMemory, LS_GPU_MEMORY, "GPU memory events and per-step samples")                 \
  T(gpu_samples, GpuSamples, LS_GPU_SAMPLES, "GPU clocks, power and temperature")                   \
  T(overheads, Overheads, LS_OVERHEADS, "time taken by GPU profiling and the driver's lazy work")   \
  T(steps, Steps, LS_STEPS, "training steps as this rank marked them")                              \
  T(windows, Windows, LS_WINDOWS, "when this rank recorded")                                        \
  T(gradient_buckets, GradientBuckets, LS_GRADIENT_BUCKETS, "gradient buckets of DDP models")       \
  T(cpu_samples, CpuSamples, LS_CPU_SAMPLES, "thread CPU time and run-queue delay, cumulative")     \
  T(clock_bursts, ClockBursts, LS_CLOCK_BURSTS, "raw clock exchanges, never only their fit")        \
  T(clock_snapshots, ClockSnapshots, LS_CLOCK_SNAPSHOTS, "event clock against the system's clocks") \
  T(losses, Losses, LS_LOSSES, "what is not in this file, counted")
