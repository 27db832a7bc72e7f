#pragma once
// The arguments that PyTorch writes to the kernel of a collective or message.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/schema.h"
#include "export/common/json_writer.h"

namespace lockstep::exporters {

// World ranks of communicators that the rank's own file does not list, by global id (ExportRun::comm_members).
using CommMembers = std::unordered_map<std::uint64_t, std::vector<std::int32_t>>;

// Writes the members "Collective name", "Process Group Name" and so on of a row of collectives or p2p.
// Columns that the head does not hold (ingest/rank_files/rank_source.h's ReadHead) are not used.
void WriteCollectiveArgs(JsonWriter& json, const schema::RankTables& head, const CommMembers& members,
                         std::uint32_t row);
void WriteMessageArgs(JsonWriter& json, const schema::RankTables& head, const CommMembers& members, std::uint32_t row,
                      std::int32_t rank);

// The backend of the rank's communication, as PyTorch names it: "nccl" for kernels, "mpi" for calls, else the one that
// PyTorch's hooks or the imported trace named; "" if there is none.
std::string_view BackendOf(const schema::RankTables& head);

// Writes the list of groups in distributedInfo: `[{"pg_name": ...}, ...]`. Each group begins with `line`.
void WriteGroupList(JsonWriter& json, std::string_view line, const schema::RankTables& head,
                    const CommMembers& members);

// World ranks of a row of comms in its own order, empty if they are not known.
std::vector<std::int32_t> MembersOf(const schema::RankTables& head, const CommMembers& members, std::uint32_t comm);

}  // namespace lockstep::exporters
