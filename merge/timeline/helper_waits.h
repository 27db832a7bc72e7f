#pragma once
// core/helper_waits.h on a rank's tables: when its training thread waited for collectives that other threads of its
// process made.

#include <cstdint>

#include "core/helper_waits.h"
#include "core/interval.h"
#include "core/schema.h"
#include "ingest/rank_files/event_reader.h"

namespace lockstep::merge {

using lockstep::EndToleranceNs;
using lockstep::kGivesBucketAway;

// Rank clock; empty unless other threads make blocking collectives and steps carry the CPU time of the training
// thread.
IntervalSet HelperWaits(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training);
// The same of tables in memory.
IntervalSet HelperWaits(const schema::RankTables& tables, std::uint32_t training);

}  // namespace lockstep::merge
