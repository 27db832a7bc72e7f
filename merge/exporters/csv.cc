// One CSV file per table: the ranks' events with the columns of the rank files, and the timeline's own tables. Times
// are the cluster's, texts stand instead of their numbers; unknown is empty.

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "ingest/rank_files/event_reader.h"
#include "merge/exporters/out_file.h"
#include "merge/exporters/text.h"
#include "merge/exporters/writers.h"
#include "trace/strings.h"

namespace lockstep::exporters {
namespace {

using schema::kNone;
using schema::kNoTime;

constexpr std::size_t kRows = 4096;

// A moment, not a length of time: of the rank tables' columns in ns those that say when.
bool IsMoment(const schema::ColumnInfo& column) {
  if (column.unit != "ns") return false;
  constexpr std::string_view kMoments[] = {
      "begin_ns",      "end_ns",           "time_ns",  "post_end_ns", "last_incomplete_ns",
      "wait_begin_ns", "enqueue_begin_ns", "first_ns", "last_ns"};
  for (const std::string_view name : kMoments)
    if (column.name == name) return true;
  return false;
}

// What stands for no value, as the column's description says: "-1 none", "0 unknown", "65535 unknown". Codes of an
// enumeration are values, all of them.
template <typename T>
std::optional<T> StandsForNone(const schema::ColumnInfo& column) {
  if (column.unit == "enum") return std::nullopt;
  if (std::is_signed_v<T>) {
    if (column.description.find("-1 ") != std::string_view::npos) return static_cast<T>(-1);
    // Of exit codes: any other number may be one.
    return sizeof(T) == 4 ? std::optional(std::numeric_limits<T>::min()) : std::nullopt;
  }
  const std::size_t end = column.description.find(" unknown");
  if (end == std::string_view::npos) return std::nullopt;
  const std::size_t begin = column.description.find_last_not_of("0123456789", end - 1) + 1;
  T number{};
  const auto [at, error] = std::from_chars(column.description.data() + begin, column.description.data() + end, number);
  return begin < end && error == std::errc() ? std::optional(number) : std::nullopt;
}

// Appends a value as a cell. `text` gives the string of a number.
template <typename T, typename Text>
void AppendCell(std::string& out, const schema::ColumnInfo& column, T value, std::optional<T> none, Text&& text) {
  if (column.unit == "string") {
    AppendCsvText(out, text(static_cast<std::uint32_t>(value)));
  } else if (none && value == *none) {
    return;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    if (value != kNoTime) AppendInt(out, value);
  } else if constexpr (std::is_signed_v<T>) {
    AppendInt(out, value);
  } else if (sizeof(T) != 4 || value != static_cast<T>(kNone)) {
    AppendUnsigned(out, value);
  }
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

// Rows of one table of the ranks, collected until they are worth a look at their columns.
template <typename Table>
struct Sheet {
  Table rows;
};

class CsvWriter final : public Writer {
 public:
  Status Begin(const ExportRun& run) override {
    run_ = &run;
    Status status = MakeDirectory(run.output);
    if (!status.ok()) return status;
    const Timeline& timeline = *run.timeline;
    timeline.tables.ForEachTable([&](const auto& table) {
      using Table = std::remove_cvref_t<decltype(table)>;
      // Texts are in the other tables already.
      if (!status.ok() || Table::kInfo.name == "strings" || Table::kInfo.name == "string_bytes") return;
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
    LS_CHECK(WriteHeadTable(head.meta));
    LS_CHECK(WriteHeadTable(head.processes));
    LS_CHECK(WriteHeadTable(head.threads));
    LS_CHECK(WriteHeadTable(head.comms));
    LS_CHECK(WriteHeadTable(head.comm_members));
    LS_CHECK(WriteHeadTable(head.steps));
    LS_CHECK(WriteHeadTable(head.windows));
    LS_CHECK(WriteHeadTable(head.devices));
    LS_CHECK(WriteHeadTable(head.gradient_buckets));
    std::vector<std::string_view> columns;
    for (const schema::ColumnInfo& column : schema::KernelShapes::kColumns) columns.push_back(column.name);
    RowCursor<schema::KernelShapes> shapes(*rank.reader, columns);
    LS_CHECK(WriteHeadTable(schema::KernelShapes{}));
    while (const schema::KernelShapes* piece = shapes.Next()) LS_CHECK(WriteHeadTable(*piece));
    return WriteHeadTable(head.losses);
  }

  Status Write(const Event& event) override {
    switch (event.kind) {
      case EventKind::kRange:
        return Add<schema::Ranges>(event);
      case EventKind::kMpiCall:
        return Add<schema::MpiCalls>(event);
      case EventKind::kMpiRequest:
        return Add<schema::MpiRequests>(event);
      case EventKind::kCollective:
        return Add<schema::Collectives>(event);
      case EventKind::kMessage:
        return Add<schema::P2p>(event);
      case EventKind::kKernel:
        return Add<schema::Kernels>(event);
      case EventKind::kCopy:
        return Add<schema::Copies>(event);
      case EventKind::kSync:
        return Add<schema::Sync>(event);
      case EventKind::kApi:
        return Add<schema::Api>(event);
      case EventKind::kOverhead:
        return Add<schema::Overheads>(event);
      case EventKind::kMemory:
        return Add<schema::GpuMemory>(event);
      case EventKind::kSensors:
        return Add<schema::GpuSamples>(event);
      default:
        return Ok();  // The timeline's tables have it.
    }
  }

  Status EndRank() override {
    Status status = Ok();
    std::apply([&](auto&... sheet) { ((status = status.ok() ? Flush(sheet) : status), ...); }, sheets_);
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
  Status Add(const Event& event) {
    auto& sheet = std::get<Sheet<Table>>(sheets_);
    sheet.rows.Append(event.as<typename Table::Row>());
    return sheet.rows.rows() < kRows ? Ok() : Flush(sheet);
  }

  template <typename Table>
  Status Flush(Sheet<Table>& sheet) {
    const Status status = WriteHeadTable(sheet.rows);
    sheet.rows = {};
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
    const auto text = [this](std::uint32_t id) { return TextOf(*rank_.head, id); };
    std::vector<std::string> lines(rows);
    for (std::string& line : lines) AppendInt(line, rank_.rank);
    table.ForEachColumn([&](const schema::ColumnInfo& column, const auto& values) {
      using T = typename std::remove_cvref_t<decltype(values)>::value_type;
      const bool moment = IsMoment(column);
      const std::optional<T> none = StandsForNone<T>(column);
      for (std::size_t i = 0; i < rows; ++i) {
        lines[i] += ',';
        if (i >= values.size()) continue;
        if constexpr (std::is_same_v<T, std::int64_t>) {
          const bool convert = moment && values[i] != kNoTime;
          AppendCell(lines[i], column, convert ? rank_.clock->ToCluster(values[i]) : values[i],
                     convert ? std::nullopt : none, text);
        } else {
          AppendCell(lines[i], column, values[i], none, text);
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
        const auto none = StandsForNone<typename std::remove_cvref_t<decltype(values)>::value_type>(column);
        for (std::size_t i = 0; i < rows; ++i) {
          if (!first) lines[i] += ',';
          AppendCell(lines[i], column, values[begin + i], none, text);
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
  std::tuple<Sheet<schema::Ranges>, Sheet<schema::MpiCalls>, Sheet<schema::MpiRequests>, Sheet<schema::Collectives>,
             Sheet<schema::P2p>, Sheet<schema::Kernels>, Sheet<schema::Copies>, Sheet<schema::Sync>, Sheet<schema::Api>,
             Sheet<schema::Overheads>, Sheet<schema::GpuMemory>, Sheet<schema::GpuSamples>>
      sheets_;
};

}  // namespace

std::unique_ptr<Writer> MakeCsvWriter(const WriterOptions&) { return std::make_unique<CsvWriter>(); }

}  // namespace lockstep::exporters
