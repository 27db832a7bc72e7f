#pragma once
// Converts a spool and leftover rings to the tables of a rank file. Every part uses this decoder: the agent after the
// application has ended, merge for unfinished ranks, and recover for finishing them.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/schema.h"
#include "trace/decode/identity.h"

namespace lockstep::trace {

struct DecodeInput {
  std::string spool_path;
  std::string segment_path;  // "" or absent: rings already drained. Else slots [tail, head) of each ring are appended.
};

// Tables of one process. A slot with several processes that used a source gives several.
struct DecodedProcess {
  std::uint32_t process = 0;  // Ranks of the run first, in their order; 0 is the slot's main process.
  ProcessIdentity identity;
  schema::RankTables tables;
};

struct Decoded {
  std::vector<DecodedProcess> processes;
  bool ended = false;                      // SpoolEnd was there.
  std::uint64_t bad_blocks = 0;            // Also in the losses tables.
  std::uint64_t recovered_from_rings = 0;  // Records that were only in the segment.
};

// kNotFound if the spool is absent, kMalformed if no block is readable.
// Everything readable is decoded, everything else is counted in `losses`.
Result<Decoded> DecodeSpool(const DecodeInput& input);

}  // namespace lockstep::trace
