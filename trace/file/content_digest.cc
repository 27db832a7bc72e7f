#include "trace/file/content_digest.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/hash.h"
#include "trace/file/column_types.h"
#include "trace/file/digest.h"
#include "trace/file/strings.h"

namespace lockstep::trace {
namespace {

template <typename Tables, typename Strings, typename Bytes, typename Meta>
class Digester {
 public:
  explicit Digester(const TableFile& file) : file_(file) {}

  Result<std::uint64_t> Run() {
    LS_TRY(const Strings strings, file_.Read<Strings>());
    LS_TRY(const Bytes bytes, file_.Read<Bytes>());
    texts_.reserve(strings.rows());
    for (std::uint32_t id = 0; id < strings.rows(); ++id) texts_.push_back(HashOf(TextOf(strings, bytes, id)));
    LS_TRY(const Meta meta, file_.Read<Meta>());
    for (std::size_t i = 0; i < meta.rows(); ++i) {
      if (TextOf(strings, bytes, meta.key[i]) == "inputs") continue;
      all_.Add(Text(meta.key[i]));
      all_.Add(Text(meta.value[i]));
    }
    Status status = Ok();
    Tables tables;
    tables.ForEachTable([&](const auto& table) {
      if (status.ok() && !table.kInfo.Is(schema::kTexts) && !table.kInfo.Is(schema::kFacts))
        status = AddTable(table.kInfo);
    });
    if (!status.ok()) return status.error();
    return all_.value();
  }

 private:
  static std::uint64_t HashOf(std::string_view text) {
    Hash64 hash;
    hash.Add(text);
    return hash.value();
  }
  std::uint64_t Text(std::uint32_t id) const { return id < texts_.size() ? texts_[id] : 0; }

  Status AddTable(const schema::TableInfo& table) {
    const std::uint64_t rows = file_.Rows(table.name);
    all_.Add(HashOf(table.name));
    all_.Add(rows);
    std::vector<std::byte> buffer(kChunkRows * sizeof(std::uint64_t));
    std::vector<std::uint64_t> texts;
    for (std::size_t c = 0; c < table.column_count; ++c) {
      const schema::ColumnInfo& column = table.columns[c];
      if (table.name == "ranks" && column.name == "file") continue;
      const bool is_text = column.role == schema::Role::kText;
      ValueDigest values;
      for (std::uint64_t first = 0; first < rows; first += kChunkRows) {
        const std::uint64_t count = std::min<std::uint64_t>(rows - first, kChunkRows);
        LS_CHECK(file_.ReadColumn(table.name, column, first, count, buffer.data()));
        if (!is_text) {
          values.Add(buffer.data(), count * WidthOf(column.type));
          continue;
        }
        texts.clear();
        const auto* ids = reinterpret_cast<const std::uint32_t*>(buffer.data());
        for (std::uint64_t i = 0; i < count; ++i) texts.push_back(Text(ids[i]));
        values.Add(reinterpret_cast<const std::byte*>(texts.data()), texts.size() * sizeof(texts[0]));
      }
      all_.Add(values.value());
    }
    return Ok();
  }

  const TableFile& file_;
  std::vector<std::uint64_t> texts_;  // By id.
  Hash64 all_;
};

}  // namespace

Result<std::uint64_t> ContentDigest(const TableFile& file) {
  if (file.format() == schema::kRankFileFormat)
    return Digester<schema::RankTables, schema::Strings, schema::StringBytes, schema::Meta>(file).Run();
  return Digester<schema::TimelineTables, schema::TlStrings, schema::TlStringBytes, schema::TlMeta>(file).Run();
}

}  // namespace lockstep::trace
