#include "ingest/rank_files/event_reader.h"

#include <cstring>

#include "trace/file/column_types.h"

namespace lockstep::ingest {
namespace {

class MemoryReader final : public EventReader {
 public:
  explicit MemoryReader(const schema::RankTables& tables) : tables_(tables) {}
  MemoryReader(schema::RankTables&& tables, std::vector<std::string> damaged)
      : kept_(std::make_unique<schema::RankTables>(std::move(tables))), tables_(*kept_) {
    for (const std::string& what : damaged) NoteDamage(what.substr(0, what.find_first_of(":/")), what);
  }

  std::uint64_t Rows(std::string_view name) const override {
    std::uint64_t rows = 0;
    tables_.ForEachTable([&](const auto& table) {
      if (table.kInfo.name == name) rows = table.rows();
    });
    return rows;
  }

 private:
  Status ReadColumn(std::string_view name, const schema::ColumnInfo& column, std::uint64_t first, std::uint64_t count,
                    std::byte* out) override {
    tables_.ForEachTable([&](const auto& table) {
      if (table.kInfo.name != name) return;
      table.ForEachColumn([&](const schema::ColumnInfo& info, const auto& values) {
        if (info.name != column.name || count == 0) return;
        const std::size_t width = sizeof(values[0]);
        // Columns that were not filled are empty.
        const std::uint64_t there = values.size() > first ? std::min<std::uint64_t>(values.size() - first, count) : 0;
        if (there > 0) std::memcpy(out, values.data() + first, there * width);
        trace::FillUnknown(info, out + there * width, count - there);
      });
    });
    return Ok();
  }

  std::unique_ptr<schema::RankTables> kept_;
  const schema::RankTables& tables_;
};

}  // namespace

std::vector<std::string> EventReader::Damaged() const {
  std::vector<std::string> lines;
  for (const auto& [table, what] : damage_) lines.push_back(what.starts_with(table) ? what : table + ": " + what);
  std::map<std::string_view, std::uint64_t> cut;
  for (const auto& [column, count] : cuts_)
    if (count.cut > 0) cut[column.first] += count.cut;
  for (const auto& [table, count] : cut)
    lines.push_back(std::string(table) + ": " + std::to_string(count) + " times beyond 70 years");
  return lines;
}

void EventReader::NoteDamage(std::string_view table, const std::string& what) {
  damage_.emplace(std::string(table), what);
}

void EventReader::NoteCut(std::string_view table, std::string_view column, std::uint64_t first, std::uint64_t count,
                          std::uint64_t cut) {
  Cut& so_far = cuts_[{table, column}];
  if (first + count <= so_far.rows_seen) return;
  so_far.rows_seen = first + count;
  so_far.cut += cut;
}

std::unique_ptr<EventReader> ReadFromMemory(const schema::RankTables& tables) {
  return std::make_unique<MemoryReader>(tables);
}

std::unique_ptr<EventReader> ReadFromMemory(schema::RankTables&& tables, std::vector<std::string> damaged) {
  return std::make_unique<MemoryReader>(std::move(tables), std::move(damaged));
}

}  // namespace lockstep::ingest
