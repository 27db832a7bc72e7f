#pragma once
// Everything that is known about a column of Lockstep's files. All code that reads, fills, prints or converts a column
// derives it from here; no other list of column names exists, and no code searches the descriptions.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

namespace lockstep::schema {

inline constexpr std::uint32_t kNone = 0xffffffffu;  // No such row, no text.
inline constexpr std::int64_t kNoTime = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int32_t kNoExitCode = std::numeric_limits<std::int32_t>::min();  // All others may be exit codes.

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

enum class Role : std::uint8_t {
  kMoment,    // When something happened, on the clock that ColumnInfo::clock names.
  kDuration,  // How long.
  kRow,       // The row number in another table, or the number by which other tables refer to this row.
  kText,      // Row of `strings`.
  kEnum,      // Code of an enumeration (core/schema_enums.h).
  kValue,     // Anything else: counts, sizes, flags, numbers of other systems.
};
enum class ClockOf : std::uint8_t {
  kTimeless,  // Not a moment.
  kRank,      // This rank's clock: converted to cluster time when it is shown.
  kCluster,   // Already cluster time.
  kOther,     // The clock of a partner or of another system: never converted.
};

struct EnumValue {
  std::uint32_t code;
  std::string_view name;
};
struct EnumInfo {
  std::string_view name;              // The name under which the docs list the values, if they are not listed here.
  const EnumValue* values = nullptr;  // Null: listed elsewhere.
  std::size_t count = 0;
  ColumnType type = ColumnType::kU8;
};

// ---- What a column's third argument may be ----

struct ColumnKind {
  Role role;
  ClockOf clock;
  std::string_view unit;
  const EnumInfo* enumeration = nullptr;
};
inline constexpr ColumnKind Moment{Role::kMoment, ClockOf::kRank, "ns"};
inline constexpr ColumnKind ClusterMoment{Role::kMoment, ClockOf::kCluster, "ns"};
inline constexpr ColumnKind OtherMoment{Role::kMoment, ClockOf::kOther, "ns"};
inline constexpr ColumnKind Duration{Role::kDuration, ClockOf::kTimeless, "ns"};
inline constexpr ColumnKind Id{Role::kRow, ClockOf::kTimeless, "id"};
inline constexpr ColumnKind RowNumber{Role::kRow, ClockOf::kTimeless, "rows"};
inline constexpr ColumnKind Text{Role::kText, ClockOf::kTimeless, "string"};
inline constexpr ColumnKind Flag{Role::kValue, ClockOf::kTimeless, "bool"};
inline constexpr ColumnKind Bytes{Role::kValue, ClockOf::kTimeless, "bytes"};
inline constexpr ColumnKind Count{Role::kValue, ClockOf::kTimeless, "count"};
inline constexpr ColumnKind Ticks{Role::kValue, ClockOf::kTimeless, "ticks"};
inline constexpr ColumnKind Number{Role::kValue, ClockOf::kTimeless, "1"};
constexpr ColumnKind Unit(std::string_view unit) { return {Role::kValue, ClockOf::kTimeless, unit}; }
// Specialised for enumerations whose values are not listed in core/schema_enums.h.
template <typename E>
inline constexpr const EnumInfo& kEnumInfo = E::kInfo;
template <typename E>
inline constexpr ColumnKind Enum{Role::kEnum, ClockOf::kTimeless, "enum", &kEnumInfo<E>};

// ---- What its fourth may be ----

struct Sentinel {
  enum Kind : std::uint8_t { kAbsent, kUnknown, kMeaning } kind;
  std::int64_t value;
  std::string_view word;
};
// Every row has a value.
inline constexpr Sentinel Always{Sentinel::kAbsent, 0, {}};
// VALUE means that the value does not exist or is not known: nothing is shown for it.
constexpr Sentinel Unknown(std::int64_t value, std::string_view word = "unknown") {
  return {Sentinel::kUnknown, value, word};
}
// VALUE is an answer of its own ("0 none") and is shown as it is. In files that lack the column it is not known either.
constexpr Sentinel Means(std::int64_t value, std::string_view word) { return {Sentinel::kMeaning, value, word}; }

// The value of a column that was not set: in rows whose maker does not name the column, and in what is read from files
// that are older than the column.
constexpr std::int64_t UnknownOf(Role role, const Sentinel& sentinel) {
  if (sentinel.kind != Sentinel::kAbsent) return sentinel.value;
  return role == Role::kMoment ? kNoTime : role == Role::kRow || role == Role::kText ? std::int64_t{kNone} : 0;
}

struct ColumnInfo {
  std::string_view name;
  ColumnType type;
  std::string_view unit;
  Role role;
  ClockOf clock;
  const EnumInfo* enumeration;  // Of Role::kEnum.
  Sentinel sentinel;
  std::string_view
      text;  // Without what `sentinel` and `enumeration` add: see DescriptionOf in trace/file/schema_text.h.

