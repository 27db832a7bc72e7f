// Rank files (.h5) and unfinished ones (.h5.part).

#include <algorithm>
#include <utility>

#include "ingest/rank_files/rank_source.h"
#include "trace/table_file.h"

namespace lockstep {
namespace {

class Hdf5Events final : public EventReader {
 public:
  explicit Hdf5Events(const TableFile& file) : file_(file) { file_.Hold(); }
  ~Hdf5Events() override { file_.Release(); }
  std::uint64_t Rows(std::string_view table) const override { return file_.Rows(table); }

 private:
  Status ReadColumn(std::string_view table, const schema::ColumnInfo& column, std::uint64_t first, std::uint64_t count,
                    std::byte* out) override {
    return file_.ReadColumn(table, column, first, count, out);
  }
  const TableFile& file_;
};

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
    All(read, t.devices), All(read, t.gpu_samples), All(read, t.overheads);
    All(read, t.clock_bursts), All(read, t.clock_snapshots), All(read, t.losses);
    Some(read, t.collectives,
         {"comm", "seq", "start", "kind", "mode", "thread", "uneven", "begin_ns", "post_end_ns", "last_incomplete_ns",
          "wait_begin_ns", "end_ns", "bytes", "dtype", "root", "kernel", "kernel_operations"});
    Some(read, t.p2p,
         {"comm", "direction", "mode", "peer", "peer_world_rank", "tag", "seq", "thread", "begin_ns", "post_end_ns",
          "wait_begin_ns", "end_ns", "bytes", "outcome", "kernel"});
    // A run has thousands of them open.
    file_.Release();
    return read;
  }

  std::unique_ptr<EventReader> LoadEvents() const override { return std::make_unique<Hdf5Events>(file_); }

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

extern const RankFormat kHdf5Format;
const RankFormat kHdf5Format = {"rank file", Sniff, OpenHdf5};

}  // namespace lockstep
