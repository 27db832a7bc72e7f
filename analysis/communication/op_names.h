#pragma once
// How a kind of collectives is named in a sentence.

#include "analysis/core/model.h"

namespace lockstep::analysis {

// "all-reduce of 4.19 MB" of one, "all-reduces of 4.19 MB" of more.
inline Clause NameOfCollectives(const CollectiveRow& row, bool one) {
  if (row.op == "barrier" && row.bytes.value_or(0) == 0) return Say(Word::kBarriers, {{"one", one}});
  const Value bytes = row.bytes ? Value(Size{*row.bytes}) : Value();
  if (row.op == "none") return Say(Word::kCollectivesOfUnknownKind, {{"one", one}, {"bytes", bytes}});
  return Say(Word::kCollectives, {{"operation", row.op}, {"one", one}, {"bytes", bytes}});
}

}  // namespace lockstep::analysis