  constexpr std::int64_t unknown() const { return UnknownOf(role, sentinel); }
  // The value that is shown as an empty cell. Codes of an enumeration are all shown.
  constexpr std::optional<std::int64_t> blank() const {
    const bool by_role = role == Role::kMoment || role == Role::kRow || role == Role::kText;
    if (role == Role::kEnum || sentinel.kind == Sentinel::kMeaning) return std::nullopt;
    if (sentinel.kind == Sentinel::kUnknown || by_role) return unknown();
    return std::nullopt;
  }
  constexpr bool is_signed() const { return type == ColumnType::kI32 || type == ColumnType::kI64; }
};

constexpr std::size_t WidthOf(ColumnType type) {
  switch (type) {
    case ColumnType::kU8:
      return 1;
    case ColumnType::kU16:
      return 2;
    case ColumnType::kU32:
    case ColumnType::kI32:
      return 4;
    case ColumnType::kU64:
    case ColumnType::kI64:
      return 8;
  }
  return 0;
}

// A contradictory description does not compile: the error names the call of this function, which has no definition.
void Contradiction(const char* what);
consteval ColumnInfo MakeColumn(std::string_view name, ColumnType type, const ColumnKind& kind,
                                const Sentinel& sentinel, std::string_view text) {
  const ColumnInfo column{name, type, kind.unit, kind.role, kind.clock, kind.enumeration, sentinel, text};
  if (name.ends_with("_ns") != (kind.unit == "ns")) Contradiction("a name ends in _ns if and only if the unit is ns");
  if (name.ends_with("_bytes") && kind.unit != "bytes") Contradiction("a name that ends in _bytes counts bytes");
  if ((kind.role == Role::kMoment || kind.role == Role::kDuration) && type != ColumnType::kI64)
    Contradiction("times are i64");
  if ((kind.role == Role::kRow || kind.role == Role::kText) && type != ColumnType::kU32)
    Contradiction("rows and texts are u32");
  if (kind.role == Role::kEnum && kind.enumeration->type != type) Contradiction("the enumeration has another type");
  const std::int64_t unknown = column.unknown();
  if (column.is_signed() ? type == ColumnType::kI32 && unknown != static_cast<std::int32_t>(unknown)
                         : unknown < 0 || (WidthOf(type) < 8 && unknown >> (8 * WidthOf(type)) != 0))
    Contradiction("the unknown value does not fit");
  return column;
}

// ---- Tables ----

// What is done with a table. Each trait is queried where its work is done, and no other list of tables exists.
enum Trait : std::uint32_t {
  kNoTraits = 0,
  kEvents = 1,      // Things that happened: the rows are counted as the rank's events.
  kHead = 2,        // A merge keeps it in memory until its end.
  kHeadInPart = 4,  // The same for only the columns that a merge uses (merge/readers/hdf5_source.cc).
  kPieces = 8,      // May be larger than memory: read a piece at a time.
  kExported = 16,   // Has a sheet among CSV files.
  kStreamed = 32,   // When exported to CSV or to viewers, its rows are streamed in the order of their begin, as events.
  kTexts = 64,      // Holds texts: what is shown or compared of them is in the other tables already.
  kFacts = 128,     // Keys and values.
  kSharded = 256,   // Of a timeline: a row per rank and step or operation, so that several processes write it.
};
constexpr Trait operator|(Trait a, Trait b) {
  return static_cast<Trait>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}

inline constexpr Trait kShown = kExported | kStreamed, kLong = kEvents | kPieces | kShown;

struct TableInfo {
  std::string_view name, description;
  const ColumnInfo* columns;
  std::size_t column_count;
  Trait traits;
  constexpr bool Is(Trait trait) const {
    return (static_cast<std::uint32_t>(traits) & static_cast<std::uint32_t>(trait)) != 0;
  }
};

}  // namespace lockstep::schema
