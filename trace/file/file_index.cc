#include "trace/file/file_index.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/own_file.h"
#include "trace/file/digest.h"
#include "trace/file/table_file.h"

namespace lockstep::trace {
namespace {

// 2: of small tables. A reader that knows only the first ignores the other, and reads the file through libhdf5.
constexpr std::string_view kMagic = "LSINDEX1", kSmallMagic = "LSINDEX2";
constexpr std::uint64_t kMaxBody = 1u << 30;

// The last bytes of the file.
struct Footer {
  std::uint64_t attribute_bytes, table_bytes;  // Before the footer, in this order.
  std::uint32_t attributes, tables;
  std::uint64_t body_digest;      // A digest of both.
  std::uint64_t metadata_digest;  // A digest of all bytes before them that are in no chunk.
  std::uint64_t file_bytes;
  char magic[8];
};
static_assert(sizeof(Footer) == 56);

void Put(std::string& out, const void* data, std::size_t bytes) { out.append(static_cast<const char*>(data), bytes); }
template <typename T>
void Put(std::string& out, T value) {
  Put(out, &value, sizeof value);
}
void PutText(std::string& out, std::string_view text) {
  Put(out, static_cast<std::uint32_t>(text.size()));
  out.append(text);
}

// Reads what Put wrote; reports when there are fewer bytes than that.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : rest_(bytes) {}
  template <typename T>
  T Take() {
    T value{};
    if (rest_.size() < sizeof value) {
      ok_ = false;
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view TakeText() { return TakeBytes(Take<std::uint32_t>()); }
  std::string_view TakeBytes(std::uint64_t bytes) {
    if (bytes > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  bool ok() const { return ok_; }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

// A column: width, sign, rows, rows of a chunk, then each chunk's offset and bytes.
constexpr std::size_t kColumnBytes = 1 + 1 + 8 + 8, kChunkBytes = 8 + 8;
// A small column: one of these, then offset and bytes.
constexpr std::size_t kSmallColumnBytes = 1 + 8 + 4;
constexpr std::uint8_t kWidthBits = 0x0f, kSigned = 0x10, kRaw = 0x20, kLeftOut = 0x40;
constexpr std::uint32_t kRawFilters = 3;  // Both filters were skipped.

// A column as it is in the index.
struct Entry {
  std::string_view table, name, bytes;
  bool small = false;
  std::uint32_t rows = 0;  // Of the table, if it is small.
};

// Calls f(entry) for each; false if they are not as AddTable wrote them.
template <typename F>
bool ForEachEntry(std::string_view tables, std::uint32_t count, bool small, F&& f) {
  Cursor cursor(tables);
  for (std::uint32_t t = 0; t < count && cursor.ok(); ++t) {
    Entry entry;
    entry.small = small;
    entry.table = cursor.TakeText();
    if (small) entry.rows = cursor.Take<std::uint32_t>();
    const auto columns = cursor.Take<std::uint32_t>();
    for (std::uint32_t c = 0; c < columns && cursor.ok(); ++c) {
      entry.name = small ? cursor.TakeBytes(cursor.Take<std::uint8_t>()) : cursor.TakeText();
      entry.bytes = small ? cursor.TakeBytes(kSmallColumnBytes) : cursor.TakeText();
      if (cursor.ok()) f(entry);
    }
  }
  return cursor.ok();
}

bool IsWithin(const StoredChunk& chunk, std::uint64_t file_bytes) {
  return chunk.offset != 0 && chunk.offset <= file_bytes && chunk.bytes <= file_bytes - chunk.offset;
}

// Returns false if the values are impossible in a file of that size.
bool ParseSmallColumn(const Entry& entry, std::uint64_t file_bytes, StoredColumn& column) {
  Cursor cursor(entry.bytes);
  const auto form = cursor.Take<std::uint8_t>();
  StoredChunk chunk;
  chunk.offset = cursor.Take<std::uint64_t>();
  chunk.bytes = cursor.Take<std::uint32_t>();
  column.width = form & kWidthBits;
  column.is_signed = (form & kSigned) != 0;
  column.rows = column.chunk_rows = entry.rows;
  column.left_out = (form & kLeftOut) != 0;
  column.present = !column.left_out;
  if (entry.rows > kChunkRows) return false;
  if (column.left_out) return column.width >= 1 && column.width <= 8;
  if ((form & kRaw) != 0) chunk.skipped_filters = kRawFilters;
  if (entry.rows > 0) column.chunks.push_back(chunk);
  for (const StoredChunk& one : column.chunks)
    if (!IsWithin(one, file_bytes)) return false;
  return column.width >= 1 && column.width <= 8 && FitsItsChunks(column, chunk.bytes);
}

// The same for any column.
bool ParseColumn(const Entry& entry, std::uint64_t file_bytes, StoredColumn& column) {
  column.one_dimensional = column.integer = column.direct = true;
  column.shuffle_filter = 0;
  column.deflate_filter = 1;
  if (entry.small) return ParseSmallColumn(entry, file_bytes, column);
  const std::string_view bytes = entry.bytes;
  if (bytes.size() < kColumnBytes || (bytes.size() - kColumnBytes) % kChunkBytes != 0) return false;
  Cursor cursor(bytes);
  column.present = true;
  column.width = cursor.Take<std::uint8_t>();
  column.is_signed = cursor.Take<std::uint8_t>() != 0;
  column.rows = cursor.Take<std::uint64_t>();
  column.chunk_rows = cursor.Take<std::uint64_t>();
  column.chunks.resize((bytes.size() - kColumnBytes) / kChunkBytes);
  std::uint64_t stored = 0;
  for (StoredChunk& chunk : column.chunks) {
    chunk.offset = cursor.Take<std::uint64_t>();
    chunk.bytes = cursor.Take<std::uint64_t>();
    if (!IsWithin(chunk, file_bytes)) return false;
    stored += chunk.bytes;
  }
  return column.width >= 1 && column.width <= 8 && FitsItsChunks(column, stored);
}

// The chunks of all columns that have a checksum of their own. Returns false if the index is impossible.
bool CollectChunks(std::string_view tables, std::uint32_t count, bool small, std::uint64_t file_bytes,
                   std::vector<StoredChunk>& chunks) {
  bool sound = true;
  sound &= ForEachEntry(tables, count, small, [&](const Entry& entry) {
    StoredColumn column;
    sound &= ParseColumn(entry, file_bytes, column);
    for (const StoredChunk& chunk : column.chunks)
      if (chunk.skipped_filters == 0) chunks.push_back(chunk);
  });
  return sound;
}

// The digest of all bytes in [0, end) that are in no chunk. Returns false if chunks overlap or exceed the file.
template <typename Read>
bool DigestMetadata(const Read& read, std::uint64_t end, std::vector<StoredChunk> chunks, std::uint64_t& digest) {
  std::sort(chunks.begin(), chunks.end(),
            [](const StoredChunk& a, const StoredChunk& b) { return a.offset < b.offset; });
  ValueDigest values;
  std::vector<std::byte> buffer;
  std::uint64_t at = 0;
  const auto add = [&](std::uint64_t until) {
    while (at < until) {
      const std::size_t bytes = std::min<std::uint64_t>(until - at, 1 << 20);
      if (buffer.size() < bytes) buffer.resize(bytes);
      if (!read(at, buffer.data(), bytes)) return false;
      values.Add(buffer.data(), bytes);
      at += bytes;
    }
    return true;
  };
  for (const StoredChunk& chunk : chunks) {
    if (chunk.offset < at || chunk.offset > end || chunk.bytes > end - chunk.offset || !add(chunk.offset)) return false;
    at = chunk.offset + chunk.bytes;
  }
  if (!add(end)) return false;
  digest = values.value();
  return true;
}

}  // namespace

void FileIndex::AddAttribute(std::string_view name, const StoredAttribute& value) {
  PutText(attributes_, name);
  Put(attributes_, static_cast<std::uint8_t>(value.is_text));
  if (value.is_text)
    PutText(attributes_, value.text);
  else
    Put(attributes_, value.number);
  ++attribute_count_;
}

void FileIndex::AddTable(const IndexedTable& table) {
  PutText(tables_, table.name);
  Put(tables_, static_cast<std::uint32_t>(table.columns.size()));
  for (const IndexedColumn& column : table.columns) {
    PutText(tables_, column.name);
    Put(tables_, static_cast<std::uint32_t>(kColumnBytes + column.chunks.size() * kChunkBytes));
    Put(tables_, column.width);
    Put(tables_, static_cast<std::uint8_t>(column.is_signed));
    Put(tables_, column.rows);
    Put(tables_, column.chunk_rows);
    for (const StoredChunk& chunk : column.chunks) {
      Put(tables_, chunk.offset);
      Put(tables_, chunk.bytes);
    }
  }
  ++table_count_;
}

void FileIndex::AddTable(const SmallTable& table) {
  small_ = true;
  PutText(tables_, table.name);
  Put(tables_, table.rows);
  Put(tables_, static_cast<std::uint32_t>(table.columns.size()));
  for (const SmallColumn& column : table.columns) {
    const std::string_view name = column.name.substr(0, UINT8_MAX);
    Put(tables_, static_cast<std::uint8_t>(name.size()));
    tables_ += name;
    Put(tables_, static_cast<std::uint8_t>(column.width | (column.is_signed ? kSigned : 0) | (column.raw ? kRaw : 0) |
                                           (column.left_out ? kLeftOut : 0)));
    Put(tables_, column.offset);
    Put(tables_, static_cast<std::uint32_t>(column.bytes));
  }
  ++table_count_;
}

std::string FileIndex::Compose(std::uint64_t end,
                               const std::function<bool(std::uint64_t, std::byte*, std::size_t)>& read) const {
  std::vector<StoredChunk> chunks;
  Footer footer{};
  if (!CollectChunks(tables_, table_count_, small_, end, chunks) ||
      !DigestMetadata(read, end, std::move(chunks), footer.metadata_digest))
    return {};
  std::string body = attributes_ + tables_;
  ValueDigest digest;
  digest.Add(reinterpret_cast<const std::byte*>(body.data()), body.size());
  footer.attribute_bytes = attributes_.size();
  footer.table_bytes = tables_.size();
  footer.attributes = attribute_count_;
  footer.tables = table_count_;
  footer.body_digest = digest.value();
  footer.file_bytes = end + body.size() + sizeof footer;
  std::memcpy(footer.magic, (small_ ? kSmallMagic : kMagic).data(), sizeof footer.magic);
  Put(body, &footer, sizeof footer);
  return body;
}

bool FileIndex::Append(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return false;
  const auto end = static_cast<std::uint64_t>(info.st_size);
  const std::string body =
      Compose(end, [fd](std::uint64_t at, std::byte* out, std::size_t bytes) { return ReadAt(fd, at, out, bytes); });
  std::size_t written = 0;
  while (written < body.size()) {
    const ssize_t put = ::pwrite(fd, body.data() + written, body.size() - written, static_cast<off_t>(end + written));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      (void)!::ftruncate(fd, static_cast<off_t>(end));
      return false;
    }
    written += static_cast<std::size_t>(put);
  }
  return !body.empty();
}

std::optional<FileIndex> FileIndex::Load(int fd, std::uint64_t file_bytes) {
  Footer footer{};
  if (file_bytes < sizeof footer || !ReadAt(fd, file_bytes - sizeof footer, &footer, sizeof footer) ||
      footer.file_bytes != file_bytes || footer.attribute_bytes > kMaxBody || footer.table_bytes > kMaxBody ||
      footer.attribute_bytes + footer.table_bytes > file_bytes - sizeof footer)
    return std::nullopt;
  const std::string_view magic(footer.magic, sizeof footer.magic);
  if (magic != kMagic && magic != kSmallMagic) return std::nullopt;
  const std::uint64_t end = file_bytes - sizeof footer - footer.attribute_bytes - footer.table_bytes;
  FileIndex index;
  index.small_ = magic == kSmallMagic;
  index.attributes_.resize(footer.attribute_bytes);
  index.tables_.resize(footer.table_bytes);
  index.attribute_count_ = footer.attributes;
  index.table_count_ = footer.tables;
  if (!ReadAt(fd, end, index.attributes_.data(), index.attributes_.size()) ||
      !ReadAt(fd, end + footer.attribute_bytes, index.tables_.data(), index.tables_.size()))
    return std::nullopt;
  ValueDigest body;
  body.Add(reinterpret_cast<const std::byte*>(index.attributes_.data()), index.attributes_.size());
  body.Add(reinterpret_cast<const std::byte*>(index.tables_.data()), index.tables_.size());
  if (body.value() != footer.body_digest) return std::nullopt;
  const auto read = [fd](std::uint64_t at, std::byte* out, std::size_t bytes) { return ReadAt(fd, at, out, bytes); };
  std::vector<StoredChunk> chunks;
  std::uint64_t metadata = 0;
  if (!CollectChunks(index.tables_, index.table_count_, index.small_, end, chunks) ||
      !DigestMetadata(read, end, std::move(chunks), metadata) || metadata != footer.metadata_digest)
    return std::nullopt;
  return index;
}

void FileIndex::ForEachAttribute(const std::function<void(std::string_view, const StoredAttribute&)>& f) const {
  Cursor cursor(attributes_);
  for (std::uint32_t i = 0; i < attribute_count_ && cursor.ok(); ++i) {
    const std::string_view name = cursor.TakeText();
    StoredAttribute value;
    value.is_text = cursor.Take<std::uint8_t>() != 0;
    if (value.is_text)
      value.text = cursor.TakeText();
    else
      value.number = cursor.Take<std::int64_t>();
    if (cursor.ok()) f(name, value);
  }
}

StoredTable FileIndex::Table(const schema::TableInfo& info) const {
  StoredTable table;
  table.columns.resize(info.column_count);
  bool any = false;
  table.rows = UINT64_MAX;
  ForEachEntry(tables_, table_count_, small_, [&](const Entry& entry) {
    if (entry.table != info.name) return;
    for (std::size_t i = 0; i < info.column_count; ++i) {
      if (info.columns[i].name != entry.name) continue;
      // Its offsets were checked against the file when it was loaded.
      (void)ParseColumn(entry, UINT64_MAX, table.columns[i]);
      table.rows = std::min(table.rows, table.columns[i].rows);
      any = true;
    }
  });
  if (!any) table.rows = 0;
  return table;
}

}  // namespace lockstep::trace
