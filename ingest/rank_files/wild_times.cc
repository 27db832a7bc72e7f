#include <algorithm>
#include <string>

#include "ingest/rank_files/event_reader.h"
#include "ingest/rank_files/rank_source.h"

namespace lockstep::ingest {
namespace {

// Sums and differences of a few times within this limit fit into 64 bits. The largest real ones are CLOCK_REALTIME's:
// 2^60.6 in 2026.
constexpr std::int64_t kLimitNs = std::int64_t{1} << 61;
// Of a duration, for sums over rows: two years.
constexpr std::int64_t kLongestNs = std::int64_t{1} << 56;

bool IsWild(std::int64_t ns, std::int64_t limit_ns) {
  return (ns >= limit_ns || ns <= -limit_ns) && ns != schema::kNoTime;
}

template <typename Table>
std::uint64_t CutTable(Table& table) {
  std::uint64_t cut = 0;
  table.ForEachColumn([&](const schema::ColumnInfo& info, auto& values) { cut += CutWildTimes(info, values); });
  return cut;
}

ReadTables WithoutWildTimes(ReadTables read) {
  read.tables.ForEachTable([&](auto& table) {
    if (const std::uint64_t cut = CutTable(table))
      read.damaged.push_back(std::string(table.kInfo.name) + ": " + std::to_string(cut) + " times beyond 70 years");
  });
  return read;
}

}  // namespace

std::uint64_t CutWildTimes(const schema::ColumnInfo& column, std::vector<std::int64_t>& values) {
  if (column.role != schema::Role::kMoment && column.role != schema::Role::kDuration) return 0;
  const std::int64_t limit = column.role == schema::Role::kDuration ? kLongestNs : kLimitNs;
  std::uint64_t cut = 0;
  for (std::int64_t& value : values) {
    if (!IsWild(value, limit)) [[likely]]
      continue;
    value = std::clamp(value, 1 - limit, limit - 1);
    ++cut;
  }
  return cut;
}

ReadTables RankSource::ReadHead() const { return WithoutWildTimes(LoadHead()); }
ReadTables RankSource::ReadAll() const { return WithoutWildTimes(LoadAll()); }

}  // namespace lockstep::ingest
