#include "analysis/tables/engine/table.h"

namespace lockstep::tables {
namespace {

std::string_view OfAll(Pool pool) {
  switch (pool) {
    case Pool::kSum:
      return "sum";
    case Pool::kMin:
      return "least";
    case Pool::kMax:
      return "largest";
    case Pool::kKey:
      return "key";
    case Pool::kNone:
      return "";
  }
  return "";
}

}  // namespace

std::string TablesMarkdown() {
  std::string out;
  for (const TableKind& kind : TableKinds()) {
    out += "### `" + std::string(kind.name) + "`\n\n" + std::string(kind.title) + ": " + std::string(kind.answers) +
           ".\n\n| column | kind | over ranks | meaning |\n|---|---|---|---|\n";
    for (const TableColumn& column : kind.columns->list())
      out += "| `" + column.name + "` | " + std::string(NameOf(column.kind)) + " | " + std::string(OfAll(column.pool)) +
             " | " + column.description + " |\n";
    out += '\n';
  }
  return out;
}

}  // namespace lockstep::tables
