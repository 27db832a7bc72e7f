#pragma once
// One process's recorded tables, whatever the file they lie in: a finished rank
// file, an unfinished one, or a spool with leftover rings. merge and recover read
// through this; ingest/formats.def lists the formats.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/schema.h"
#include "ingest/rank_files/event_reader.h"
#include "trace/file/strings.h"

namespace lockstep::ingest {

struct ReadTables {
  schema::RankTables tables;
  std::vector<std::string> damaged;  // "mpi_calls: chunk 3: bad deflate stream", one per table hurt.
};

// Thread: any number may read at once. Impossible times are clamped so that later sums cannot overflow, and reported in
// `damaged`, for every format.
class RankSource {
 public:
  virtual ~RankSource() = default;

  // What a merge keeps for its whole length: the tables that say who the rank was, its
  // strings, communicators, steps, windows and clock (schema::kHead); of collectives and p2p (schema::kHeadInPart)
  // all columns but the few that hdf5_source.cc names; a file gives those empty. The long tables (schema::kPieces) are
  // read through OpenEvents.
  ReadTables ReadHead() const;
  std::unique_ptr<EventReader> OpenEvents() const { return LoadEvents(); }
  ReadTables ReadAll() const;

  // Rows of event tables (schema::kEvents).
  virtual std::uint64_t EventRows() const = 0;
  // The file was closed in good order.
  virtual bool complete() const = 0;

 private:
  virtual ReadTables LoadHead() const = 0;
  virtual std::unique_ptr<EventReader> LoadEvents() const = 0;
  virtual ReadTables LoadAll() const = 0;
};

using RankSources = std::vector<std::unique_ptr<RankSource>>;

// A file format that holds rank tables.
struct RankFormat {
  std::string_view name;
  bool (*sniff)(std::string_view first_bytes);
  Result<RankSources> (*open)(const std::string& path);  // One per process in the file; not empty.
};

// Opens a file in whichever format it is. kNotFound, kIo; kMalformed: no format
// knows it or its format is broken; kUnsupported: a newer version's.
Result<RankSources> OpenRankSources(const std::string& path);

using trace::MetaNumber;
using trace::MetaValue;

// Ranks of a job at most: each one without a file becomes a row of `ranks`, so that a damaged
// number must not count as one.
inline constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int32_t ToldRank(std::int64_t number) {
  return number >= 0 && number < kMostRanks ? static_cast<std::int32_t>(number) : -1;
}
// A job's or group's size; 0, not known, for impossible values.
constexpr std::int64_t ToldSize(std::int64_t number) { return number > 0 && number <= kMostRanks ? number : 0; }
// Rank in the job as the process itself knew it (MPI, environment, NCCL), -1 unknown.
std::int32_t WorldRankOf(const schema::RankTables& tables);

}  // namespace lockstep::ingest
