#include "runtime/agent/slot/convert.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "core/own_file.h"
#include "runtime/agent/rings/memory_limits.h"
#include "runtime/agent/slot/file_memory.h"
#include "trace/decode/decode.h"
#include "trace/file/table_file.h"

namespace lockstep::agent {
namespace {

// Private memory beyond which the tables are in a file (FileMemory).
constexpr std::uint64_t kMostPrivateBytes = 48'000'000;

// Memory of a conversion: all tables of a rank, and a chunk of each column that is not full yet (bench/footprint).
std::uint64_t MemoryToConvert(std::uint64_t spool_bytes) {
  constexpr std::uint64_t kChunksBytes = 16'000'000;
  return 4 * spool_bytes + std::min(spool_bytes, kChunksBytes);
}

SlotRanks RanksOf(const trace::Decoded& decoded) {
  SlotRanks slot;
  std::size_t earlier = 0, contradicted = 0;
  std::string first;
  for (const trace::DecodedProcess& process : decoded.processes) {
    const trace::ProcessIdentity& who = process.identity;
    earlier += who.earlier;
    if (who.rank < 0) continue;
    slot.by_themselves = slot.by_themselves || who.proof > trace::RankProof::kSlot;
    slot.world_size = std::max(slot.world_size, who.world_size);
    if (slot.ranks.empty() || slot.ranks.back() != who.rank) slot.ranks.push_back(who.rank);
    if (who.instead_of.empty()) continue;
    if (contradicted++ == 0)
      first = "rank " + std::to_string(who.rank) + " of " + std::to_string(who.world_size) + " is " + who.instead_of;
  }
  if (contradicted > 0)
    slot.notes.push_back(first + (contradicted > 1 ? " (so are " + std::to_string(contradicted - 1) + " others)" : "") +
                         ": recorded as what its communication uses");
  if (earlier > 0)
    slot.notes.push_back("ranks came together more than once (a restart, or several jobs): the last " +
                         std::to_string(slot.ranks.size()) + " are analysed, files of " + std::to_string(earlier) +
                         " from before lie beside theirs");
  return slot;
}

}  // namespace

std::string NoRoomToConvert(std::uint64_t spool_bytes, std::int32_t at_once) {
  return NoRoomFor(MemoryToConvert(spool_bytes), spool_bytes, at_once);
}

Result<Converted> ConvertSpool(const std::string& spool_path, const RunDir& dir, std::int32_t slot,
                               std::int32_t local_slots) {
  // Other ranks of the node may still compute. Where memory ends all the same, the kernel shall take this process, and
  // the analysis that it starts: its program's end is known to the launched process.
  ::setpriority(PRIO_PROCESS, 0, 10);
  std::ofstream("/proc/self/oom_score_adj") << 1000;
  struct stat spool {};
  ::stat(spool_path.c_str(), &spool);
  const auto spool_bytes = static_cast<std::uint64_t>(spool.st_size);
  std::uint64_t bytes = MemoryToConvert(spool_bytes);
  std::optional<FileMemory> memory;
  if (bytes > kMostPrivateBytes) {
    // Columns grow by doubling, and are sorted by copying.
    memory.emplace(DirectoryOf(spool_path), 16 * spool_bytes);
    if (memory->in_file()) bytes = kMostPrivateBytes;
  }
  if (std::string why = NoRoomFor(bytes, spool_bytes, local_slots); !why.empty())
    return Error{ErrorCode::kUnsupported, std::move(why), spool_path, "give the job more memory"};
  LS_TRY(const trace::Decoded decoded, trace::DecodeSpool({.spool_path = spool_path}));
  Converted converted{.files = {}, .ranks = RanksOf(decoded)};
  // The main file is the last to get its name, so a reader that finds it finds all the others.
  std::vector<trace::NamedTables> files;
  for (std::size_t i = decoded.processes.size(); i-- > 0;) {
    const std::string suffix = i == 0 ? ".h5" : ".p" + std::to_string(i + 1) + ".h5";
    files.push_back({dir.RankFile(slot, suffix.c_str()), &decoded.processes[i].tables});
  }
  LS_CHECK(trace::WriteRankFiles(files));
  std::reverse(files.begin(), files.end());
  for (const trace::NamedTables& file : files) {
    struct stat info {};
    ::stat(file.path.c_str(), &info);
    converted.files.push_back({file.path, static_cast<std::uint64_t>(info.st_size)});
  }
  return converted;
}

}  // namespace lockstep::agent
