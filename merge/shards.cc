#include "merge/shards.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <vector>

#include "merge/pack.h"
#include "merge/parallel.h"
#include "merge/rules/match.h"
#include "trace/file/digest.h"
#include "trace/file/table_file.h"

namespace lockstep::merge {
namespace {

namespace fs = std::filesystem;

std::string ShardName(unsigned i) {
  char name[64];
  std::snprintf(name, sizeof name, "%s/shard-%05u.h5", kShardDir, i);
  return name;
}

template <typename Table>
Table Slice(const Table& table, std::size_t first, std::size_t count) {
  Table slice;
  std::vector<const void*> columns;
  table.ForEachColumn([&](const schema::ColumnInfo&, const auto& values) { columns.push_back(&values); });
  std::size_t at = 0;
  slice.ForEachColumn([&](const schema::ColumnInfo&, auto& values) {
    const auto& from = *static_cast<const std::remove_reference_t<decltype(values)>*>(columns[at++]);
    values.assign(from.begin() + static_cast<std::ptrdiff_t>(first),
                  from.begin() + static_cast<std::ptrdiff_t>(first + count));
  });
  return slice;
}

template <typename Table>
std::uint64_t DigestOf(const Table& table) {
  trace::ValueDigest digest;
  table.ForEachColumn([&](const schema::ColumnInfo&, const auto& values) {
    digest.Add(reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(values[0]));
  });
  return digest.value();
}

std::size_t FirstRow(std::size_t rows, unsigned shard, unsigned shards) { return rows * shard / shards; }

trace::RunParallel Threads(const MergeOptions& options) {
  return [jobs = options.jobs](std::size_t n, const std::function<void(std::size_t)>& f) { ParallelFor(jobs, n, f); };
}

// Fills the digests of the rows that this shard holds.
Status WriteShard(const MergeOptions& options, const schema::TimelineTables& tables, unsigned shard, unsigned shards,
                  std::vector<std::uint64_t>& digests) {
  LS_TRY(trace::TableFileWriter writer,
         trace::TableFileWriter::Create((fs::path(options.run_dir) / ShardName(shard)).string(),
                                        schema::kTimelineFormat, Threads(options)));
  Status status = writer.SetAttribute("shard", static_cast<std::int64_t>(shard));
  tables.ForEachTable([&](const auto& table) {
    if (!status.ok() || !table.kInfo.Is(schema::kSharded)) return;
    const std::size_t first = FirstRow(table.rows(), shard, shards);
    const auto rows = Slice(table, first, FirstRow(table.rows(), shard + 1, shards) - first);
    digests.push_back(DigestOf(rows));
    status = writer.Append(rows);
  });
  LS_CHECK(std::move(status));
  return writer.Finish();
}

Status WriteIndex(const MergeOptions& options, const schema::TimelineTables& tables,
                  const std::vector<std::vector<std::uint64_t>>& digests) {
  LS_TRY(trace::TableFileWriter writer,
         trace::TableFileWriter::Create((fs::path(options.run_dir) / "timeline.h5").string(), schema::kTimelineFormat,
                                        Threads(options)));
  const auto shards = static_cast<unsigned>(digests.size());
  Status status = Ok();
  std::size_t nth = 0;
  tables.ForEachTable([&](const auto& table) {
    if (!status.ok()) return;
    if (!table.kInfo.Is(schema::kSharded)) {
      status = writer.Append(table);
      return;
    }
    std::vector<trace::TablePart> parts;
    for (unsigned i = 0; i < shards; ++i)
      parts.push_back(
          {ShardName(i), FirstRow(table.rows(), i + 1, shards) - FirstRow(table.rows(), i, shards), digests[i][nth]});
    ++nth;
    status = writer.AddParts(table.kInfo, parts);
  });
  LS_CHECK(std::move(status));
  return writer.Finish();
}

// The first process's error wins, so that all return the same.
Status Agree(MergeTeam& team, const Status& own) {
  Packer packer;
  packer.Put(own.ok());
  if (!own.ok()) {
    const Error& error = own.error();
    packer.Put(error.code, error.what, error.where, error.hint);
  }
  for (const std::string& bytes : team.Share(packer.Take())) {
    Unpacker from(bytes);
    if (from.Take<bool>()) continue;
    Error error{};
    from.Take(error.code, error.what, error.where, error.hint);
    return error;
  }
  return Ok();
}

Status MakeShardDir(const std::string& run_dir) {
  std::error_code error;
  // No reader may see a mixture of two merges.
  fs::remove(fs::path(run_dir) / "timeline.h5", error);
  fs::remove_all(fs::path(run_dir) / kShardDir, error);
  fs::create_directories(fs::path(run_dir) / kShardDir, error);
  if (error)
    return Error{ErrorCode::kIo, "cannot make the directory: " + error.message(),
                 (fs::path(run_dir) / kShardDir).string(), "make the run directory writable"};
  return Ok();
}

}  // namespace

Status WriteShards(const MergeOptions& options, const schema::TimelineTables& tables) {
  MergeTeam& team = *options.team;
  const unsigned shards = std::min(team.count(), rules::kTimelineShards);
  LS_CHECK(Agree(team, team.index() == 0 ? MakeShardDir(options.run_dir) : Ok()));
  std::vector<std::uint64_t> own;
  const bool writes = team.index() < shards;
  LS_CHECK(Agree(team, writes ? WriteShard(options, tables, team.index(), shards, own) : Ok()));
  Packer packer;
  packer.Put(own);
  const std::vector<std::string> all = team.Share(packer.Take());
  std::vector<std::vector<std::uint64_t>> digests(shards);
  for (unsigned i = 0; i < shards; ++i) Unpacker(all[i]).Take(digests[i]);
  return Agree(team, team.index() == 0 ? WriteIndex(options, tables, digests) : Ok());
}

void RemoveShards(const std::string& run_dir) {
  std::error_code ignored;
  fs::remove_all(fs::path(run_dir) / kShardDir, ignored);
}

}  // namespace lockstep::merge
