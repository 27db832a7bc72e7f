#pragma once
// What a process as a whole says about its GPU sources, and the agent's readings of the GPUs.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/spool_layout.h"
#include "trace/decode/process_decoder.h"
#include "trace/spool/leftover_rings.h"

namespace lockstep::trace {

// Losses of a process whose GPU activity is not or not wholly in the file. `end_ticks`: when the slot
// was last heard of, 0 unknown.
void AddGpuLosses(ProcessDecoder& decoder, schema::RankTables& tables, const TickMap& map, const ProcessState& state,
                  std::uint64_t end_ticks);

// A process without a rank of its own has NCCL's, if one communicator holds the whole job; -1: it has not,
// or `meta` knows better.
std::int32_t RankFromNccl(const schema::RankTables& tables, const std::map<std::string, std::string>& meta);

// Rows of gpu_samples; devices by the uuids that `processes` gave them, the earlier first.
void AddGpuSamples(schema::RankTables& tables, const TickMap& map, const std::vector<GpuSample>& samples,
                   const std::vector<const GpuRecords*>& processes);

}  // namespace lockstep::trace
