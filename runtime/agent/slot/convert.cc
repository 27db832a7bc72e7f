#include "runtime/agent/slot/convert.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "trace/decode/decode.h"
#include "trace/file/table_file.h"

namespace lockstep::agent {
namespace {

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

Result<Converted> ConvertSpool(const std::string& spool_path, const RunDir& dir, std::int32_t slot) {
  // Other ranks of the node may still compute.
  ::setpriority(PRIO_PROCESS, 0, 10);
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
