// Reads and writes whole files.

#include <algorithm>
#include <utility>
#include <vector>

#include "trace/file/table_file.h"

namespace lockstep::trace {
namespace {

template <typename Tables>
Result<TableFileWriter> Written(const std::string& path, std::string_view format, const Tables& tables,
                                RunParallel parallel) {
  LS_TRY(TableFileWriter writer, TableFileWriter::Create(path, format, std::move(parallel)));
  Status status = Ok();
  tables.ForEachTable([&](const auto& table) {
    if (status.ok()) status = writer.Append(table);
  });
  if (status.ok()) status = writer.Write();
  if (!status.ok()) return status.error();
  return writer;
}

template <typename Tables>
Status WriteTables(const std::string& path, std::string_view format, const Tables& tables, RunParallel parallel) {
  LS_TRY(TableFileWriter writer, Written(path, format, tables, std::move(parallel)));
  return TableFileWriter::Publish({&writer, 1});
}

// Files that are open at a time.
constexpr std::size_t kMostOpen = 64;

Error WrongFormat(const TableFile& file, const std::string& path, std::string_view wanted) {
  return {ErrorCode::kMalformed, "the file is a " + std::string(file.format()) + ", not a " + std::string(wanted), path,
          "name a file of the wanted kind"};
}

}  // namespace

Result<RankFileContents> ReadRankFile(const std::string& path) {
  LS_TRY(const TableFile file, TableFile::Open(path));
  if (file.format() != schema::kRankFileFormat) return WrongFormat(file, path, schema::kRankFileFormat);
  file.LookAtAll();
  RankFileContents contents;
  contents.complete = file.complete();
  contents.tables.ForEachTable([&](auto& table) {
    using Table = std::remove_reference_t<decltype(table)>;
    Result<Table> read = file.Read<Table>();
    if (read.ok())
      table = std::move(read).value();
    else
      contents.damaged.push_back(read.error().what);
  });
  return contents;
}

Status WriteRankFile(const std::string& path, const schema::RankTables& tables, RunParallel parallel) {
  return WriteTables(path, schema::kRankFileFormat, tables, std::move(parallel));
}

Status WriteRankFiles(std::span<const NamedTables> files) {
  std::vector<TableFileWriter> writers;
  const auto publish = [&] {
    Status status = TableFileWriter::Publish(writers);
    writers.clear();
    return status;
  };
  for (const NamedTables& file : files) {
    auto writer = Written(file.path, schema::kRankFileFormat, *file.tables, {});
    if (!writer.ok() && !writers.empty()) {
      // Perhaps only because this process may open no more.
      LS_CHECK(publish());
      writer = Written(file.path, schema::kRankFileFormat, *file.tables, {});
    }
    if (!writer.ok()) return writer.error();
    writers.push_back(std::move(writer).value());
    if (writers.size() == kMostOpen) LS_CHECK(publish());
  }
  return publish();
}

Result<schema::TimelineTables> ReadTimelineFile(const std::string& path) {
  LS_TRY(const TableFile file, TableFile::Open(path));
  if (file.format() != schema::kTimelineFormat) return WrongFormat(file, path, schema::kTimelineFormat);
  file.LookAtAll();
  schema::TimelineTables tables;
  Status status = Ok();
  tables.ForEachTable([&](auto& table) {
    using Table = std::remove_reference_t<decltype(table)>;
    if (!status.ok()) return;
    Result<Table> read = file.Read<Table>();
    if (read.ok())
      table = std::move(read).value();
    else
      status = read.error();
  });
  if (!status.ok()) return status.error();
  return tables;
}

Status WriteTimelineFile(const std::string& path, const schema::TimelineTables& tables, RunParallel parallel) {
  // Any command that reads the run may write it.
  return WriteTables(path, schema::kTimelineFormat, tables, std::move(parallel));
}

}  // namespace lockstep::trace
