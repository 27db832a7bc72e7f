/* A GPU and its libcupti for tests of whole jobs on machines without either.
 *
 * Link with the target fake_cupti (a shared library of libcupti's SONAME, so Lockstep finds it loaded).
 * A program calls what follows as it would call CUDA; records of kernels, copies, synchronisations and calls
 * are made as CUPTI makes them, on the clock that was registered with it, and given out when Lockstep flushes.
 *
 * A stream runs its work in order, each piece for the duration given, beginning when the piece before has
 * ended, when the events it waits for are reached, and not before it was launched. Times are real: synchronising
 * sleeps.
 *
 * As in CUPTI, a record of work stands in a buffer from its launch on and gets its times when the work has ended. A
 * default flush gives back no buffer that holds unfinished work; a forced one gives back all, and what ends later has
 * no times. cuptiFinalize gives back nothing. A timestamp callback that is registered again misplaces kernels at the
 * head of each session.
 *
 * FAKE_GPU_CLOCK_NS, FAKE_GPU_CLOCK_PPM: the GPU's times are off by so much, and by so much more as time goes on.
 *
 * Thread: any. Environment:
 *   FAKE_CUPTI_DEVICE_RECORDS  as many times fit into the GPU's memory before they are fetched; work beyond has none,
 * nor has any after it. FAKE_CUPTI_VERSION   as cuptiGetVersion numbers them (13 = CUDA 11.0, 18 = 11.8, 22 = 12.4,
 * 130001): records of that version's length, walked by the fake's own iterator. Unset: the real libcupti's version and
 * iterator if there is one on this machine, else 130001. FAKE_CUPTI_FAIL
 * "cuptiActivityEnable=35,cuptiActivityFlushAll=999": these calls answer with these numbers. FAKE_CUPTI_STUCK     1: a
 * forced flush never returns. FAKE_CUPTI_LOG       file to which each control call is appended as a line.
 */
#ifndef LOCKSTEP_TESTS_FAKE_GPU_H
#define LOCKSTEP_TESTS_FAKE_GPU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As cuInit: loads the library that CUDA_INJECTION64_PATH names and calls its InitializeInjection, once per process;
 * then makes the record of device 0 and of a context on it. Called by all others if need be. 0, or 1 if the variable's
 * library could not be loaded. */
int fake_gpu_init(void);

/* The default stream is 7, as in CUPTI's records. New ones count from 13. */
#define FAKE_GPU_DEFAULT_STREAM 7u
uint32_t fake_gpu_stream_create(void);
uint32_t fake_gpu_event_create(void);

struct fake_gpu_kernel {
  const char* name; /* Mangled; must live as long as the process. */
  int64_t duration_ns;
  int32_t grid[3], block[3];
  uint32_t registers_per_thread, static_shared_bytes, dynamic_shared_bytes;
  uint32_t cluster[3];
  uint64_t graph_node;
  uint32_t graph;
  int driver; /* 1: launched by cuLaunchKernel instead of cudaLaunchKernel. */
};

/* Each returns the correlation id of its call. */
uint32_t fake_gpu_launch(uint32_t stream, const char* name, int64_t duration_ns); /* 80 x 256 threads. */
uint32_t fake_gpu_launch_kernel(uint32_t stream, const struct fake_gpu_kernel* kernel);
/* Launches a kernel that runs until fake_gpu_end says when it ended (CLOCK_MONOTONIC_RAW ns, may be past), as one
 * that waits for others does. Returns when it begins. Nothing else is launched on the stream in between. */
int64_t fake_gpu_begin(uint32_t stream, const char* name);
void fake_gpu_end(uint32_t stream, int64_t end_ns);
/* kind as CUpti_ActivityMemcpyKind: 1 to the device, 2 to the host, 8 within the device, 10 to a peer (device 1). */
uint32_t fake_gpu_copy(uint32_t stream, int kind, uint64_t bytes, int64_t duration_ns);
uint32_t fake_gpu_memset(uint32_t stream, uint64_t bytes, int64_t duration_ns);
/* A CUDA graph of `count` kernels, one after the other; `graph` names the executable graph. */
uint32_t fake_gpu_graph_launch(uint32_t stream, uint32_t graph, const struct fake_gpu_kernel* kernels, int count);
uint32_t fake_gpu_event_record(uint32_t stream, uint32_t event);
uint32_t fake_gpu_stream_wait(uint32_t stream, uint32_t event);
/* These return when the work is done. */
uint32_t fake_gpu_stream_synchronize(uint32_t stream);
uint32_t fake_gpu_event_synchronize(uint32_t event);
uint32_t fake_gpu_device_synchronize(void);
/* cudaMalloc and cudaFree (records of kind MEMORY2 as well, if enabled). */
uint64_t fake_gpu_malloc(uint64_t bytes);
void fake_gpu_free(uint64_t address, uint64_t bytes);
/* A call of the driver's interface, by CUPTI's number; fake_cuda.cc makes it of its functions. */
void fake_gpu_driver_call(uint32_t id);
/* A call that is not worth a record: cudaEventQuery. */
void fake_gpu_query(uint32_t event);

/* CLOCK_MONOTONIC_RAW ns at which all work launched on a stream so far will have ended. */
int64_t fake_gpu_stream_end_ns(uint32_t stream);

/* For checks. */
/* Records of a CUPTI kind (CUpti_ActivityKind) made so far, and given out in buffers so far, whoever got them. */
uint64_t fake_gpu_made(int cupti_kind);
uint64_t fake_gpu_delivered(int cupti_kind);
int fake_gpu_kind_enabled(int cupti_kind);
/* Flushes so far, whoever asked for them. */
uint64_t fake_gpu_flushes(void);
/* What a CUpti_ActivityAttribute stands at, and how often a timestamp callback was registered. */
uint64_t fake_gpu_attribute(int attribute);
uint32_t fake_gpu_clock_registrations(void);
/* Things that the real one would have crashed or misbehaved on: buffers not zeroed though promised, too small,
 * not 8-aligned, callbacks that call CUPTI. */
uint64_t fake_gpu_violations(void);

#ifdef __cplusplus
}
#endif
#endif
