// One CSV file per table: the ranks' events with the columns of the rank files, and the timeline's own tables. Times
// are cluster time, texts are written out, and unknown values are empty.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/mpi_ops.h"
#include "export/common/out_file.h"
#include "export/common/text.h"
#include "export/common/writers.h"
#include "ingest/rank_files/event_reader.h"
#include "trace/file/strings.h"

namespace lockstep::exporters {
namespace {

using schema::kNone;
using schema::kNoTime;

constexpr std::size_t kRows = 4096;

// "MPI_Allreduce"; nullptr: no MPI function, or none that is known.
template <typename T>
const MpiOpInfo* FunctionOf(const schema::ColumnInfo& column, T value) {
  if (column.enumeration != &schema::kEnumInfo<MpiOp>) return nullptr;
  return FindMpiOp(static_cast<std::uint16_t>(value));
}

// Appends a value as a cell; nothing for `blank`. `text` returns the string of a number. Of two hundred MPI functions
// nobody knows the codes.
template <typename T, typename Text>
void AppendCell(std::string& out, const schema::ColumnInfo& column, T value, std::optional<T> blank, Text&& text) {
  if (column.role == schema::Role::kText) {
    AppendCsvText(out, text(static_cast<std::uint32_t>(value)));
  } else if (blank && value == *blank) {
    return;
  } else if (const MpiOpInfo* function = FunctionOf(column, value); function != nullptr) {
    out += function->name;
  } else if constexpr (std::is_signed_v<T>) {
    AppendInt(out, value);
  } else {
    AppendUnsigned(out, value);
  }
}

template <typename T>
std::optional<T> BlankOf(const schema::ColumnInfo& column) {
  const std::optional<std::int64_t> blank = column.blank();
  return blank ? std::optional(static_cast<T>(*blank)) : std::nullopt;
}

template <typename Table>
std::string HeaderOf(bool with_rank) {
  std::string line = with_rank ? "file_rank" : "";  // Some tables have a column rank.
  for (const schema::ColumnInfo& column : Table::kColumns) {
    if (!line.empty()) line += ',';
    line += column.name;
  }
  return line + '\n';
}

class CsvWriter final : public Writer {
 public:
  Status Begin(const ExportRun& run) override {
    run_ = &run;
    Status status = MakeDirectory(run.output);
    if (!status.ok()) return status;
    const merge::Timeline& timeline = *run.timeline;
    timeline.tables.ForEachTable([&](const auto& table) {
      using Table = std::remove_cvref_t<decltype(table)>;
      if (!status.ok() || !Table::kInfo.Is(schema::kExported)) return;
      status = WriteTimelineTable("timeline_" + std::string(Table::kInfo.name), table);
    });
    return status;
  }

  bool Takes(EventKind kind) const override {
    return kind != EventKind::kCounter && kind != EventKind::kStep && kind != EventKind::kHostStep;
  }

  Status BeginRank(const ExportRank& rank) override {
    rank_ = rank;
    const schema::RankTables& head = *rank.head;
    Status status = Ok();
    head.ForEachTable([&](const auto& table) {
      using Table = std::remove_cvref_t<decltype(table)>;
      if (!status.ok() || !Table::kInfo.Is(schema::kExported) || Table::kInfo.Is(schema::kStreamed)) return;
      status = WriteHeadTable(table);
      if (!Table::kInfo.Is(schema::kPieces)) return;
      ingest::RowCursor<Table> rows(*rank.reader);
      while (const Table* piece = rows.Next())
        if (status.ok()) status = WriteHeadTable(*piece);
    });
    return status;
  }

  Status Write(const Event& event) override {
    return std::visit(
        [&]<typename Pointer>(Pointer row) -> Status {
          using Row = std::remove_cvref_t<std::remove_pointer_t<Pointer>>;
          if constexpr (requires(schema::RankTables tables) { tables.Of(std::type_identity<typename Row::Table>()); }) {
            if constexpr (Row::Table::kInfo.Is(schema::kStreamed)) return Add<typename Row::Table>(*row);
          }
          return Ok();  // The timeline's tables contain it.
        },
        event.row);
  }

