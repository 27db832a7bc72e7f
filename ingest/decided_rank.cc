#include "ingest/decided_rank.h"

#include <algorithm>
#include <utility>

#include "ingest/map/finish.h"
#include "ingest/map/groups.h"
#include "trace/file/strings.h"
#include "trace/file/table_file.h"

namespace lockstep::ingest {

Result<schema::RankTables> AsDecided(const std::string& path, const PlannedRank& planned, std::int64_t world,
                                     const std::string& source, TraceSummary& s) {
  LS_TRY(trace::RankFileContents contents, trace::ReadRankFile(path));
  schema::RankTables& t = contents.tables;
  trace::StringInterner<schema::Strings, schema::StringBytes> strings(t.strings, t.string_bytes);
  // The interner starts empty: a text that exists already gets a second row, which is harmless.
  for (std::uint32_t i = 0; i < t.comms.rows() && i < s.groups.size(); ++i) {
    if (s.groups[i].all_ranks) SetWorld(s.groups[i].group, world);
    const schema::Comms::Row row = CommOf(s.groups[i], i, planned.rank);
    t.comms.global_id[i] = row.global_id, t.comms.size[i] = row.size, t.comms.rank[i] = row.rank;
    t.comms.first_world_rank[i] = row.first_world_rank, t.comms.stride[i] = row.stride;
    t.comms.unidentified[i] = row.unidentified;
  }
  std::fill(t.processes.world_rank.begin(), t.processes.world_rank.end(), planned.rank);
  const auto set = [&](std::string_view key, const std::string& value) {
    for (std::size_t i = 0; i < t.meta.rows(); ++i)
      if (lockstep::trace::TextOf(t, t.meta.key[i]) == key) {
        t.meta.value[i] = strings.Intern(value);
        return;
      }
    t.meta.Append({.key = strings.Intern(key), .value = strings.Intern(value)});
  };
  set("rank", std::to_string(planned.rank));
  set("rank_source", planned.told ? "env" : "slot");
  set("world_size", std::to_string(world));
  // The loss that reports the rank's source is brought up to date.
  const auto of_rank = [](std::string_view name) {
    return name == Info(Loss::kImportRankUnknown).name || name == Info(Loss::kImportRankInferred).name;
  };
  schema::Losses losses;
  for (std::size_t i = 0; i < t.losses.rows(); ++i)
    if (!of_rank(lockstep::trace::TextOf(t, t.losses.name[i]))) losses.Append(t.losses.Get(i));
  std::erase_if(s.losses, [&](const CountedLoss& loss) { return of_rank(Info(loss.loss).name); });
  if (!planned.told) {
    CountedLoss loss = RankNotTold(source, planned.rank, planned.from, planned.guessed);
    losses.Append({.name = strings.Intern(Info(loss.loss).name),
                   .count = loss.count,
                   .first_ns = schema::kNoTime,
                   .last_ns = schema::kNoTime,
                   .thread = schema::kNone,
                   .detail = strings.Intern(loss.detail)});
    s.losses.push_back(std::move(loss));
  }
  t.losses = std::move(losses);
  return std::move(t);
}

}  // namespace lockstep::ingest
