#pragma once
// Adds what concerns a process's GPU sources as a whole, and the agent's readings of the GPUs.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/spool_layout.h"
#include "trace/decode/process_decoder.h"
#include "trace/spool/leftover_rings.h"

namespace lockstep::trace {

// Adds the losses of a process whose GPU activity is not, or not completely, in the file. `end_ticks`: the slot's last
// sign of life, 0 unknown.
void AddGpuLosses(ProcessDecoder& decoder, schema::RankTables& tables, const TickMap& map, const ProcessState& state,
                  std::uint64_t end_ticks);

// The rank of a process that has none of its own, from NCCL, if one communicator contains the whole job; -1 if there is
// none, or `meta` contains a better answer.
std::int32_t RankFromNccl(const schema::RankTables& tables, const std::map<std::string, std::string>& meta);

// Adds rows of gpu_samples; devices are found by the uuids that `processes` reported, earlier processes first.
void AddGpuSamples(schema::RankTables& tables, const TickMap& map, const std::vector<GpuSample>& samples,
                   const std::vector<const GpuRecords*>& processes);

}  // namespace lockstep::trace
