#pragma once
// A rank's tables as the trace file that torch.profiler (Kineto) would have written.

#include <cstdint>
#include <string>

#include "core/result.h"
#include "make_run/simulate.h"

namespace lockstep::make_run {

// Name of the rank's file below the run directory.
std::string KinetoFileName(const Spec& spec, std::int32_t rank);
// Times are those of the tables: the rank's clock. The operators, annotations and
// further calls around the tables' rows follow from them (README.md, "Kineto").
Status WriteKineto(const Spec& spec, std::int32_t rank, const RankOutput& output, const std::string& path);

}  // namespace lockstep::make_run
