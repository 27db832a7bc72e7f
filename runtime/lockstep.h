/* Lockstep's public C API: name steps and ranges for the profiler.
 *
 *   #include "lockstep.h"
 *
 *   for (long i = 0; i < steps; ++i) {
 *     lockstep_step();                                            // step i begins, step i-1 ends
 *     lockstep_range_push_category("load", LOCKSTEP_INPUT);
 *     load_batch();
 *     lockstep_range_pop();
 *     lockstep_range_push_category("forward", LOCKSTEP_FORWARD);
 *     forward();
 *     lockstep_range_pop();
 *   }
 *   lockstep_step_end();                                          // the last step ends here
 *
 * Header only: nothing to link. Without Lockstep each call is a test of a null
 * pointer; under `lockstep run` liblockstep.so is preloaded and the calls reach
 * it. Linking with -llockstep works as well and changes nothing else.
 * C89 and C++98 and later; GCC or Clang on Linux. Every call may be made from
 * any thread, before main and after it has returned, and never fails: what
 * cannot be recorded is dropped and counted. errno is preserved.
 */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#ifdef __cplusplus
extern "C" {
#endif

__extension__ typedef long long lockstep_int64; /* C89 has no long long of its own. */

/* What a range is for. LOCKSTEP_INPUT matters most: time in it is not compute. */
enum lockstep_category {
  LOCKSTEP_NONE = 0,
  LOCKSTEP_INPUT = 1,
  LOCKSTEP_FORWARD = 2,
  LOCKSTEP_BACKWARD = 3,
  LOCKSTEP_OPTIMIZER = 4,
  LOCKSTEP_COMMUNICATION = 5,
  LOCKSTEP_CHECKPOINT = 6
};

/* In the library; null when it is not there. Do not call these directly.
 * noplt: a non-PIE executable of GCC would otherwise fix a weak function's
 * address to 0 at link time and never see the preloaded one (binutils 2.40). */
#ifndef LOCKSTEP_BUILDING_PROBE
#if defined(__clang__)
#define LOCKSTEP_WEAK __attribute__((weak))
#else
#define LOCKSTEP_WEAK __attribute__((weak, noplt))
#endif
extern void lockstep_probe_step(void) LOCKSTEP_WEAK;
extern void lockstep_probe_step_index(lockstep_int64 index) LOCKSTEP_WEAK;
extern void lockstep_probe_step_end(void) LOCKSTEP_WEAK;
extern void lockstep_probe_range_push(const char* name) LOCKSTEP_WEAK;
extern void lockstep_probe_range_push_category(const char* name, int category) LOCKSTEP_WEAK;
extern void lockstep_probe_range_pop(void) LOCKSTEP_WEAK;
extern void lockstep_probe_mark(const char* name) LOCKSTEP_WEAK;
extern void lockstep_probe_start(void) LOCKSTEP_WEAK;
extern void lockstep_probe_stop(void) LOCKSTEP_WEAK;
extern int lockstep_probe_recording(void) LOCKSTEP_WEAK;
extern void lockstep_probe_gradients(const lockstep_int64* bytes, int count) LOCKSTEP_WEAK;
#undef LOCKSTEP_WEAK

#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
#define LOCKSTEP_INLINE static inline
#else
#define LOCKSTEP_INLINE static __inline__ __attribute__((unused))
#endif

/* NOLINTBEGIN(modernize-redundant-void-arg): C means it. */

/* A boundary: the previous step ends and the next begins. The first call begins
 * step 0. Call it once per step, at the same place, on every rank; the thread
 * that calls it is the training thread. Numbers go on while recording is off. */
LOCKSTEP_INLINE void lockstep_step(void) {
  if (lockstep_probe_step) lockstep_probe_step();
}

/* The same with the number of the step that begins here, which must be the same
 * on all ranks: after a restart from a checkpoint, say. */
LOCKSTEP_INLINE void lockstep_step_index(lockstep_int64 index) {
  if (lockstep_probe_step_index) lockstep_probe_step_index(index);
}

/* Ends the last step; no new one begins. Without it the last step is incomplete. */
LOCKSTEP_INLINE void lockstep_step_end(void) {
  if (lockstep_probe_step_end) lockstep_probe_step_end();
}

/* A range on the calling thread, from push to the matching pop; ranges nest up
 * to 64 deep. The name is copied (cut at 4096 bytes); a string literal is cheapest. */
LOCKSTEP_INLINE void lockstep_range_push(const char* name) {
  if (lockstep_probe_range_push) lockstep_probe_range_push(name);
}
LOCKSTEP_INLINE void lockstep_range_push_category(const char* name, enum lockstep_category category) {
  if (lockstep_probe_range_push_category) lockstep_probe_range_push_category(name, (int)category);
}
LOCKSTEP_INLINE void lockstep_range_pop(void) {
  if (lockstep_probe_range_pop) lockstep_probe_range_pop();
}

/* A moment with a name. */
LOCKSTEP_INLINE void lockstep_mark(const char* name) {
  if (lockstep_probe_mark) lockstep_probe_mark(name);
}

/* The recording window: nothing is recorded between stop and start. For all
 * processes of this rank, at once on the calling thread; other threads may still
 * finish up to 128 ranges. Make the calls at a step boundary and on all ranks. */
LOCKSTEP_INLINE void lockstep_start(void) {
  if (lockstep_probe_start) lockstep_probe_start();
}
LOCKSTEP_INLINE void lockstep_stop(void) {
  if (lockstep_probe_stop) lockstep_probe_stop();
}

/* 1 while calls are being recorded, else 0. For skipping the making of expensive names. */
LOCKSTEP_INLINE int lockstep_recording(void) { return lockstep_probe_recording ? lockstep_probe_recording() : 0; }

/* Sizes of the model's gradients in bytes, in the order in which they become
 * ready, as they are grouped into buckets. Call it once, on the thread that
 * trains; a second model follows with a call of its own. `lockstep whatif` can
 * then say exactly which buckets another limit gives. */
LOCKSTEP_INLINE void lockstep_gradients(const lockstep_int64* bytes, int count) {
  if (lockstep_probe_gradients) lockstep_probe_gradients(bytes, count);
}

/* NOLINTEND(modernize-redundant-void-arg) */
#undef LOCKSTEP_INLINE
#endif /* LOCKSTEP_BUILDING_PROBE */

#ifdef __cplusplus
}
#endif

#endif /* LOCKSTEP_H */
