#include "analysis/replay/graph/units.h"

#include <algorithm>
#include <set>
#include <utility>

#include "analysis/rules/replay.h"

namespace lockstep::replay {
namespace {

using Sizes = std::set<std::pair<std::uint64_t, std::uint64_t>>;  // Communicator, bytes.

// Gradients may be reduced in another type than parameters are gathered in.
bool HasBytesOf(const Sizes& sizes, const RunCollective& c) {
  return sizes.contains({c.comm, c.bytes}) || sizes.contains({c.comm, 2 * c.bytes}) ||
         (c.bytes % 2 == 0 && sizes.contains({c.comm, c.bytes / 2}));
}

void FindAllReducesOfUnits(const RecordedRun& run, const std::vector<RecordedRun::Launch>& launches,
                           UnitCollectives& units) {
  Sizes gathered;  // In this step so far.
  std::uint32_t step = kNone;
  for (const RecordedRun::Launch& launch : launches) {
    if (launch.step == kNone) continue;
    if (launch.step != step) gathered.clear();
    step = launch.step;
    const RunCollective& c = run.collectives[launch.collective];
    if (c.bytes <= rules::kTinyTransferBytes) continue;  // Any two of a few bytes may be alike.
    if (c.kind == CollectiveKind::kAllGather)
      gathered.insert({c.comm, c.bytes});
    else if (c.kind == CollectiveKind::kAllReduce && HasBytesOf(gathered, c))
      units.reductions[launch.collective] = true;
  }
}

}  // namespace

UnitCollectives FindUnits(const RecordedRun& run) {
  const std::size_t count = run.collectives.size();
  UnitCollectives units{std::vector<bool>(count, false), std::vector<bool>(count, false)};
  const std::vector<RecordedRun::Launch> launches = run.LaunchesOfFirstRank();
  for (std::size_t i = 0; i < count; ++i)
    units.reductions[i] = run.collectives[i].kind == CollectiveKind::kReduceScatter;
  if (std::find(units.reductions.begin(), units.reductions.end(), true) == units.reductions.end())
    FindAllReducesOfUnits(run, launches, units);
  Sizes reduced;
  for (std::size_t i = 0; i < count; ++i)
    if (units.reductions[i]) reduced.insert({run.collectives[i].comm, run.collectives[i].bytes});
  for (std::size_t i = 0; i < count; ++i) {
    const RunCollective& c = run.collectives[i];
    units.gathers[i] = c.kind == CollectiveKind::kAllGather && c.bytes > 0 &&
                       (c.bytes >= rules::kUnitGatherLeastBytes || HasBytesOf(reduced, c));
  }
  for (const RecordedRun::Launch& launch : launches)
    if (launch.step != kNone && units.reductions[launch.collective])
      units.reduced_bytes += run.collectives[launch.collective].bytes;
  return units;
}

}  // namespace lockstep::replay
