#include "ingest/nsys/read/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <system_error>
#include <utility>

#include "core/file_lock.h"
#include "core/own_file.h"

namespace lockstep::nsys {
namespace {

constexpr std::string_view kMagic("SQLite format 3\0", 16);
// Texts in traces are names; a file with longer texts must not use all memory.
constexpr int kMostValueBytes = 64 << 20;

// Escapes a path for SQLite's URIs.
std::string Escaped(std::string_view path) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string escaped;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '%' || c == '?' || c == '#' || byte < 0x20 || byte >= 0x7f) {
      escaped += '%';
      escaped += kHex[byte >> 4];
      escaped += kHex[byte & 15];
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// Quotes an identifier of the file, whatever it contains.
std::string Quoted(std::string_view name) {
  std::string quoted = "\"";
  for (const char c : name) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::uint64_t SizeOf(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? static_cast<std::uint64_t>(info.st_size) : 0;
}

}  // namespace

bool BeginsLikeDatabase(std::string_view first_bytes) { return first_bytes.starts_with(kMagic); }

Rows::Rows(sqlite3* database, const std::string& query, std::uint64_t most) : database_(database), most_(most) {
  if (query.empty()) return;
  if (sqlite3_prepare_v2(database_, query.c_str(), -1, &statement_, nullptr) != SQLITE_OK)
    trouble_ = sqlite3_errmsg(database_);
}

Rows::Rows(Rows&& other) noexcept
    : database_(other.database_),
      statement_(std::exchange(other.statement_, nullptr)),
      read_(other.read_),
      most_(other.most_),
      trouble_(std::move(other.trouble_)) {}

Rows::~Rows() { sqlite3_finalize(statement_); }

bool Rows::Next() {
  if (statement_ == nullptr || !trouble_.empty()) return false;
  const int code = sqlite3_step(statement_);
  // Pages that refer to each other in a cycle give endless rows; SQLite does not detect that.
  if (code == SQLITE_ROW && read_ >= most_) return trouble_ = "more rows than the file has room for", false;
  if (code == SQLITE_ROW) return ++read_, true;
  if (code != SQLITE_DONE) trouble_ = sqlite3_errmsg(database_);
  return false;
}

std::int64_t Rows::Int(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_INTEGER ? sqlite3_column_int64(statement_, column) : kAbsent;
}

double Rows::Real(int column) const {
  const int type = sqlite3_column_type(statement_, column);
  return type == SQLITE_FLOAT || type == SQLITE_INTEGER ? sqlite3_column_double(statement_, column) : std::nan("");
}

std::string_view Rows::Text(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) return {};
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) return {};
  return {text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

bool Rows::Null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

Database::Database(Database&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)),
      path_(std::move(other.path_)),
      unfinished_(std::move(other.unfinished_)),
      cut_(other.cut_),
      most_rows_(other.most_rows_),
      tables_(std::move(other.tables_)) {}

Database::~Database() { sqlite3_close(database_); }

Result<Database> Database::Open(const std::string& path) {
  // SQLite would block at a pipe, and reports little of the system's error.
  const OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.open() || ::fstat(file.get(), &info) != 0) {
    const int error = errno;
    return Error{error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 "cannot be read: " + std::generic_category().message(error), path,
                 "check that it exists and may be read"};
  }
  constexpr std::size_t kHeaderBytes = 100;
  const std::string head = S_ISREG(info.st_mode) ? ReadUpTo(file.get(), 0, kHeaderBytes) : std::string();
  if (!BeginsLikeDatabase(head) || head.size() < kHeaderBytes)
    return Error{ErrorCode::kMalformed,
                 head.empty() ? "the file is empty" : "no SQLite database (its first bytes are not one's)", path,
                 "export the report again: nsys export --type sqlite REPORT.nsys-rep"};

