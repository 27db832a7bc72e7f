// Rank files (.h5) and unfinished ones (.h5.part).

#include <algorithm>
#include <type_traits>
#include <utility>

#include "ingest/rank_files/rank_source.h"
#include "trace/file/table_file.h"

namespace lockstep::ingest {
namespace {

// The columns of partly read tables (schema::kHeadInPart) that merge and export do not need: a quarter of a
// collective's row. Only columns listed here are left out, so a new column is read without being listed.
template <typename Table>
constexpr schema::Columns<Table> kLeftOut = schema::Columns<Table>::None();
template <>
constexpr schema::Columns<schema::Collectives> kLeftOut<schema::Collectives> = {
    &schema::Collectives::count,     &schema::Collectives::call,     &schema::Collectives::reduction,
    &schema::Collectives::algorithm, &schema::Collectives::protocol, &schema::Collectives::channels,
    &schema::Collectives::buffer};
template <>
constexpr schema::Columns<schema::P2p> kLeftOut<schema::P2p> = {&schema::P2p::last_incomplete_ns, &schema::P2p::call};

template <typename Table>
constexpr schema::Columns<Table> But(schema::Columns<Table> left_out) {
  auto columns = schema::Columns<Table>::All();
  columns.bits &= ~left_out.bits;
  return columns;
}

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

  // A file made from what a dead rank left is complete as a file, but not as a record of the run.
  bool complete() const override { return file_.complete() && file_.Attribute("recovered", std::int64_t{0}) == 0; }

 private:
  ReadTables LoadHead() const override {
    ReadTables read;
    schema::RankTables& t = read.tables;
    t.ForEachTable([&](auto& table) {
      using Table = std::remove_reference_t<decltype(table)>;
      if (table.kInfo.Is(schema::kHead)) Keep(read, table, file_.Read<Table>());
    });
    t.ForEachTable([&](auto& table) {
      using Table = std::remove_reference_t<decltype(table)>;
      if (table.kInfo.Is(schema::kHeadInPart)) Keep(read, table, file_.ReadColumns<Table>(But(kLeftOut<Table>)));
    });
    // A run has thousands of files open.
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

  std::string path_;
  trace::TableFile file_;
};

bool SniffHdf5(std::string_view first_bytes) { return first_bytes.starts_with("\x89HDF\r\n\x1a\n"); }

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
const RankFormat kHdf5Format = {"rank file", SniffHdf5, OpenHdf5};

}  // namespace lockstep::ingest
