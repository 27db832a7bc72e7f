#pragma once
// The tables, each in the file of its name; the list in order is in tables.cc.

#include "analysis/tables/engine/table.h"

namespace lockstep::tables {

extern const TableKind kKernelsTable, kBreakdownTable, kOpsTable, kRangesTable, kMemoryTable, kSequencesTable,
    kGroupsTable, kCollectivesTable, kGpusTable;
extern const TableKind kIdleTable, kIdleGapsTable, kLaunchesTable, kLaunchBoundTable, kQueueTable, kCopiesTable,
    kCopyListTable, kSyncsTable, kStreamWaitsTable, kCriticalPathTable, kCriticalOpsTable, kStacksTable, kCallersTable,
    kBlockedTable, kWaitsTable;

}  // namespace lockstep::tables
