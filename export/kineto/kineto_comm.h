#pragma once
// What PyTorch writes of a collective or message at its kernel.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/schema.h"

namespace lockstep::exporters {

// World ranks of communicators that the rank's own file does not list, by global id (ExportRun::comm_members).
using CommMembers = std::unordered_map<std::uint64_t, std::vector<std::int32_t>>;

// Appends `, "Collective name": ..., "Process Group Name": ...` for a row of collectives or p2p.
// Columns that the head does not hold (ingest/rank_files/rank_source.h's ReadHead) are not looked at.
void AppendCollectiveArgs(std::string& out, const schema::RankTables& head, const CommMembers& members,
                          std::uint32_t row);
void AppendMessageArgs(std::string& out, const schema::RankTables& head, const CommMembers& members, std::uint32_t row,
                       std::int32_t rank);

// What carried the rank's communication, as PyTorch names it: "nccl" of kernels, "mpi" of calls, else what PyTorch's
// hooks or the imported trace named; "" nothing did.
std::string_view BackendOf(const schema::RankTables& head);

// The list of groups in distributedInfo: `[{"pg_name": ...}, ...]`.
std::string GroupList(const schema::RankTables& head, const CommMembers& members);

// World ranks of a row of comms in its own order, empty if they are not known.
std::vector<std::int32_t> MembersOf(const schema::RankTables& head, const CommMembers& members, std::uint32_t comm);

}  // namespace lockstep::exporters
