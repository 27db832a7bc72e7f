#pragma once
// Computes the length and the terms of the job's steps from the lengths and terms of the ranks' windows; no other code
// does this. Definition: docs/definitions.md, "Steps"; reasons: docs/decisions/step-length.md.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::merge {

// The six terms of the identity, ns: compute, exposed wait, exposed transfer, exposed unsplit, exposed copy, idle.
using SixTerms = std::array<std::int64_t, 6>;

// Of a row of step_ranks or rank_totals.
template <typename Table>
SixTerms TermsOfRow(const Table& t, std::size_t row) {
  return {t.compute_ns[row],         t.exposed_wait_ns[row], t.exposed_transfer_ns[row],
          t.exposed_unsplit_ns[row], t.exposed_copy_ns[row], t.idle_ns[row]};
}

struct JobTime {
  std::int64_t length_ns = -1;  // Mean of the lengths of the windows, floored; -1: of none.
  SixTerms terms{};             // Means of the terms, apportioned: they sum to length_ns.
};

// `windows`: the terms of each window (a step's on each rank; a job's or a rank's steps), which sum to its length. The
// nanoseconds that are left over when the means are floored are given, one each, to the terms that lost most by it
// (largest remainder; the earlier of equal ones).
JobTime MeanOfTerms(const std::vector<SixTerms>& windows);

// Mean, floored; -1: of none. Of windows, where only their lengths are known, as of replayed steps.
std::int64_t MeanLength(const std::vector<std::int64_t>& lengths_ns);

}  // namespace lockstep::merge
