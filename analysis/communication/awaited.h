#pragma once
// Who is waited for, and for how long: the charges of docs/definitions.md, summed by the rank that they go to.

#include <cstddef>
#include <functional>
#include <vector>

#include "analysis/context.h"
#include "merge/timeline/charges.h"

namespace lockstep::analysis {

// f(position of the one waited for, of the one that waits; ns): late senders and late receivers, by pair of ranks.
void EachMessageWait(const Context& context, const std::function<void(std::size_t, std::size_t, double)>& f);

struct AwaitedTime {
  std::vector<double> collective_ns, message_ns;  // By position of the rank waited for; sums over those that wait.
  double untold_ns = 0;                           // In collectives, for nobody that is known.
  double Of(std::size_t position) const { return collective_ns[position] + message_ns[position]; }
  double All() const;  // That goes to ranks.
};
// Of all that was recorded. O(members of collectives).
AwaitedTime AwaitedTimeOf(const Context& context, const merge::Charges& charges);

}  // namespace lockstep::analysis
