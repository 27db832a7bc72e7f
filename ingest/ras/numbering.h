#pragma once
// The ranks of the job, of which RAS knows only those in each communicator.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "ingest/ras/answer.h"

namespace lockstep::ras {

struct Numbering {
  // By number of the communicator in the answer: the job's rank of each of its ranks; empty: not known.
  std::vector<std::vector<std::int32_t>> ranks;
  // No communicator holds the whole job: the numbers are not the job's ranks, but those of the processes in the order
  // of hosts, GPUs and ids.
  bool own = false;
};

// A text names few processes: of communicators that do not hold the whole job it does not tell who their ranks are.
Numbering NumberingOf(const Answer& answer);

}  // namespace lockstep::ras
