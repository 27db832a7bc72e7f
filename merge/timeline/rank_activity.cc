#include "merge/timeline/rank_activity.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "ingest/rank_files/rank_source.h"
#include "merge/match/message_numbers.h"
#include "merge/timeline/blocked_time.h"

namespace lockstep::merge {
namespace {

template <typename Table>
void ReadWhole(ingest::EventReader& events, schema::Columns<Table> columns, Table& into) {
  // Columns that cannot be read stay empty, as with ReadRank.
  if (!events.Read(columns, 0, events.Rows(Table::kInfo.name), into)) into = {};
}

}  // namespace

Result<std::unique_ptr<ingest::RankSource>> OpenRank(const Timeline& timeline, std::int32_t rank) {
  const std::int64_t row = timeline.RankRow(rank);
  const std::string file(row < 0 ? std::string_view{}
                                 : timeline.Text(timeline.tables.ranks.file[static_cast<std::size_t>(row)]));
  if (file.empty())
    return Error{ErrorCode::kNotFound, "rank " + std::to_string(rank) + " has no file in this run", timeline.run_dir,
                 "gather the files of all nodes into the run directory"};
  LS_TRY(ingest::RankSources sources,
         ingest::OpenRankSources((std::filesystem::path(timeline.run_dir) / file).string()));
  for (auto& source : sources)
    if (sources.size() == 1 || ingest::WorldRankOf(source->ReadHead().tables) == rank) return std::move(source);
  return Error{ErrorCode::kNotFound, "the file no longer holds rank " + std::to_string(rank), file,
               "run lockstep merge again"};
}

Result<schema::RankTables> ReadRankActivity(const Timeline& timeline, std::int32_t rank) {
  LS_TRY(const std::unique_ptr<ingest::RankSource> source, OpenRank(timeline, rank));
  schema::RankTables tables = source->ReadHead().tables;
  const std::unique_ptr<ingest::EventReader> events = source->OpenEvents();
  ReadWhole<schema::MpiCalls>(
      *events,
      {&schema::MpiCalls::begin_ns, &schema::MpiCalls::duration_ns, &schema::MpiCalls::thread, &schema::MpiCalls::op},
      tables.mpi_calls);
  ReadWhole<schema::Ranges>(*events,
                            {&schema::Ranges::begin_ns, &schema::Ranges::duration_ns, &schema::Ranges::thread,
                             &schema::Ranges::category, &schema::Ranges::name, &schema::Ranges::source},
                            tables.ranges);
  ReadWhole<schema::Blocked>(*events, kWaitColumns, tables.blocked);
  ReadWhole<schema::Kernels>(
      *events, {&schema::Kernels::begin_ns, &schema::Kernels::duration_ns, &schema::Kernels::work}, tables.kernels);
  ReadWhole<schema::CpuSamples>(*events,
                                {&schema::CpuSamples::time_ns, &schema::CpuSamples::thread, &schema::CpuSamples::cpu_ns,
                                 &schema::CpuSamples::run_delay_ns},
                                tables.cpu_samples);
  ApplyMessageNumbers(timeline.tables.message_numbers, rank, tables);
  return tables;
}

Result<schema::RankTables> WalkRankKernels(
    const Timeline& timeline, std::int32_t rank,
    const std::function<void(const schema::RankTables& head, const schema::Kernels& rows)>& each) {
  LS_TRY(const std::unique_ptr<ingest::RankSource> source, OpenRank(timeline, rank));
  schema::RankTables head = source->ReadHead().tables;
  const std::unique_ptr<ingest::EventReader> events = source->OpenEvents();
  const std::uint64_t rows = events->Rows(schema::Kernels::kInfo.name);
  constexpr schema::Columns<schema::Kernels> kColumns(&schema::Kernels::begin_ns, &schema::Kernels::duration_ns,
                                                      &schema::Kernels::work, &schema::Kernels::name);
  schema::Kernels piece;
  for (std::uint64_t first = 0; first < rows; first += ingest::kPieceRows)
    if (events->Read(kColumns, first, std::min(ingest::kPieceRows, rows - first), piece)) each(head, piece);
  return head;
}

}  // namespace lockstep::merge
