#include "trace/file/left_out.h"

#include "trace/file/column_types.h"
#include "trace/file/schema_text.h"

namespace lockstep::trace {

std::string LeftOutLine(const schema::ColumnInfo& column) {
  const std::int64_t value = column.unknown();
  std::string line = std::string(column.name) + ' ' + std::string(NameOf(column.type)) + ' ' +
                     std::string(column.unit) + ' ' + std::to_string(value);
  const std::string code = CodesOf(column, [value](std::int64_t candidate) { return candidate == value; });
  if (!code.empty()) line += code.substr(code.find(' '));
  return line + '\n';
}

bool IsLeftOut(std::string_view lines, const schema::ColumnInfo& column) {
  const std::string begin = std::string(column.name) + ' ';
  return lines.starts_with(begin) || lines.find('\n' + begin) != std::string_view::npos;
}

}  // namespace lockstep::trace