  Status EndRank() override {
    Status status = Ok();
    sheets_.ForEachTable([&](auto& sheet) {
      if (status.ok() && sheet.kInfo.Is(schema::kStreamed)) status = Flush(sheet);
    });
    return status;
  }

  Status Finish() override {
    for (auto& [name, file] : files_) LS_CHECK(file->Close());
    return Ok();
  }
  std::uint64_t bytes() const override {
    std::uint64_t sum = 0;
    for (const auto& [name, file] : files_) sum += file->bytes();
    return sum;
  }

 private:
  template <typename Table>
  Status Add(const typename Table::Row& row) {
    static_assert(Table::kInfo.Is(schema::kStreamed));
    Table& sheet = sheets_.Of(std::type_identity<Table>());
    sheet.Append(row);
    return sheet.rows() < kRows ? Ok() : Flush(sheet);
  }

  template <typename Table>
  Status Flush(Table& sheet) {
    const Status status = WriteHeadTable(sheet);
    sheet = {};
    return status;
  }

  template <typename Table>
  Result<OutFile*> FileOf(const std::string& name, bool with_rank) {
    auto& file = files_[name];
    if (file == nullptr) {
      file = std::make_unique<OutFile>();
      LS_CHECK(file->Open((std::filesystem::path(run_->output) / (name + ".csv")).string()));
      file->Put(HeaderOf<Table>(with_rank));
    }
    return file.get();
  }

  // Rows of the current rank.
  template <typename Table>
  Status WriteHeadTable(const Table& table) {
    LS_TRY(OutFile * file, FileOf<Table>(std::string(Table::kInfo.name), true));
    const std::size_t rows = table.rows();
    const auto text = [this](std::uint32_t id) { return trace::TextOf(*rank_.head, id); };
    std::vector<std::string> lines(rows);
    for (std::string& line : lines) AppendInt(line, rank_.rank);
    table.ForEachColumn([&](const schema::ColumnInfo& column, const auto& values) {
      using T = typename std::remove_cvref_t<decltype(values)>::value_type;
      const bool moment = column.clock == schema::ClockOf::kRank;
      const std::optional<T> blank = BlankOf<T>(column);
      for (std::size_t i = 0; i < rows; ++i) {
        lines[i] += ',';
        if (i >= values.size()) continue;
        if constexpr (std::is_same_v<T, std::int64_t>) {
          const bool convert = moment && values[i] != kNoTime;
          AppendCell(lines[i], column, convert ? rank_.clock->ToCluster(values[i]) : values[i],
                     convert ? std::nullopt : blank, text);
        } else {
          AppendCell(lines[i], column, values[i], blank, text);
        }
      }
    });
    for (std::string& line : lines) {
      line += '\n';
      file->Put(line);
    }
    return file->status();
  }

  template <typename Table>
  Status WriteTimelineTable(const std::string& name, const Table& table) {
    LS_TRY(OutFile * file, FileOf<Table>(name, false));
    const auto text = [this](std::uint32_t id) { return run_->timeline->Text(id); };
    for (std::size_t begin = 0; begin < table.rows(); begin += kRows) {
      const std::size_t rows = std::min(kRows, table.rows() - begin);
      std::vector<std::string> lines(rows);
      bool first = true;
      table.ForEachColumn([&](const schema::ColumnInfo& column, const auto& values) {
        const auto blank = BlankOf<typename std::remove_cvref_t<decltype(values)>::value_type>(column);
        for (std::size_t i = 0; i < rows; ++i) {
          if (!first) lines[i] += ',';
          AppendCell(lines[i], column, values[begin + i], blank, text);
        }
        first = false;
      });
      for (std::string& line : lines) {
        line += '\n';
        file->Put(line);
      }
    }
    return file->status();
  }

  const ExportRun* run_ = nullptr;
  ExportRank rank_;
  std::map<std::string, std::unique_ptr<OutFile>> files_;
  schema::RankTables sheets_;  // Rows of streamed tables, collected until there are enough to process column by column.
};

}  // namespace

std::unique_ptr<Writer> MakeCsvWriter(const WriterOptions&) { return std::make_unique<CsvWriter>(); }

}  // namespace lockstep::exporters
