#include "trace/file/schema_text.h"

#include "core/collective.h"
#include "core/data_type_name.h"
#include "core/mpi_ops.h"
#include "core/schema.h"
#include "trace/file/column_types.h"

namespace lockstep::trace {
namespace {

void AddTables(std::string& text, std::string_view title, std::string_view format, const schema::TableInfo* tables,
               std::size_t count) {
  text += "## " + std::string(title) + " (`" + std::string(format) + "`)\n";
  for (std::size_t i = 0; i < count; ++i) {
    const schema::TableInfo& table = tables[i];
    text += "\n### `" + std::string(table.name) + "`\n\n" + std::string(table.description) + ".\n\n";
    text += "| column | type | unit | meaning |\n|---|---|---|---|\n";
    for (std::size_t c = 0; c < table.column_count; ++c) {
      const schema::ColumnInfo& column = table.columns[c];
      text += "| `" + std::string(column.name) + "` | " + std::string(NameOf(column.type)) + " | " +
              std::string(column.unit) + " | " + DescriptionOf(column) + " |\n";
    }
  }
}

std::string NumberOf(std::int64_t value, schema::ColumnType type) {
  if (value == schema::kNoTime) return "kNoTime";
  if (value == schema::kNone && type == schema::ColumnType::kU32) return "kNone";
  return std::to_string(value);
}

// Calls f(code, name) for each code of the enumeration, in their order.
template <typename F>
void ForEachCode(const schema::EnumInfo& codes, const F& f) {
  for (std::size_t i = 0; i < codes.count; ++i) f(codes.values[i].code, codes.values[i].name);
  if (codes.count != 0) return;
  // These enumerations are listed in core/ outside of the schema, because other code needs them as well.
  if (&codes == &schema::kEnumInfo<CollectiveKind>) {
    for (int kind = 0; kind <= static_cast<int>(CollectiveKind::kCombine); ++kind)
      f(kind, Name(static_cast<CollectiveKind>(kind)));
  } else if (&codes == &schema::kEnumInfo<DataType>) {
    for (int type = 0; type <= static_cast<int>(DataType::kDerived); ++type) {
      const std::string_view name = TextOfDataType(static_cast<std::uint16_t>(type)).name;
      f(type, name.empty() ? "unknown" : name);
    }
  } else if (&codes == &schema::kEnumInfo<MpiOp>) {
    for (const MpiOpInfo& op : kMpiOps) f(static_cast<std::int64_t>(op.op), op.name);
  }
}

// A section of the documentation with all codes of an enumeration; `quote` surrounds each name.
std::string CodesSection(std::string_view title, const schema::EnumInfo& codes, std::string_view quote) {
  std::string text = "\n## Numbers of `" + std::string(title) + "`\n\n";
  bool first = true;
  ForEachCode(codes, [&](std::int64_t code, std::string_view name) {
    text +=
        (first ? "" : ", ") + std::to_string(code) + " " + std::string(quote) + std::string(name) + std::string(quote);
    first = false;
  });
  return text + ".\n";
}

}  // namespace

std::string DescriptionOf(const schema::ColumnInfo& column) {
  std::string text(column.text);
  if (column.role == schema::Role::kEnum) {
    const schema::EnumInfo& codes = *column.enumeration;
    if (codes.count == 0) return text + (text.empty() ? "" : ", ") + std::string(codes.name);
    for (std::size_t i = 0; i < codes.count; ++i) {
      text += i > 0 ? " " : text.empty() ? "" : ": ";
      text += std::to_string(codes.values[i].code) + " " + std::string(codes.values[i].name);
    }
    return text;
  }
  if (column.sentinel.kind == schema::Sentinel::kAbsent) return text;
  return text + "; " + NumberOf(column.sentinel.value, column.type) + " " + std::string(column.sentinel.word);
}

std::string CodesOf(const schema::ColumnInfo& column) {
  return CodesOf(column, [](std::int64_t) { return true; });
}

std::string CodesOf(const schema::ColumnInfo& column, const std::function<bool(std::int64_t)>& wanted) {
  if (column.role != schema::Role::kEnum) return {};
  std::string text;
  ForEachCode(*column.enumeration, [&](std::int64_t code, std::string_view name) {
    if (!wanted(code)) return;
    text += (text.empty() ? "" : "\n") + std::to_string(code) + " " + std::string(name);
  });
  return text;
}

std::string_view ClockNameOf(const schema::ColumnInfo& column) {
  if (column.role != schema::Role::kMoment) return {};
  switch (column.clock) {
    case schema::ClockOf::kRank:
      return "rank";
    case schema::ClockOf::kCluster:
      return "cluster";
    default:
      return "other";
  }
}

std::string SchemaMarkdown() {
  std::string text;
  AddTables(text, "Tables of a rank file", schema::kRankFileFormat, schema::kRankTableInfos,
            std::size(schema::kRankTableInfos));
  text += "\n";
  AddTables(text, "Tables of timeline.h5", schema::kTimelineFormat, schema::kTimelineTableInfos,
            std::size(schema::kTimelineTableInfos));
  text += CodesSection("CollectiveKind", schema::kEnumInfo<CollectiveKind>, "");
  text += CodesSection("mpi_calls.op", schema::kEnumInfo<MpiOp>, "`");
  return text;
}

}  // namespace lockstep::trace
