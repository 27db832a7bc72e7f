#include "ingest/rank_files/rank_source.h"

#include <cerrno>
#include <fstream>
#include <system_error>

namespace lockstep::ingest {

#define LS_FOREIGN_FORMAT(format)
#define LS_PROGRESS_FORMAT(format)
#define LS_RANK_FORMAT(format) extern const RankFormat format;
#include "ingest/formats.def"
#undef LS_RANK_FORMAT

namespace {
#define LS_RANK_FORMAT(format) &format,
const RankFormat* const kFormats[] = {
#include "ingest/formats.def"
};
#undef LS_RANK_FORMAT
#undef LS_PROGRESS_FORMAT
#undef LS_FOREIGN_FORMAT
}  // namespace

Result<RankSources> OpenRankSources(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Error{ErrorCode::kNotFound, "the file cannot be opened: " + std::generic_category().message(errno), path,
                 "check that it exists and may be read"};
  char first[16] = {};
  file.read(first, sizeof first);
  const std::string_view bytes(first, static_cast<std::size_t>(file.gcount()));
  for (const RankFormat* format : kFormats)
    if (format->sniff(bytes)) return format->open(path);
  return Error{ErrorCode::kMalformed, bytes.empty() ? "the file is empty" : "not a Lockstep rank file", path,
               "copy it again from where it was recorded"};
}

std::int32_t WorldRankOf(const schema::RankTables& tables) {
  if (const std::int32_t rank = ToldRank(MetaNumber(tables, "rank", -1)); rank >= 0) return rank;
  for (const std::int32_t of_process : tables.processes.world_rank)
    if (ToldRank(of_process) >= 0) return of_process;
  return -1;
}

}  // namespace lockstep::ingest
