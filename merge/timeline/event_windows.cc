#include "merge/timeline/event_windows.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "ingest/rank_files/event_reader.h"
#include "ingest/rank_files/rank_source.h"
#include "merge/timeline/rank_activity.h"

namespace lockstep::merge {
namespace {

template <typename Table>
constexpr bool kEndIsKnown = std::is_same_v<Table, schema::Collectives> || std::is_same_v<Table, schema::P2p>;

template <typename Table>
constexpr schema::Columns<Table> ScannedColumns() {
  if constexpr (kEndIsKnown<Table>)
    return {&Table::begin_ns, &Table::end_ns};
  else if constexpr (std::is_same_v<Table, schema::Kernels>)
    return {&Table::begin_ns, &Table::duration_ns, &Table::device};
  else if constexpr (std::is_same_v<Table, schema::Ranges>)
    return {&Table::begin_ns, &Table::duration_ns, &Table::source, &Table::category};
  else if constexpr (std::is_same_v<Table, schema::Sync>)
    return {&Table::begin_ns, &Table::duration_ns, &Table::kind, &Table::record_correlation, &Table::record_stream};
  else
    return {&Table::begin_ns, &Table::duration_ns};
}

template <typename Table>
Interval RowTime(const Table& table, std::size_t row) {
  const std::int64_t begin = table.begin_ns[row];
  if constexpr (kEndIsKnown<Table>)
    return {begin, std::max(begin, table.end_ns[row])};  // One that never ended has the least of all numbers.
  else
    return {begin, begin + std::max<std::int64_t>(0, table.duration_ns[row])};
}

bool HeldBy(Interval row, Interval time) {
  return row.begin < time.end && (row.begin >= time.begin || row.end > time.begin);
}

// Appends these rows of a piece.
template <typename Table>
void AppendSelected(const Table& from, const std::vector<std::uint32_t>& rows, Table& to) {
  if (rows.empty()) return;
  const bool all = rows.back() - rows.front() + 1 == rows.size();
  std::vector<const void*> columns;
  from.ForEachColumn([&](const schema::ColumnInfo&, const auto& values) { columns.push_back(&values); });
  std::size_t column = 0;
  to.ForEachColumn([&](const schema::ColumnInfo&, auto& values) {
    const auto& source = *static_cast<const std::remove_reference_t<decltype(values)>*>(columns[column++]);
    if (all)
      values.insert(values.end(), source.begin() + rows.front(), source.begin() + rows.back() + 1);
    else
      for (const std::uint32_t row : rows) values.push_back(source[row]);
  });
}

// Rows of the whole table become rows of the selected ones.
void RenumberRows(std::vector<std::uint32_t>& column, const std::vector<std::uint32_t>& selected) {
  for (std::uint32_t& row : column) {
    const auto at = std::lower_bound(selected.begin(), selected.end(), row);
    row = at != selected.end() && *at == row ? static_cast<std::uint32_t>(at - selected.begin()) : schema::kNone;
  }
}

}  // namespace

template <typename F>
void EventWindows::ForEachTable(F&& f) {
  f(&schema::RankTables::mpi_calls), f(&schema::RankTables::ranges), f(&schema::RankTables::blocked);
  f(&schema::RankTables::kernels);
  f(&schema::RankTables::copies), f(&schema::RankTables::sync), f(&schema::RankTables::api);
  f(&schema::RankTables::collectives), f(&schema::RankTables::p2p);
}

EventWindows::EventWindows() = default;
EventWindows::EventWindows(EventWindows&&) noexcept = default;
EventWindows& EventWindows::operator=(EventWindows&&) noexcept = default;
EventWindows::~EventWindows() = default;

Result<EventWindows> EventWindows::Open(const Timeline& timeline, std::int32_t rank) {
  EventWindows windows;
  LS_TRY(windows.source_, OpenRank(timeline, rank));
  windows.events_ = windows.source_->OpenEvents();
  return windows;
}

EventWindows::EventWindows(schema::RankTables tables)
    : held_(std::make_unique<schema::RankTables>(std::move(tables))), events_(ingest::ReadFromMemory(*held_)) {}

std::uint64_t EventWindows::rows() const {
  std::uint64_t rows = 0;
  ForEachTable([&]<typename Table>(Table schema::RankTables::*) { rows += events_->Rows(Table::kInfo.name); });
  return rows;
}

schema::RankTables EventWindows::ReadAll() && {
  events_.reset();
  return source_ != nullptr ? source_->ReadAll().tables : std::move(*held_);
}

const schema::RankTables& EventWindows::Head() {
  if (head_ != nullptr) return *head_;
  head_ = std::make_unique<schema::RankTables>();
  if (source_ != nullptr) {
    *head_ = source_->ReadHead().tables;
    head_->collectives = {};
    head_->p2p = {};
  } else {
    held_->ForEachTable([&](const auto& table) {
      using Table = std::remove_cvref_t<decltype(table)>;
      if (Table::kInfo.Is(schema::kHead)) head_->Of(std::type_identity<Table>()) = table;
    });
  }
  const auto whole = [&]<typename Table>(Table& table) {
    if (!events_->Read(schema::Columns<Table>::All(), 0, events_->Rows(Table::kInfo.name), table)) table = {};
  };
  whole(head_->kernel_shapes), whole(head_->range_categories), whole(head_->gpu_memory);
  return *head_;
}

void EventWindows::Scan(const std::function<void(Seen, std::int64_t, std::uint16_t)>& seen) {
  pieces_.clear();
  ForEachTable([&]<typename Table>(Table schema::RankTables::*) {
    std::vector<Interval>& spans = pieces_.emplace_back();
    const schema::Columns<Table> columns = ScannedColumns<Table>();
    const std::uint64_t rows = events_->Rows(Table::kInfo.name);
    Table piece;
    for (std::uint64_t first = 0; first < rows; first += ingest::kPieceRows) {
      Interval& span = spans.emplace_back(
          Interval{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()});
      if (!events_->Read(columns, first, std::min(ingest::kPieceRows, rows - first), piece)) continue;
      for (std::size_t row = 0; row < piece.begin_ns.size(); ++row) {
        const Interval at = RowTime(piece, row);
        span = {std::min(span.begin, at.begin), std::max(span.end, at.end)};
        if constexpr (std::is_same_v<Table, schema::Kernels>) {
          seen(kKernel, at.begin, piece.device[row]);
        } else if constexpr (std::is_same_v<Table, schema::Ranges>) {
          const std::uint8_t source = piece.source[row];
          if (source == schema::RangeSource::kCpuOp || source == schema::RangeSource::kPython)
            seen(kOperator, at.begin, 0);
          if (piece.category[row] == schema::Category::kForward) seen(kForward, at.begin, 0);
        } else if constexpr (std::is_same_v<Table, schema::Sync>) {
          if (piece.kind[row] == schema::SyncKind::kStreamWait && piece.record_correlation[row] != 0 &&
              piece.record_stream[row] != schema::kNone)
            seen(kWait, at.begin, 0);
        }
      }
    }
  });
}

schema::RankTables EventWindows::Read(Interval time) { return ReadPart(time, false); }

schema::RankTables EventWindows::ReadWithOperations(Interval time) { return ReadPart(time, true); }

schema::RankTables EventWindows::ReadPart(Interval time, bool all_operations) {
  schema::RankTables tables;
  Head().ForEachTable([&](const auto& table) {
    using Table = std::remove_cvref_t<decltype(table)>;
    if constexpr (!std::is_same_v<Table, schema::GpuMemory>) tables.Of(std::type_identity<Table>()) = table;
  });
  std::size_t number = 0;
  std::vector<std::uint32_t> calls, kernels;  // Which rows of the whole tables were selected.
  std::vector<std::uint32_t> selected;        // Of a piece.
  ForEachTable([&]<typename Table>(Table schema::RankTables::*of) {
    const std::vector<Interval>& spans = pieces_[number++];
    Table& to = tables.*of;
    const std::uint64_t rows = events_->Rows(Table::kInfo.name);
    Table piece;
    for (std::size_t p = 0; p < spans.size(); ++p) {
      const bool all = all_operations && kEndIsKnown<Table>;
      if (!all && (spans[p].begin >= time.end || spans[p].end < time.begin)) continue;
      const std::uint64_t first = p * ingest::kPieceRows;
      if (!events_->Read(schema::Columns<Table>::All(), first, std::min(ingest::kPieceRows, rows - first), piece))
        continue;
      selected.clear();
      for (std::uint32_t row = 0; row < piece.rows(); ++row) {
        if (!all && !HeldBy(RowTime(piece, row), time)) continue;
        selected.push_back(row);
        if constexpr (std::is_same_v<Table, schema::MpiCalls>) calls.push_back(static_cast<std::uint32_t>(first) + row);
        if constexpr (std::is_same_v<Table, schema::Kernels>)
          kernels.push_back(static_cast<std::uint32_t>(first) + row);
      }
      AppendSelected(piece, selected, to);
    }
  });
  RenumberRows(tables.collectives.kernel, kernels), RenumberRows(tables.p2p.kernel, kernels);
  RenumberRows(tables.collectives.call, calls), RenumberRows(tables.p2p.call, calls);
  return tables;
}

}  // namespace lockstep::merge
