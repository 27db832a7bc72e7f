#pragma once
// Threads of the merge stage.

#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstddef>

namespace lockstep::merge {

// The threads for a number that the user gave, 0: one for each allowed core. More threads than allowed cores gain
// nothing, and oneTBB 2021.8 warns on stderr about each.
inline int ThreadsFor(unsigned jobs) {
  const int cores = tbb::info::default_concurrency();
  return jobs == 0 ? cores : std::min(cores, static_cast<int>(std::min(jobs, 4096u)));
}

// Calls f(i) for every i in [0, n), with at most `jobs` threads (0: all allowed cores). Each i is a task of its own:
// for work that is large per i.
template <typename F>
void ParallelFor(unsigned jobs, std::size_t n, F&& f) {
  if (n <= 1 || jobs == 1) {
    for (std::size_t i = 0; i < n; ++i) f(i);
    return;
  }
  tbb::task_arena arena(ThreadsFor(jobs));
  arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<std::size_t>(0, n, 1),
        [&](const tbb::blocked_range<std::size_t>& range) {
          for (std::size_t i = range.begin(); i != range.end(); ++i) f(i);
        },
        tbb::simple_partitioner());
  });
}

// Calls f(begin, end) over [0, n) in pieces of about `grain`.
template <typename F>
void ParallelChunks(unsigned jobs, std::size_t n, std::size_t grain, F&& f) {
  const std::size_t pieces = (n + grain - 1) / grain;
  ParallelFor(jobs, pieces, [&](std::size_t i) { f(i * grain, i * grain + grain < n ? i * grain + grain : n); });
}

}  // namespace lockstep::merge
