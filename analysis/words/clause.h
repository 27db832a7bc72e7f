#pragma once
// What is said, as data: a row of words.def and the facts that fill it. Passes make them, later stages exchange and
// count them, and only render.h makes text of them.

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::analysis {

enum class Word : std::uint16_t {
#include "analysis/words/names.inc"  // By CMake from the rows of words.def.
};

// Quantities by their unit, as render.h writes them.
struct Ns {
  std::int64_t value;
  bool operator==(const Ns&) const = default;
};
struct Num {  // How many: "1 842".
  std::int64_t value;
  bool operator==(const Num&) const = default;
};
struct Index {  // The number of a step, a rank or a bucket: "1842".
  std::int64_t value;
  bool operator==(const Index&) const = default;
};
struct MeanNum {  // A mean of counts: "12.3".
  double value;
  bool operator==(const MeanNum&) const = default;
};
struct Real {  // Written as its placeholder says: {factor:.2f}.
  double value;
  bool operator==(const Real&) const = default;
};
struct Share {
  double value;
  bool operator==(const Share&) const = default;
};
struct Size {
  std::uint64_t bytes;
  bool operator==(const Size&) const = default;
};
struct Rate {
  double bytes_per_s;
  bool operator==(const Rate&) const = default;
};
struct Probability {
  double value;
  bool operator==(const Probability&) const = default;
};
struct Ranks {
  std::vector<std::int32_t> values;
  bool all = false;  // Every one is named, however many there are.
  bool operator==(const Ranks&) const = default;
};
struct Names {
  std::vector<std::string> values;
  bool operator==(const Names&) const = default;
};
// Of the mean step, or of all the time: "3.1 ms of each 20 ms step", "12 % of the time".
struct Part {
  std::int64_t ns, whole_ns;
  bool per_step;
  bool intermittent = false;  // In fewer than half of the steps.
  bool operator==(const Part&) const = default;
};
struct Clause;
struct Clauses {
  std::vector<Clause> all;
  bool operator==(const Clauses&) const;
};

using Value = std::variant<std::monostate, Ns, Num, Index, MeanNum, Real, Share, Size, Rate, Probability, Ranks, Names,
                           Part, std::string, bool, Clauses>;

struct Fact {
  std::string_view name;  // Of static storage.
  Value value;            // monostate: not known.
  bool operator==(const Fact&) const = default;
};

struct Clause {
  Word word{};
  std::vector<Fact> facts;
  bool operator==(const Clause&) const = default;
};
inline bool Clauses::operator==(const Clauses& other) const { return all == other.all; }

// Facts without the words around them.
struct NamedFacts {
  std::vector<Fact> all;
};

inline Clause Say(Word word, std::initializer_list<Fact> facts = {}) { return {word, facts}; }
inline void AddTo(std::vector<Clause>& clauses, std::vector<Clause> more) {
  clauses.insert(clauses.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}
// A fact that is not known, or does not apply, unless `holds`.
template <typename T>
Value If(bool holds, T value) {
  return holds ? Value(std::move(value)) : Value();
}

// The sentences of a finding. The headline's parts follow each other as they are, and a full stop follows them; of the
// others each part is set off by "; ", unless it begins with a mark of its own.
struct Said {
  std::vector<Clause> headline, brief, evidence, action;
  bool operator==(const Said&) const = default;
};

}  // namespace lockstep::analysis
