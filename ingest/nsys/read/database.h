#pragma once
// Reads an SQLite file of another tool: columns by name as far as they exist, values as far as they have the expected
// type. Nothing is written beside it, no lock is taken, and damage ends a table's rows instead of the import.

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace lockstep::nsys {

// Value of a column that the table lacks, or that is no integer.
inline constexpr std::int64_t kAbsent = std::numeric_limits<std::int64_t>::min();

// The rows of one table, in the file's order. Thread: one at a time.
class Rows {
 public:
  // `most`: rows that can be there at all.
  Rows(sqlite3* database, const std::string& query, std::uint64_t most);
  Rows(Rows&&) noexcept;
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  ~Rows();

  bool Next();
  // The columns that were passed to Database::Select.
  std::int64_t Int(int column) const;       // kAbsent: NULL, no integer, not there.
  double Real(int column) const;            // NaN likewise.
  std::string_view Text(int column) const;  // "" likewise; until the next call.
  bool Null(int column) const;

  std::uint64_t read() const { return read_; }
  // The reason why the rows ended early, "" if they did not.
  const std::string& trouble() const { return trouble_; }

 private:
  sqlite3* database_;
  sqlite3_stmt* statement_ = nullptr;
  std::uint64_t read_ = 0, most_ = 0;
  std::string trouble_;
};

class Database {
 public:
  // kIo, kNotFound; kMalformed: no database, or not even its list of tables can be read.
  static Result<Database> Open(const std::string& path);
  Database(Database&&) noexcept;
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  // Plain tables only: views and virtual tables of a file are code from that file.
  bool Has(std::string_view table) const { return tables_.contains(table); }
  std::vector<std::string> TablesWith(std::string_view prefix) const;
  bool HasColumn(std::string_view table, std::string_view column) const;
  // The columns in this order; NULL where the table lacks one. No rows if there is no such table.
  Rows Select(std::string_view table, std::initializer_list<std::string_view> columns) const;

  // By the number of the last one; of a table whose end is damaged as many as can be read.
  std::uint64_t RowsIn(std::string_view table) const;

  // A file beside it that would have to be written into it first: "report.sqlite-journal"; "" if there is none.
  const std::string& unfinished() const { return unfinished_; }
  // The file is shorter than its header states.
  bool cut() const { return cut_; }

 private:
  Database() = default;
  Status ListTables();

  sqlite3* database_ = nullptr;
  std::string path_, unfinished_;
  bool cut_ = false;
  std::uint64_t most_rows_ = 0;  // No row takes less than four bytes.
  std::set<std::string, std::less<>> tables_;
};

// "SQLite format 3\0"
bool BeginsLikeDatabase(std::string_view first_bytes);

}  // namespace lockstep::nsys
