#pragma once
// What PyTorch writes of a collective or message at its kernel.

#include <cstdint>
#include <string>

#include "core/schema.h"

namespace lockstep::exporters {

// Appends `, "Collective name": ..., "Process Group Name": ...` for a row of collectives or p2p.
// Columns that the head does not hold (core/rank_source.h's ReadHead) are not looked at.
void AppendCollectiveArgs(std::string& out, const schema::RankTables& head, std::uint32_t row);
void AppendMessageArgs(std::string& out, const schema::RankTables& head, std::uint32_t row, std::int32_t rank);

// The list of groups in distributedInfo: `[{"pg_name": ...}, ...]`.
std::string GroupList(const schema::RankTables& head);

}  // namespace lockstep::exporters
