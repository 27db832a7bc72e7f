#pragma once
// Converts the spool to rank files after the application has ended in good order.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/agent/rundir/run_dir.h"

namespace lockstep::agent {

struct RunFile {
  std::string path;
  std::uint64_t bytes = 0;
};

// The ranks that the slot's processes had (trace/decode/identity.h).
struct SlotRanks {
  std::vector<std::int32_t> ranks;  // Ascending. The launcher's number is used for processes that recorded none.
  std::int32_t world_size = -1;     // -1 unknown.
  bool by_themselves = false;       // A process determined its rank itself; the launcher need not know it.
  std::vector<std::string> notes;   // Sentences about contradictions, each worth a line.

  // Every rank of their world belongs to this slot.
  bool AllHere() const {
    return by_themselves && world_size > 0 && ranks.size() == static_cast<std::size_t>(world_size);
  }
};

struct Converted {
  std::vector<RunFile> files;
  SlotRanks ranks;
};

// Writes ranks/rank-NNNNN.h5 (further processes that used a source: .p2.h5, ...) from the spool, at low priority. The
// spool is left to the caller. kUnsupported: there is too little memory, if `local_slots` do so at the same time.
Result<Converted> ConvertSpool(const std::string& spool_path, const RunDir& dir, std::int32_t slot,
                               std::int32_t local_slots);

// Whether the memory allows to convert a spool of this size, as many at the same time: "", or why not.
std::string NoRoomToConvert(std::uint64_t spool_bytes, std::int32_t at_once);

}  // namespace lockstep::agent
