#include "merge/timeline/rank_activity.h"

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

#include "ingest/rank_files/rank_source.h"

namespace lockstep {
namespace {

template <typename Table>
void ReadWhole(EventReader& events, std::initializer_list<std::string_view> columns, Table& into) {
  // What cannot be read stays empty, as with ReadRank.
  if (!events.Read(ColumnNames(columns.begin(), columns.size()), 0, events.Rows(Table::kInfo.name), into)) into = {};
}

}  // namespace

Result<schema::RankTables> ReadRankActivity(const Timeline& timeline, std::int32_t rank) {
  const std::int64_t row = timeline.RankRow(rank);
  const std::string file(row < 0 ? std::string_view{}
                                 : timeline.Text(timeline.tables.ranks.file[static_cast<std::size_t>(row)]));
  if (file.empty()) return timeline.ReadRank(rank).error();
  LS_TRY(auto sources, OpenRankSources((std::filesystem::path(timeline.run_dir) / file).string()));
  for (auto& source : sources) {
    schema::RankTables tables = source->ReadHead().tables;
    if (sources.size() > 1 && WorldRankOf(tables) != rank) continue;
    const std::unique_ptr<EventReader> events = source->OpenEvents();
    ReadWhole(*events, {"begin_ns", "duration_ns", "thread", "count"}, tables.mpi_calls);
    ReadWhole(*events, {"begin_ns", "duration_ns", "thread", "category", "name"}, tables.ranges);
    ReadWhole(*events, {"begin_ns", "duration_ns", "work"}, tables.kernels);
    ReadWhole(*events, {"time_ns", "thread", "cpu_ns", "run_delay_ns"}, tables.cpu_samples);
    return tables;
  }
  return Error{ErrorCode::kNotFound, "the file no longer holds rank " + std::to_string(rank), file,
               "run lockstep merge again"};
}

}  // namespace lockstep
