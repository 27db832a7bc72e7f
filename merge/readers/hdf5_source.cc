// Rank files (.h5) and unfinished ones (.h5.part).

#include <algorithm>
#include <utility>

#include "merge/readers/rank_source.h"
#include "trace/table_file.h"

namespace lockstep {
namespace {

class Hdf5Source final : public RankSource {
 public:
  Hdf5Source(std::string path, TableFile file) : path_(std::move(path)), file_(std::move(file)) {}

  std::uint64_t EventRows() const override {
    std::uint64_t rows = 0;
    for (const auto& table : {schema::MpiCalls::kInfo, schema::Ranges::kInfo, schema::Kernels::kInfo,
                              schema::Copies::kInfo, schema::Sync::kInfo, schema::Api::kInfo, schema::GpuMemory::kInfo})
      rows += file_.Rows(table.name);
    return rows;
  }

  // A file made from what a dead rank left is whole as a file, not as a record.
  bool complete() const override { return file_.complete() && file_.Attribute("recovered", std::int64_t{0}) == 0; }

 private:
  ReadTables LoadHead() const override {
    ReadTables read;
    schema::RankTables& t = read.tables;
    All(read, t.meta), All(read, t.processes), All(read, t.threads), All(read, t.strings), All(read, t.string_bytes);
    All(read, t.comms), All(read, t.comm_members), All(read, t.steps), All(read, t.windows), All(read, t.mpi_requests),
        All(read, t.gradient_buckets);
    All(read, t.clock_bursts), All(read, t.clock_snapshots), All(read, t.losses);
    Some(read, t.collectives,
         {"comm", "seq", "start", "kind", "mode", "uneven", "begin_ns", "post_end_ns", "last_incomplete_ns",
          "wait_begin_ns", "end_ns", "bytes", "root", "kernel"});
    Some(read, t.p2p,
         {"comm", "direction", "mode", "peer", "peer_world_rank", "tag", "seq", "thread", "begin_ns", "post_end_ns",
          "wait_begin_ns", "end_ns", "bytes", "outcome"});
    return read;
  }

  ReadTables LoadEvents() const override {
    ReadTables read;
    schema::RankTables& t = read.tables;
    All(read, t.strings), All(read, t.string_bytes);
    All(read, t.cpu_samples);
    Some(read, t.mpi_calls, {"begin_ns", "duration_ns", "thread", "op", "count"});
    schema::Ranges categories;
    Some(read, categories, {"category"});
    // Only ranges that say what they are for matter here; names only of communication.
    std::uint32_t seen = 0;
    for (const std::uint8_t category : categories.category) seen |= 1u << (category & 31);
    if ((seen & 1u << 5) != 0)
      Some(read, t.ranges, {"begin_ns", "duration_ns", "thread", "category", "name"});
    else if ((seen & ~1u) != 0)
      Some(read, t.ranges, {"begin_ns", "duration_ns", "thread", "category"});
    Some(read, t.kernels, {"begin_ns", "duration_ns", "correlation", "name", "work", "work_rule"});
    Some(read, t.copies, {"begin_ns", "duration_ns", "correlation"});
    if (t.kernels.rows() > 0) Some(read, t.api, {"begin_ns", "correlation"});
    return read;
  }

  ReadTables LoadAll() const override {
    auto contents = ReadRankFile(path_);
    if (!contents.ok()) return {{}, {contents.error().what}};
    return {std::move(contents.value().tables), std::move(contents.value().damaged)};
  }

  template <typename Table>
  void Keep(ReadTables& read, Table& table, Result<Table> result) const {
    if (result.ok())
      table = std::move(result).value();
    else
      read.damaged.push_back(std::string(Table::kInfo.name) + ": " + result.error().what);
  }
  template <typename Table>
  void All(ReadTables& read, Table& table) const {
    Keep(read, table, file_.Read<Table>());
  }
  template <typename Table>
  void Some(ReadTables& read, Table& table, std::initializer_list<std::string_view> columns) const {
    Keep(read, table, file_.ReadColumns<Table>(columns));
  }

  std::string path_;
  TableFile file_;
};

bool Sniff(std::string_view first_bytes) { return first_bytes.starts_with("\x89HDF\r\n\x1a\n"); }

Result<RankSources> OpenHdf5(const std::string& path) {
  LS_TRY(TableFile file, TableFile::Open(path));
  if (file.format() != schema::kRankFileFormat)
    return Error{ErrorCode::kMalformed, "not a rank file but " + std::string(file.format()), path,
                 "keep only rank files in ranks/"};
  RankSources sources;
  sources.push_back(std::make_unique<Hdf5Source>(path, std::move(file)));
  return sources;
}

}  // namespace

const RankFormat kHdf5Format = {"rank file", Sniff, OpenHdf5};

}  // namespace lockstep
