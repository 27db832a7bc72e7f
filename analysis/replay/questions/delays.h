#pragma once
// Which work makes others wait, and through whom: delays as Scalasca defines them (Boehme,
// Geimer, Wolf, Arnold: "Identifying the root causes of wait states in large-scale parallel
// applications", ICPP 2010; the names short-term and long-term are its manual's).
//
// A wait state is the time a rank can do nothing because another one, its delayer, has not come: to a collective,
// blocking or waited for, or to a message. Its cause lies between the last synchronisation of the two and now: what the
// delayer did there beyond what the waiting rank did. That is work (a delay) or waiting of its own, which has causes
// elsewhere. The wait is shared among them by their lengths; work gets short-term costs, and waiting hands its share on
// to its own causes, which get long-term costs. So a messenger that only waited itself is charged nothing.

#include <cstdint>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"
#include "analysis/replay/graph/simulate.h"

namespace lockstep::replay {

struct WaitState {
  std::uint32_t rank = 0, delayer = 0;  // Positions.
  std::uint32_t operation = 0;          // That could not begin, or not go on.
  std::uint32_t arrival = 0;            // The delayer's operation that it waited for.
  std::int64_t begin_ns = 0, end_ns = 0;
  double explained = 0;  // Share of it that has causes.
};

struct DelayCost {
  std::uint32_t operation = 0;  // What took longer.
  double short_term_ns = 0, long_term_ns = 0;
};

struct Delays {
  std::vector<WaitState> waits;  // By end.
  std::vector<DelayCost> costs;  // By operation.
};

// `schedule`: of the job, as it was.
Delays FindDelays(const RecordedRun& run, const Job& job, const Schedule& schedule);

}  // namespace lockstep::replay
