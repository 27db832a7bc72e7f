#pragma once
// How much of a core a rank's main thread used before its last sign of life.

#include <cstdint>
#include <string>

#include "hang/progress.h"
#include "ingest/rank_files/event_reader.h"

namespace lockstep::recorded {

// Of its main thread in its last seconds before `end_ns`: "computing (CPU 98 %)"; "" not known. Fills in
// `facts.cpu_share`; what it slept in is taken from `facts`.
std::string CpuWords(ingest::EventReader& reader, const schema::RankTables& head, std::int64_t end_ns,
                     hang::RankFacts& facts);

}  // namespace lockstep::recorded
