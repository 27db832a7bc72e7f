#pragma once
// The text of clauses.
//
// Placeholders of words.def:
//   {name}         the fact in its unit's form: durations, sizes, "rank 3", "a, b and c"; nested clauses in their words
//   {name:form}    counts: with a noun, "{n:step}" is "1 step" or "4 steps"; "{n:nth}" is "4th". Lists: "or". Clauses:
//                  "comma". Ranks: "list" (0-3,8), "short" (0-3,8,.. (12 in all)), "numbers" (0-3 and 8). Parts: "ns"
//                  ("3.1 ms"). Reals: as fmt has it (".2f").
//   {name?a|b}     a where there is one of it (or it is true, or text that is not empty), else b
//   {^name...}     with a capital
//   {[ ... ]}      left out if a fact in it is not known. A true fact has no text of its own, a false one is not known.

#include <string>
#include <string_view>
#include <vector>

#include "analysis/words/clause.h"

namespace lockstep::analysis {

std::string_view TextOf(Word word);
std::string Rendered(const Clause& clause);
inline std::string Told(Word word, std::initializer_list<Fact> facts = {}) { return Rendered(Say(word, facts)); }
// Each as it is, one after the other.
std::string Concatenated(const std::vector<Clause>& clauses);
// "; " between those that do not begin with a mark of their own.
std::string Joined(const std::vector<Clause>& clauses);

// The facts of clauses by name, nested ones included, the first of a name.
NamedFacts FactsOf(const Said& said);

}  // namespace lockstep::analysis
