#pragma once
// Applies core/helper_waits.h to a rank's tables: when its training thread waited for collectives of other threads of
// its process.

#include <cstdint>

#include "core/helper_waits.h"
#include "core/interval.h"
#include "core/schema.h"
#include "ingest/rank_files/event_reader.h"

namespace lockstep::merge {

using lockstep::EndToleranceNs;
using lockstep::kGivesBucketAway;

// On the rank's clock; empty unless other threads make blocking collectives and steps contain the CPU time of the
// training thread.
IntervalSet HelperWaits(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training);
// The same for tables in memory.
IntervalSet HelperWaits(const schema::RankTables& tables, std::uint32_t training);

}  // namespace lockstep::merge
