#pragma once
// The long tables of one rank, read a piece at a time: what a rank recorded may be
// far more than fits into memory, and merge looks at each row once or twice in order.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/schema.h"

namespace lockstep::ingest {

// Rows of a piece; a column chunk of our own files.
inline constexpr std::uint64_t kPieceRows = 64 * 1024;

// Clamps impossible times so that later sums cannot overflow; returns how many were clamped.
std::uint64_t CutWildTimes(const schema::ColumnInfo& column, std::vector<std::int64_t>& values);
template <typename T>
std::uint64_t CutWildTimes(const schema::ColumnInfo&, std::vector<T>&) {
  return 0;
}

// Thread: one at a time.
class EventReader {
 public:
  virtual ~EventReader() = default;

  virtual std::uint64_t Rows(std::string_view table) const = 0;

  // Rows [first, first + count) of these columns, the others are emptied; a column that the file lacks reads as the
  // schema's "unknown". Returns false if they are not readable, which Damaged() reports. `into` is the table or its
  // Some<>.
  template <typename Table, typename Rows>
  bool Read(schema::Columns<Table> columns, std::uint64_t first, std::uint64_t count, Rows& into) {
    bool readable = true;
    into.ForEachColumn([&](const schema::ColumnInfo& info, auto& values) {
      if (!columns.Has(static_cast<std::size_t>(&info - Table::kColumns.data())) || !readable) {
        values.clear();
        return;
      }
      values.resize(count);
      const Status status =
          ReadColumn(Table::kInfo.name, info, first, count, reinterpret_cast<std::byte*>(values.data()));
      readable = status.ok();
      if (readable)
        NoteCut(Table::kInfo.name, info.name, first, count, CutWildTimes(info, values));
      else
        NoteDamage(Table::kInfo.name, status.error().what);
    });
    return readable;
  }

  // Tables that could not be read or had impossible values, one line each: "mpi_calls/begin_ns: chunk 3: bad deflate
  // stream".
  std::vector<std::string> Damaged() const;

 protected:
  // The first damage of a table is kept.
  void NoteDamage(std::string_view table, const std::string& what);

 private:
  virtual Status ReadColumn(std::string_view table, const schema::ColumnInfo& column, std::uint64_t first,
                            std::uint64_t count, std::byte* out) = 0;
  // Columns may be read several times, but rows count once.
  void NoteCut(std::string_view table, std::string_view column, std::uint64_t first, std::uint64_t count,
               std::uint64_t cut);

  std::map<std::string, std::string, std::less<>> damage_;
  struct Cut {
    std::uint64_t rows_seen = 0, cut = 0;
  };
  std::map<std::pair<std::string_view, std::string_view>, Cut> cuts_;
};

// The rows of one table in order, with the selected columns only. Pieces that cannot be read are left out. A table of
// one piece is read once, however often it is iterated.
template <typename Table, schema::Columns<Table> kAsked = schema::Columns<Table>::All()>
class RowCursor {
 public:
  using Piece =
      std::conditional_t<kAsked == schema::Columns<Table>::All(), Table, typename Table::template Some<kAsked>>;

  explicit RowCursor(EventReader& reader) : reader_(reader), rows_(reader.Rows(Table::kInfo.name)) {}

  void Rewind() { next_ = 0; }
  // From now on only these columns are read, the others are empty; a table of one piece keeps all.
  template <schema::Columns<Table> kFewer>
  void Choose() {
    static_assert(kAsked.Holds(kFewer));
    if (rows_ > kPieceRows) columns_ = kFewer;
  }
  std::uint64_t rows() const { return rows_; }
  // The row in the table of the piece's first.
  std::uint64_t first_row() const { return first_; }
  // Null after the last one. Valid until the next call.
  const Piece* Next() {
    while (next_ < rows_) {
      first_ = next_;
      const std::uint64_t count = std::min(kPieceRows, rows_ - next_);
      next_ += count;
      if (held_ && rows_ <= kPieceRows) return &piece_;
      held_ = reader_.Read(columns_, first_, count, piece_);
      if (held_) return &piece_;
    }
    return nullptr;
  }

 private:
  EventReader& reader_;
  schema::Columns<Table> columns_ = kAsked;
  std::uint64_t rows_, next_ = 0, first_ = 0;
  bool held_ = false;
  Piece piece_;
};

// Over tables in memory, which must outlive it.
std::unique_ptr<EventReader> ReadFromMemory(const schema::RankTables& tables);
// Keeps the tables.
std::unique_ptr<EventReader> ReadFromMemory(schema::RankTables&& tables, std::vector<std::string> damaged);

}  // namespace lockstep::ingest
