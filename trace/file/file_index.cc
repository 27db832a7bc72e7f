#include "trace/file/file_index.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/own_file.h"
#include "trace/file/digest.h"

namespace lockstep::trace {
namespace {

constexpr char kMagic[8] = {'L', 'S', 'I', 'N', 'D', 'E', 'X', '1'};
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

// Calls f(table, column, the column's bytes) for each; false if they are not as AddTable wrote them.
template <typename F>
bool ForEachColumn(std::string_view tables, std::uint32_t count, F&& f) {
  Cursor cursor(tables);
  for (std::uint32_t t = 0; t < count && cursor.ok(); ++t) {
    const std::string_view table = cursor.TakeText();
    const auto columns = cursor.Take<std::uint32_t>();
    for (std::uint32_t c = 0; c < columns && cursor.ok(); ++c) {
      const std::string_view name = cursor.TakeText(), bytes = cursor.TakeText();
      if (cursor.ok()) f(table, name, bytes);
    }
  }
  return cursor.ok();
}

// Returns false if the values are impossible in a file of that size.
bool ParseColumn(std::string_view bytes, std::uint64_t file_bytes, StoredColumn& column) {
  if (bytes.size() < kColumnBytes || (bytes.size() - kColumnBytes) % kChunkBytes != 0) return false;
  Cursor cursor(bytes);
  column.present = column.one_dimensional = column.integer = column.direct = true;
  column.width = cursor.Take<std::uint8_t>();
  column.is_signed = cursor.Take<std::uint8_t>() != 0;
  column.rows = cursor.Take<std::uint64_t>();
  column.chunk_rows = cursor.Take<std::uint64_t>();
  column.shuffle_filter = 0;
  column.deflate_filter = 1;
  column.chunks.resize((bytes.size() - kColumnBytes) / kChunkBytes);
  std::uint64_t stored = 0;
  for (StoredChunk& chunk : column.chunks) {
    chunk.offset = cursor.Take<std::uint64_t>();
    chunk.bytes = cursor.Take<std::uint64_t>();
    if (chunk.offset == 0 || chunk.offset > file_bytes || chunk.bytes > file_bytes - chunk.offset) return false;
    stored += chunk.bytes;
  }
  return column.width >= 1 && column.width <= 8 && FitsItsChunks(column, stored);
}

// The digest of all bytes in [0, end) that are in no chunk. Returns false if chunks overlap or exceed the file.
bool DigestMetadata(int fd, std::uint64_t end, std::vector<StoredChunk> chunks, std::uint64_t& digest) {
  std::sort(chunks.begin(), chunks.end(),
            [](const StoredChunk& a, const StoredChunk& b) { return a.offset < b.offset; });
  ValueDigest values;
  std::vector<std::byte> buffer;
  std::uint64_t at = 0;
  const auto add = [&](std::uint64_t until) {
    while (at < until) {
      const std::size_t bytes = std::min<std::uint64_t>(until - at, 1 << 20);
      if (buffer.size() < bytes) buffer.resize(bytes);
      if (!ReadAt(fd, at, buffer.data(), bytes)) return false;
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

bool FileIndex::Append(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return false;
  const auto end = static_cast<std::uint64_t>(info.st_size);
  std::vector<StoredChunk> chunks;
  bool sound = true;
  sound &= ForEachColumn(tables_, table_count_, [&](std::string_view, std::string_view, std::string_view bytes) {
    StoredColumn column;
    sound &= ParseColumn(bytes, end, column);
    chunks.insert(chunks.end(), column.chunks.begin(), column.chunks.end());
  });
  Footer footer{};
  if (!sound || !DigestMetadata(fd, end, std::move(chunks), footer.metadata_digest)) return false;
  std::string body = attributes_ + tables_;
  ValueDigest digest;
  digest.Add(reinterpret_cast<const std::byte*>(body.data()), body.size());
  footer.attribute_bytes = attributes_.size();
  footer.table_bytes = tables_.size();
  footer.attributes = attribute_count_;
  footer.tables = table_count_;
  footer.body_digest = digest.value();
  footer.file_bytes = end + body.size() + sizeof footer;
  std::memcpy(footer.magic, kMagic, sizeof kMagic);
  Put(body, &footer, sizeof footer);
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
  return true;
}

std::optional<FileIndex> FileIndex::Load(int fd, std::uint64_t file_bytes) {
  Footer footer{};
  if (file_bytes < sizeof footer || !ReadAt(fd, file_bytes - sizeof footer, &footer, sizeof footer) ||
      std::memcmp(footer.magic, kMagic, sizeof kMagic) != 0 || footer.file_bytes != file_bytes ||
      footer.attribute_bytes > kMaxBody || footer.table_bytes > kMaxBody ||
      footer.attribute_bytes + footer.table_bytes > file_bytes - sizeof footer)
    return std::nullopt;
  const std::uint64_t end = file_bytes - sizeof footer - footer.attribute_bytes - footer.table_bytes;
  FileIndex index;
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
  std::vector<StoredChunk> chunks;
  bool sound = true;
  sound &=
      ForEachColumn(index.tables_, index.table_count_, [&](std::string_view, std::string_view, std::string_view bytes) {
        StoredColumn column;
        sound &= ParseColumn(bytes, end, column);
        chunks.insert(chunks.end(), column.chunks.begin(), column.chunks.end());
      });
  std::uint64_t metadata = 0;
  if (!sound || !DigestMetadata(fd, end, std::move(chunks), metadata) || metadata != footer.metadata_digest)
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
  ForEachColumn(tables_, table_count_, [&](std::string_view name, std::string_view column, std::string_view bytes) {
    if (name != info.name) return;
    for (std::size_t i = 0; i < info.column_count; ++i) {
      if (info.columns[i].name != column) continue;
      // Its offsets were checked against the file when it was loaded.
      (void)ParseColumn(bytes, UINT64_MAX, table.columns[i]);
      table.rows = std::min(table.rows, table.columns[i].rows);
      any = true;
    }
  });
  if (!any) table.rows = 0;
  return table;
}

}  // namespace lockstep::trace
