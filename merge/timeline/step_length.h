#pragma once
// Computes the length and the terms of the job's steps from the lengths and terms of the ranks' windows; no other code
// does this. Definition: docs/definitions.md, "Steps"; reasons: docs/decisions/step-length.md.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/timeline_tables.h"

namespace lockstep::merge {

// The terms of the identity, ns, in the order of LS_IDENTITY.
#define LS_ONE_(name) +1
using TermValues = std::array<std::int64_t, 0 LS_IDENTITY(LS_ONE_)>;
#undef LS_ONE_

// Of a row of step_ranks or rank_totals.
template <typename Table>
TermValues TermsOfRow(const Table& t, std::size_t row) {
#define LS_TERM_(name) t.name[row],
  return {LS_IDENTITY(LS_TERM_)};
#undef LS_TERM_
}

struct JobTime {
  std::int64_t length_ns = -1;  // Mean of the lengths of the windows, floored; -1: of none.
  TermValues terms{};           // Means of the terms, apportioned: they sum to length_ns.
};

// `windows`: the terms of each window (a step's on each rank; a job's or a rank's steps), which sum to its length. The
// nanoseconds that are left over when the means are floored are given, one each, to the terms that lost most by it
// (largest remainder; the earlier of equal ones).
JobTime MeanOfTerms(const std::vector<TermValues>& windows);

// Mean, floored; -1: of none. Of windows, where only their lengths are known, as of replayed steps.
std::int64_t MeanLength(const std::vector<std::int64_t>& lengths_ns);

}  // namespace lockstep::merge
