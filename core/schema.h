#pragma once
// The one list of every table and column in Lockstep's files. Writers, readers,
// docs and tests are generated from it: a column exists if and only if it is
// listed in core/rank_tables.h or core/timeline_tables.h. runtime/ and merge/ meet
// here and nowhere else.
//
// X(type, name, kind, sentinel, text). Kind: what the column is (Moment, Duration, Id, Text, Enum<Work>, Bytes, ...);
// sentinel: the value that means not known, and the word for it. Both are explained in core/column.h; filling,
// blanks, conversion to cluster time and the descriptions in files and docs follow from them.
// T(member, Type, COLUMNS, traits, description). Traits: what is done with the table.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/column.h"
#include "core/rank_tables.h"
#include "core/schema_enums.h"
#include "core/timeline_tables.h"

namespace lockstep::schema {

inline constexpr std::string_view kRankFileFormat = "lockstep.rank/1";
inline constexpr std::string_view kTimelineFormat = "lockstep.timeline/1";
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

// A selection of a table's columns, named by their members: Columns<Kernels>(&Kernels::begin_ns, &Kernels::device). A
// member that is not a column does not compile.
template <typename Table>
class Columns {
 public:
  using Of = Table;
  template <typename... T>
  requires(sizeof...(T) > 0) consteval Columns(std::vector<T> Table::*... members)
      : bits(((std::uint64_t{1} << Table::IndexOf(members)) | ...)) {
    static_assert(Table::kColumnCount <= 64);
  }
  static constexpr Columns None() { return Columns(0, 0); }
  static constexpr Columns All() { return Columns(~std::uint64_t{0} >> (64 - Table::kColumnCount), 0); }
  constexpr Columns& operator|=(const Columns& other) {
    bits |= other.bits;
    return *this;
  }
  constexpr bool Has(std::size_t column) const { return (bits >> column & 1) != 0; }
  constexpr bool operator==(const Columns&) const = default;
  constexpr bool Holds(const Columns& other) const { return (other.bits & ~bits) == 0; }

  std::uint64_t bits;  // By position in the table; public, so that a template argument can be a selection of columns.

