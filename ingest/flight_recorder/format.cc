// Recognises and reads dumps of PyTorch's Flight Recorder.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/own_file.h"
#include "ingest/dump_file.h"
#include "ingest/flight_recorder/combine.h"
#include "ingest/flight_recorder/dump.h"
#include "ingest/flight_recorder/pickle.h"
#include "ingest/progress_format.h"
#include "merge/parallel.h"

namespace lockstep::ingest {
namespace {

// A dump of 20 000 entries with long stacks has 60 MB.
constexpr std::uint64_t kMostBytes = std::uint64_t{512} << 20;

bool NamedLike(std::string_view path) {
  const std::string_view name = BaseName(path);
  for (const std::string_view begin : {"_dump_", "nccl_trace_rank_", "comm_lib_trace_rank_"})
    if (name.starts_with(begin)) return true;
  return name.find("fr_trace") != std::string_view::npos;
}

bool LooksLike(const FileLook& look) {
  const bool json = look.head.find_first_not_of(" \t\r\n") != std::string::npos &&
                    look.head[look.head.find_first_not_of(" \t\r\n")] == '{';
  if (!flight_recorder::BeginsLikePickle(look.first) && !json) return false;
  // Traces of torch.profiler have process groups, too, and these not.
  for (const std::string_view word : {"pg_status", "collective_seq_id", "last_enqueued_collective"})
    if (look.head.find(word) != std::string::npos || look.tail.find(word) != std::string::npos) return true;
  return look.head.find("entries") != std::string::npos && look.head.find("pg_config") != std::string::npos;
}

Result<flight_recorder::Dump> ReadFile(const std::string& path) {
  LS_TRY(const std::string bytes, ReadDumpFile(path, kMostBytes));
  return flight_recorder::ReadDump(bytes);
}

std::string Sentence(const DumpFile& file, const Error& error) {
  return file.name + ": " + error.what + (error.where.empty() ? "" : " (" + error.where + ")");
}

Result<ReadProgress> Read(const std::vector<DumpFile>& files, unsigned jobs) {
  std::vector<flight_recorder::RankDump> dumps(files.size());
  std::vector<Error> errors(files.size(), {ErrorCode::kInternal, "", "", ""});
  merge::ParallelFor(jobs, files.size(), [&](std::size_t i) {
    Result<flight_recorder::Dump> dump = ReadFile(files[i].path);
    if (!dump.ok()) {
      errors[i] = dump.error();
      return;
    }
    dumps[i].dump = std::move(dump).value();
    dumps[i].rank = dumps[i].dump.told_rank >= 0 ? dumps[i].dump.told_rank : files[i].rank;
    dumps[i].modified_ns = files[i].modified_ns;
    if (dumps[i].rank < 0)
      errors[i] = {ErrorCode::kMalformed, "neither the file nor its name tells its rank", "", "name it _dump_RANK"};
  });
  ReadProgress read;
  std::map<std::int32_t, std::size_t> of_rank;  // Of two dumps of one rank, the later.
  std::vector<std::int32_t> unread;             // Their ranks, as far as the names tell them.
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!errors[i].what.empty()) {
      read.notes.push_back(Sentence(files[i], errors[i]));
      unread.push_back(files[i].rank);
      continue;
    }
    const auto [at, fresh] = of_rank.try_emplace(dumps[i].rank, i);
    if (fresh) continue;
    const bool later = dumps[i].dump.latest_ns > dumps[at->second].dump.latest_ns;
    const std::size_t left = later ? at->second : i;
    if (later) at->second = i;
    read.notes.push_back(files[left].name + ": another dump of rank " + std::to_string(at->first) + " is used, " +
                         files[at->second].name);
  }
  if (of_rank.empty()) {
    Error first = files.empty() ? Error{ErrorCode::kNotFound, "there are no dumps", "", ""} : errors[0];
    first.where = (files.empty() ? "" : files[0].name) + (first.where.empty() ? "" : ", " + first.where);
    return first;
  }
  std::vector<flight_recorder::RankDump> used;
  for (const auto& [rank, i] : of_rank) used.push_back(std::move(dumps[i]));
  read.used = used.size();
  read.progress = flight_recorder::Combine(used, read.notes);
  if (std::any_of(unread.begin(), unread.end(), [&](std::int32_t rank) { return !of_rank.contains(rank); }))
    read.progress.open = hang::Open::kUnreadFiles;
  return read;
}

}  // namespace

extern const ProgressFormat kFlightRecorderFormat;
const ProgressFormat kFlightRecorderFormat = {
    .name = "flight_recorder",
    .program = "PyTorch's Flight Recorder",
    .what = "Flight Recorder dumps",
    .named_like = NamedLike,
    .looks_like = LooksLike,
    .read = Read,
};

}  // namespace lockstep::ingest
