#pragma once
// The tables, each in the file of its name; the list in order is in tables.cc.

#include <cstdint>

#include "analysis/tables/engine/table.h"

namespace lockstep::tables {

// gpu_memory.device of what is the host's.
inline constexpr std::uint16_t kHostMemory = 65535;

extern const TableKind kKernelsTable, kBreakdownTable, kOpsTable, kRangesTable, kMemoryTable, kSequencesTable,
    kGroupsTable, kCollectivesTable, kGpusTable;
extern const TableKind kIdleTable, kIdleGapsTable, kLaunchesTable, kLaunchBoundTable, kQueueTable, kCopiesTable,
    kCopyListTable, kSyncsTable, kStreamWaitsTable, kCriticalPathTable, kCriticalOpsTable, kStacksTable, kCallersTable;

}  // namespace lockstep::tables