 private:
  constexpr Columns(std::uint64_t places, int) : bits(places) {}
};

// Replaces a column that was not selected: code that reads it does not compile.
struct NotAsked {};
template <typename T, bool kAsked>
using IfAsked = std::conditional_t<kAsked, std::vector<T>, NotAsked>;

// Generates, per table: a struct of equally long column vectors; Row, whose fields are unknown until they are given a
// value (UnknownOf in core/column.h); Append; Get; Resize, which adds unknown rows; kInfo; ForEachColumn(f) with
// f(const ColumnInfo&, std::vector<T>&).
#define LS_FIELD_(type, name, kind, sentinel, text) type name = static_cast<type>(UnknownOf((kind).role, sentinel));
#define LS_VECTOR_(type, name, kind, sentinel, text) std::vector<type> name;
#define LS_PUSH_(type, name, kind, sentinel, text) this->name.push_back(values_.name);
#define LS_RESIZE_(type, name, kind, sentinel, text) this->name.resize(rows_, unknown_.name);
#define LS_GET_(type, name, kind, sentinel, text) values_.name = this->name[at_];
#define LS_INFO_(type, name, kind, sentinel, text) MakeColumn(#name, TypeOf<type>(), kind, sentinel, text),
#define LS_VISIT_(type, name, kind, sentinel, text) f_(kColumns[column_++], this->name);
#define LS_ROWS_(type, name, kind, sentinel, text) return this->name.size();
#define LS_COUNT_(type, name, kind, sentinel, text) +1
#define LS_NUMBER_(type, name, kind, sentinel, text) kNumberOf_##name,
#define LS_SOME_(type, name, kind, sentinel, text) \
  [[no_unique_address]] IfAsked<type, (kAsked_.bits >> kNumberOf_##name & 1) != 0> name;
#define LS_VISIT_SOME_(type, name, kind, sentinel, text) \
  if constexpr ((kAsked_.bits >> kNumberOf_##name & 1) != 0) f_(kColumns[kNumberOf_##name], this->name);
#define LS_SOME_ROWS_(type, name, kind, sentinel, text)      \
  if constexpr ((kAsked_.bits >> kNumberOf_##name & 1) != 0) \
    return this->name.size();                                \
  else
#define LS_INDEX_(type, name, kind, sentinel, text) \
  if constexpr (std::is_same_v<T_, type>)           \
    if (member_ == &Self_::name) return index_;     \
  ++index_;
// For tests/scratch_column: code that copes with one more column in every table copes with the next real one, too.
#ifdef LOCKSTEP_SCRATCH_COLUMN
#define LS_SCRATCH_(X) X(i64, scratch_ns, Moment, Unknown(kNoTime), "of no use")
#else
#define LS_SCRATCH_(X)
#endif
#define LS_DECLARE_TABLE(member, Type, COLUMNS, traits, text)                                                        \
  struct Type {                                                                                                      \
    struct Row {                                                                                                     \
      using Table = Type;                                                                                            \
      COLUMNS(LS_FIELD_) LS_SCRATCH_(LS_FIELD_)                                                                      \
    };                                                                                                               \
    COLUMNS(LS_VECTOR_)                                                                                              \
    LS_SCRATCH_(LS_VECTOR_) static constexpr std::size_t kColumnCount = 0 COLUMNS(LS_COUNT_) LS_SCRATCH_(LS_COUNT_); \
    static constexpr std::array<ColumnInfo, kColumnCount> kColumns{{COLUMNS(LS_INFO_) LS_SCRATCH_(LS_INFO_)}};       \
    enum : std::size_t { COLUMNS(LS_NUMBER_) LS_SCRATCH_(LS_NUMBER_) };                                              \
    template <typename T_>                                                                                           \
    static consteval std::size_t IndexOf(std::vector<T_> Type::*member_) {                                           \
      using Self_ = Type;                                                                                            \
      std::size_t index_ = 0;                                                                                        \
      COLUMNS(LS_INDEX_) LS_SCRATCH_(LS_INDEX_) Contradiction("no column of this table");                            \
      return index_;                                                                                                 \
    }                                                                                                                \
    static constexpr TableInfo kInfo{#member, text, kColumns.data(), kColumnCount, traits};                          \
    std::size_t rows() const { COLUMNS(LS_ROWS_) }                                                                   \
    void Append(const Row& values_) { COLUMNS(LS_PUSH_) LS_SCRATCH_(LS_PUSH_) }                                      \
    void Resize(std::size_t rows_) {                                                                                 \
      const Row unknown_;                                                                                            \
      COLUMNS(LS_RESIZE_) LS_SCRATCH_(LS_RESIZE_)                                                                    \
    }                                                                                                                \
    Row Get(std::size_t at_) const {                                                                                 \
      Row values_;                                                                                                   \
      COLUMNS(LS_GET_) LS_SCRATCH_(LS_GET_) return values_;                                                          \
    }                                                                                                                \
    template <typename F>                                                                                            \
    void ForEachColumn(F&& f_) {                                                                                     \
      std::size_t column_ = 0;                                                                                       \
      COLUMNS(LS_VISIT_) LS_SCRATCH_(LS_VISIT_)                                                                      \
    }                                                                                                                \
    template <typename F>                                                                                            \
    void ForEachColumn(F&& f_) const {                                                                               \
      std::size_t column_ = 0;                                                                                       \
      COLUMNS(LS_VISIT_) LS_SCRATCH_(LS_VISIT_)                                                                      \
    }                                                                                                                \
    /* Some columns of the table: it has no others. */                                                               \
    template <Columns<Type> kAsked_>                                                                                 \
    struct Some {                                                                                                    \
      using Table = Type;                                                                                            \
      COLUMNS(LS_SOME_) LS_SCRATCH_(LS_SOME_) std::size_t rows() const { COLUMNS(LS_SOME_ROWS_) return 0; }          \
      template <typename F>                                                                                          \
      void ForEachColumn(F&& f_) {                                                                                   \
        COLUMNS(LS_VISIT_SOME_) LS_SCRATCH_(LS_VISIT_SOME_)                                                          \
      }                                                                                                              \
    };                                                                                                               \
  };
LS_RANK_TABLES(LS_DECLARE_TABLE)
LS_TIMELINE_TABLES(LS_DECLARE_TABLE)
#undef LS_DECLARE_TABLE

// Of(std::type_identity<Kernels>()) is that table.
#define LS_MEMBER_(member, Type, COLUMNS, traits, text) \
  Type member;                                          \
  Type& Of(std::type_identity<Type>) { return member; }
#define LS_EACH_(member, Type, COLUMNS, traits, text) f(member);
#define LS_TABLE_INFO_(member, Type, COLUMNS, traits, text) Type::kInfo,
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
// Rows of the tables that have the trait.
inline std::uint64_t RowsOf(const RankTables& tables, Trait trait) {
  std::uint64_t rows = 0;
  tables.ForEachTable([&](const auto& table) { rows += table.kInfo.Is(trait) ? table.rows() : 0; });
  return rows;
}
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
