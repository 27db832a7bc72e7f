// Rank files (.h5) and unfinished ones (.h5.part).

#include <algorithm>
#include <utility>

#include "ingest/rank_files/rank_source.h"
#include "trace/file/table_file.h"

namespace lockstep::ingest {
namespace {

class Hdf5Events final : public EventReader {
 public:
  explicit Hdf5Events(const trace::TableFile& file) : file_(file) { file_.Hold(); }
  ~Hdf5Events() override { file_.Release(); }
  std::uint64_t Rows(std::string_view table) const override { return file_.Rows(table); }

 private:
  Status ReadColumn(std::string_view table, const schema::ColumnInfo& column, std::uint64_t first, std::uint64_t count,
                    std::byte* out) override {
    return file_.ReadColumn(table, column, first, count, out);
  }
  const trace::TableFile& file_;
};

class Hdf5Source final : public RankSource {
 public:
  Hdf5Source(std::string path, trace::TableFile file) : path_(std::move(path)), file_(std::move(file)) {}

  std::uint64_t EventRows() const override {
    std::uint64_t rows = 0;
    for (const schema::TableInfo& table : schema::kRankTableInfos)
      if (table.Is(schema::kEvents)) rows += file_.Rows(table.name);
    return rows;
  }

  // A file made from what a dead rank left is whole as a file, not as a record.
  bool complete() const override { return file_.complete() && file_.Attribute("recovered", std::int64_t{0}) == 0; }

 private:
  ReadTables LoadHead() const override {
    ReadTables read;
    schema::RankTables& t = read.tables;
    t.ForEachTable([&](auto& table) {
      if (table.kInfo.Is(schema::kHead)) All(read, table);
    });
    Some<schema::Collectives>(
        read, t.collectives,
        {&schema::Collectives::comm, &schema::Collectives::seq, &schema::Collectives::start, &schema::Collectives::kind,
         &schema::Collectives::mode, &schema::Collectives::thread, &schema::Collectives::uneven,
         &schema::Collectives::begin_ns, &schema::Collectives::post_end_ns, &schema::Collectives::last_incomplete_ns,
         &schema::Collectives::wait_begin_ns, &schema::Collectives::end_ns, &schema::Collectives::bytes,
         &schema::Collectives::dtype, &schema::Collectives::root, &schema::Collectives::kernel,
         &schema::Collectives::kernel_operations, &schema::Collectives::enqueue_begin_ns});
    Some<schema::P2p>(read, t.p2p,
                      {&schema::P2p::comm, &schema::P2p::direction, &schema::P2p::mode, &schema::P2p::peer,
                       &schema::P2p::peer_world_rank, &schema::P2p::tag, &schema::P2p::seq, &schema::P2p::thread,
                       &schema::P2p::begin_ns, &schema::P2p::post_end_ns, &schema::P2p::wait_begin_ns,
                       &schema::P2p::end_ns, &schema::P2p::bytes, &schema::P2p::outcome, &schema::P2p::kernel});
    // A run has thousands of them open.
    file_.Release();
    return read;
  }

  std::unique_ptr<EventReader> LoadEvents() const override { return std::make_unique<Hdf5Events>(file_); }

  ReadTables LoadAll() const override {
    auto contents = trace::ReadRankFile(path_);
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
  void Some(ReadTables& read, Table& table, schema::Columns<Table> columns) const {
    Keep(read, table, file_.ReadColumns<Table>(columns));
  }

  std::string path_;
  trace::TableFile file_;
};

bool Sniff(std::string_view first_bytes) { return first_bytes.starts_with("\x89HDF\r\n\x1a\n"); }

Result<RankSources> OpenHdf5(const std::string& path) {
  LS_TRY(trace::TableFile file, trace::TableFile::Open(path));
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

}  // namespace lockstep::ingest
