#pragma once
// Finds which work makes others wait, and through which ranks: delays as Scalasca defines them (Boehme, Geimer, Wolf,
// Arnold: "Identifying the root causes of wait states in large-scale parallel applications", ICPP 2010; the names
// short-term and long-term are from its manual).
//
// A wait state is the time in which a rank is idle because another one, its delayer, has not arrived: at a collective,
// blocking or waited for, or with a message. Its cause is between the last synchronisation of the two and now: what the
// delayer did there beyond what the waiting rank did. That is work (a delay) or waiting of its own, which has causes on
// other ranks. The wait is divided among them by their lengths; work gets short-term costs, and waiting passes its
// share on to its own causes, which get long-term costs. So a rank that only waited itself is charged nothing.

#include <cstdint>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"
#include "analysis/replay/graph/simulate.h"

namespace lockstep::replay {

struct WaitState {
  std::uint32_t rank = 0, delayer = 0;  // Indices of ranks.
  std::uint32_t operation = 0;          // The operation that could not begin or continue.
  std::uint32_t arrival = 0;            // The delayer's operation for which it waited.
  std::int64_t begin_ns = 0, end_ns = 0;
  double explained = 0;  // The share of it with known causes.
};

struct DelayCost {
  std::uint32_t operation = 0;  // The operation that took longer.
  double short_term_ns = 0, long_term_ns = 0;
};

struct Delays {
  std::vector<WaitState> waits;  // Sorted by end.
  std::vector<DelayCost> costs;  // Sorted by operation.
};

// `schedule`: that of the unchanged job.
Delays FindDelays(const RecordedRun& run, const Job& job, const Schedule& schedule);

}  // namespace lockstep::replay
