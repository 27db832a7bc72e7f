#pragma once
// The one list of every table and column in Lockstep's files. Writers, readers,
// docs and tests are generated from it: a column exists if and only if it is
// listed in core/rank_tables.h or core/timeline_tables.h. runtime/ and merge/ meet
// here and nowhere else.
//
// X(type, name, unit, description). Units: "ns" (rank clock unless the
// description says cluster), "ticks", "bytes", "rows", "id" (row of another
// table), "string" (row of `strings`), "count", "enum", "bool", "1".
// -1 or kNone means "unknown"; a time of kNoTime means "not seen".

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/rank_tables.h"
#include "core/timeline_tables.h"

namespace lockstep::schema {

inline constexpr std::string_view kRankFileFormat = "lockstep.rank/1";
inline constexpr std::string_view kTimelineFormat = "lockstep.timeline/1";
inline constexpr std::uint32_t kNone = 0xffffffffu;
inline constexpr std::int64_t kNoTime = std::numeric_limits<std::int64_t>::min();

enum class ColumnType : std::uint8_t { kU8, kU16, kU32, kU64, kI32, kI64 };
template <typename T>
constexpr ColumnType TypeOf() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return ColumnType::kU8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return ColumnType::kU16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return ColumnType::kU32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return ColumnType::kU64;
  if constexpr (std::is_same_v<T, std::int32_t>) return ColumnType::kI32;
  if constexpr (std::is_same_v<T, std::int64_t>) return ColumnType::kI64;
}
struct ColumnInfo {
  std::string_view name;
  ColumnType type;
  std::string_view unit, description;
};
// What a column holds where its value is not known, and so what a reader fills in for files
// that were written before the column was: the constant that its description names, else 0.
constexpr std::int64_t UnknownOf(const ColumnInfo& column) {
  if (column.description.find("kNoTime") != std::string_view::npos) return kNoTime;
  if (column.description.find("kNone") != std::string_view::npos) return kNone;
  return 0;
}
struct TableInfo {
  std::string_view name, description;
  const ColumnInfo* columns;
  std::size_t column_count;
};

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

// Generates, per table: a struct of equally long column vectors; Row; Append;
// Get; kInfo; ForEachColumn(f) with f(const ColumnInfo&, std::vector<T>&).
#define LS_FIELD_(type, name, unit, text) type name{};
#define LS_VECTOR_(type, name, unit, text) std::vector<type> name;
#define LS_PUSH_(type, name, unit, text) this->name.push_back(values_.name);
#define LS_GET_(type, name, unit, text) values_.name = this->name[at_];
#define LS_INFO_(type, name, unit, text) ColumnInfo{#name, TypeOf<type>(), unit, text},
#define LS_VISIT_(type, name, unit, text) f_(kColumns[column_++], this->name);
#define LS_ROWS_(type, name, unit, text) return this->name.size();
#define LS_COUNT_(type, name, unit, text) +1
#define LS_DECLARE_TABLE(member, Type, COLUMNS, text)                                    \
  struct Type {                                                                          \
    struct Row {                                                                         \
      COLUMNS(LS_FIELD_)                                                                 \
    };                                                                                   \
    COLUMNS(LS_VECTOR_)                                                                  \
    static constexpr std::size_t kColumnCount = 0 COLUMNS(LS_COUNT_);                    \
    static constexpr std::array<ColumnInfo, kColumnCount> kColumns{{COLUMNS(LS_INFO_)}}; \
    static constexpr TableInfo kInfo{#member, text, kColumns.data(), kColumnCount};      \
    std::size_t rows() const { COLUMNS(LS_ROWS_) }                                       \
    void Append(const Row& values_){COLUMNS(LS_PUSH_)} Row Get(std::size_t at_) const {  \
      Row values_;                                                                       \
      COLUMNS(LS_GET_)                                                                   \
      return values_;                                                                    \
    }                                                                                    \
    template <typename F>                                                                \
    void ForEachColumn(F&& f_) {                                                         \
      std::size_t column_ = 0;                                                           \
      COLUMNS(LS_VISIT_)                                                                 \
    }                                                                                    \
    template <typename F>                                                                \
    void ForEachColumn(F&& f_) const {                                                   \
      std::size_t column_ = 0;                                                           \
      COLUMNS(LS_VISIT_)                                                                 \
    }                                                                                    \
  };
LS_RANK_TABLES(LS_DECLARE_TABLE)
LS_TIMELINE_TABLES(LS_DECLARE_TABLE)
#undef LS_DECLARE_TABLE

#define LS_MEMBER_(member, Type, COLUMNS, text) Type member;
#define LS_EACH_(member, Type, COLUMNS, text) f(member);
#define LS_TABLE_INFO_(member, Type, COLUMNS, text) Type::kInfo,
// All tables of one rank file, in memory.
struct RankTables {
  LS_RANK_TABLES(LS_MEMBER_)
  template <typename F>
  void ForEachTable(F&& f) {
    LS_RANK_TABLES(LS_EACH_)
  }
  template <typename F>
  void ForEachTable(F&& f) const {
    LS_RANK_TABLES(LS_EACH_)
  }
};
struct TimelineTables {
  LS_TIMELINE_TABLES(LS_MEMBER_)
  template <typename F>
  void ForEachTable(F&& f) {
    LS_TIMELINE_TABLES(LS_EACH_)
  }
  template <typename F>
  void ForEachTable(F&& f) const {
    LS_TIMELINE_TABLES(LS_EACH_)
  }
};
inline constexpr TableInfo kRankTableInfos[] = {LS_RANK_TABLES(LS_TABLE_INFO_)};
inline constexpr TableInfo kTimelineTableInfos[] = {LS_TIMELINE_TABLES(LS_TABLE_INFO_)};

}  // namespace lockstep::schema
