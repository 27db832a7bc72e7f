#pragma once
// Reads and writes the facts in an imported run's directory. import.h declares what other parts need of such a
// directory.

#include <cstdint>
#include <string>
#include <vector>

#include "ingest/import.h"

namespace lockstep::ingest {

// manifest.json. `run_losses`: those that no rank file has. kIo.
Status WriteManifest(const TraceFiles& traces, const ImportOptions& options, const std::string& run_id,
                     std::int64_t world_size, const std::vector<ImportLoss>& run_losses);

}  // namespace lockstep::ingest
