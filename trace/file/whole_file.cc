#include "trace/file/whole_file.h"

#include <cstring>
#include <unordered_set>
#include <utility>

#include "core/version.h"
#include "trace/file/column_types.h"
#include "trace/file/hdf5_bytes.h"
#include "trace/file/left_out.h"
#include "trace/file/schema_text.h"

namespace lockstep::trace {
namespace {

// Longer lists of codes name only those that occur: all functions of MPI would be half of a small file.
constexpr std::size_t kMostCodesBytes = 1024;

std::string CodesToName(const WholeColumn& column) {
  std::string all = CodesOf(*column.info);
  if (all.size() <= kMostCodesBytes) return all;
  const std::size_t width = WidthOf(column.info->type);
  std::unordered_set<std::int64_t> occurring;
  for (std::size_t at = 0; at + width <= column.values.size(); at += width) {
    std::int64_t code = 0;  // Codes are not negative.
    std::memcpy(&code, column.values.data() + at, width);
    occurring.insert(code);
  }
  return CodesOf(*column.info, [&](std::int64_t code) { return occurring.contains(code); });
}

// An attribute of variable length.
struct NamedText {
  const char* name;
  HeapText text;
};

struct ComposedTable {
  std::vector<NamedText> texts;
  std::vector<std::vector<NamedText>> of_columns;
  std::string left_out;
};

ComposedTable TextsOf(const WholeTable& table, TextHeap& heap) {
  ComposedTable composed;
  composed.texts.push_back({"description", heap.Add(table.info->description)});
  for (const WholeColumn& column : table.columns) {
    std::vector<NamedText>& texts = composed.of_columns.emplace_back();
    if (column.left_out) {
      composed.left_out += LeftOutLine(*column.info);
      continue;
    }
    texts.push_back({"unit", heap.Add(column.info->unit)});
    texts.push_back({"description", heap.Add(DescriptionOf(*column.info))});
    if (const std::string codes = CodesToName(column); !codes.empty()) texts.push_back({"codes", heap.Add(codes)});
    if (const std::string_view clock = ClockNameOf(*column.info); !clock.empty())
      texts.push_back({"clock", heap.Add(clock)});
  }
  return composed;
}

class Composer {
 public:
  Composer(std::string_view format, const std::map<std::string, StoredAttribute>& attributes)
      : attributes_(attributes), file_(kSuperblockBytes, '\0') {
    root_texts_.push_back({"format", heap_.Add(format)});
    root_texts_.push_back({"lockstep_version", heap_.Add(LOCKSTEP_VERSION)});
  }

  std::string Compose(const std::vector<WholeTable>& tables) {
    std::vector<ComposedTable> composed;
    for (const WholeTable& table : tables) composed.push_back(TextsOf(table, heap_));
    file_.resize((file_.size() + 7) / 8 * 8);
    heap_address_ = file_.size();
    file_ += heap_.Bytes();
    ObjectHeader root;
    root.AddGroup();
    for (std::size_t i = 0; i < tables.size(); ++i)
      root.AddLink(tables[i].info->name, AppendTable(tables[i], composed[i]));
    AddTexts(root, root_texts_);
    for (const auto& [name, value] : attributes_) {
      if (value.is_text)
        root.AddFixedText(name, value.text);
      else
        root.AddInt(name, value.number);
      index_.AddAttribute(name, value);
    }
    const std::uint64_t root_address = root.AppendTo(file_);
    file_.replace(0, kSuperblockBytes, Superblock(root_address, file_.size()));
    index_.AppendTo(file_);
    return std::move(file_);
  }

 private:
  void AddTexts(ObjectHeader& header, const std::vector<NamedText>& texts) const {
    for (const NamedText& text : texts) header.AddText(text.name, text.text, heap_address_);
  }

  std::uint64_t AppendTable(const WholeTable& table, const ComposedTable& composed) {
    SmallTable indexed{table.info->name, static_cast<std::uint32_t>(table.rows), {}};
    ObjectHeader group;
    group.AddGroup();
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const WholeColumn& column = table.columns[i];
      SmallColumn& entry = indexed.columns.emplace_back();
      entry.name = column.info->name;
      entry.width = static_cast<std::uint8_t>(WidthOf(column.info->type));
      entry.is_signed = column.info->is_signed();
      entry.left_out = column.left_out;
      if (!column.left_out)
        group.AddLink(column.info->name, AppendColumn(column, table.rows, composed.of_columns[i], entry));
    }
    AddTexts(group, composed.texts);
    if (!composed.left_out.empty()) group.AddFixedText(kLeftOutAttribute, composed.left_out);
    index_.AddTable(indexed);
    return group.AppendTo(file_);
  }

  std::uint64_t AppendColumn(const WholeColumn& column, std::uint64_t rows, const std::vector<NamedText>& texts,
                             SmallColumn& entry) {
    ObjectHeader dataset;
    dataset.AddColumn(rows, entry.width, entry.is_signed);
    if (!column.deflated.empty()) {
      entry.offset = file_.size();
      entry.bytes = column.deflated.size();
      file_.append(reinterpret_cast<const char*>(column.deflated.data()), column.deflated.size());
      dataset.AddChunk(rows, entry.width, entry.offset, entry.bytes);
    } else if (rows > 0) {
      entry.raw = true;
      entry.bytes = column.values.size();
      dataset.AddValues(column.values);
    } else {
      dataset.AddNoValues();
    }
    AddTexts(dataset, texts);
    const std::uint64_t address = dataset.AppendTo(file_);
    if (entry.raw) entry.offset = dataset.values_address();
    return address;
  }

  const std::map<std::string, StoredAttribute>& attributes_;
  std::string file_;
  TextHeap heap_;
  std::uint64_t heap_address_ = 0;
  std::vector<NamedText> root_texts_;
  FileIndex index_;
};

}  // namespace

bool IsUnknownThroughout(const schema::ColumnInfo& column, std::span<const std::byte> values) {
  const std::size_t width = WidthOf(column.type);
  if (values.size() < width) return false;
  std::byte unknown[8];
  FillUnknown(column, unknown, 1);
  return std::memcmp(values.data(), unknown, width) == 0 &&
         std::memcmp(values.data(), values.data() + width, values.size() - width) == 0;
}

std::string ComposeWholeFile(std::string_view format, const std::map<std::string, StoredAttribute>& attributes,
                             const std::vector<WholeTable>& tables) {
  return Composer(format, attributes).Compose(tables);
}

}  // namespace lockstep::trace