  Database database;
  database.path_ = path;
  database.most_rows_ = static_cast<std::uint64_t>(info.st_size) / 4;
  // sqlite.org/fileformat2.html: page size and number of pages, which counts where the change counter says so.
  const auto big = [&](std::size_t at, int width) {
    std::uint64_t value = 0;
    for (int i = 0; i < width; ++i)
      value = value << 8 | static_cast<unsigned char>(head[at + static_cast<std::size_t>(i)]);
    return value;
  };
  const std::uint64_t page = big(16, 2) == 1 ? 65536 : big(16, 2);
  if (big(24, 4) == big(92, 4)) database.cut_ = page * big(28, 4) > static_cast<std::uint64_t>(info.st_size);
  for (const char* beside : {"-journal", "-wal"})
    if (SizeOf(path + beside) > 0) database.unfinished_ = path.substr(path.find_last_of('/') + 1) + beside;

  // Immutable: no locks, no journal, no shared memory beside the file, which may lie where nothing can be written.
  const std::string uri = "file:" + Escaped(path) + "?mode=ro&immutable=1";
  const int code = sqlite3_open_v2(uri.c_str(), &database.database_,
                                   SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK)
    return Error{ErrorCode::kIo,
                 std::string("SQLite cannot open it: ") +
                     (database.database_ != nullptr ? sqlite3_errmsg(database.database_) : sqlite3_errstr(code)),
                 path, "check that it may be read"};
  sqlite3* const db = database.database_;
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, kMostValueBytes);
  // The file's schema comes from another party: nothing in it may be executed.
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_exec(db, "PRAGMA cell_size_check=ON", nullptr, nullptr, nullptr);
  LS_CHECK(database.ListTables());
  return database;
}

Status Database::ListTables() {
  Rows rows(database_, "SELECT name, rootpage FROM sqlite_master WHERE type = 'table'", most_rows_);
  while (rows.Next())
    if (rows.Int(1) > 0) tables_.emplace(rows.Text(0));  // A virtual table has no page.
  if (tables_.empty() && !rows.trouble().empty())
    return Error{ErrorCode::kMalformed, "its list of tables cannot be read: " + rows.trouble(), path_,
                 "export the report again: nsys export --type sqlite REPORT.nsys-rep"};
  return Ok();
}

std::vector<std::string> Database::TablesWith(std::string_view prefix) const {
  std::vector<std::string> found;
  for (const std::string& table : tables_)
    if (table.starts_with(prefix)) found.push_back(table);
  return found;
}

bool Database::HasColumn(std::string_view table, std::string_view column) const {
  Rows columns(database_, "PRAGMA table_info(" + Quoted(table) + ")", most_rows_);
  while (columns.Next())
    if (columns.Text(1) == column) return true;
  return false;
}

Rows Database::Select(std::string_view table, std::initializer_list<std::string_view> columns) const {
  if (!Has(table)) return {database_, "", 0};
  std::set<std::string, std::less<>> there;
  Rows listed(database_, "PRAGMA table_info(" + Quoted(table) + ")", most_rows_);
  while (listed.Next()) there.emplace(listed.Text(1));
  std::string query = "SELECT ";
  for (const std::string_view column : columns)
    query += (query.size() > 7 ? ", " : "") + (there.contains(column) ? Quoted(column) : std::string("NULL"));
  return {database_, query + " FROM " + Quoted(table), most_rows_};
}

std::uint64_t Database::RowsIn(std::string_view table) const {
  if (!Has(table)) return 0;
  // Nsight numbers the rows of an event table from 1 and deletes none (exports of 2024.5 and 2026.2). Reading every row
  // would read the whole file, most of which can be samples.
  Rows last(database_, "SELECT max(_rowid_) FROM " + Quoted(table), most_rows_);
  if (last.Next()) return std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(last.Int(0), 0)), most_rows_);
  Rows rows = Select(table, {""});
  while (rows.Next()) {
  }
  return rows.read();
}

}  // namespace lockstep::nsys
