#pragma once
// When messages between hosts moved, as far as the calls of their senders and receivers tell.

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/context.h"
#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::analysis {

using Way = std::pair<std::uint32_t, std::uint32_t>;  // From host to host: texts of ranks.node.

// A message, or the messages that one call receives where its end does not say when each of them had come.
struct Transfer {
  std::vector<std::size_t> messages;     // Between hosts. Indices in RecordedRun::messages, as all of them.
  std::vector<std::size_t> within_host;  // That the same call receives.
  std::vector<Way> ways;                 // Of what is received; one of these took at least `least_ns`, ...
  std::vector<Way> sent;                 // ... or what the call sends, if it had to wait until that had moved.
  // Bits of the size and of the transfers beside it; or, of a call's messages together, how many these are.
  std::array<int, 3> of{};
  std::uint64_t bytes = 0;
  // How long data moved, by the clocks' errors and by what is known of its begin: the slowest of several ways took
  // `least_ns` at least, and each of them `most_ns` at most. Both 0: not known.
  std::int64_t least_ns = 0, most_ns = 0;
  bool timed() const { return most_ns > 0; }
  double rate() const { return static_cast<double>(bytes) / static_cast<double>(most_ns); }
};

// The transfers between hosts of a replayed run.
//
// Data move from when sender and receiver are both in calls that move them: any call that waits for messages does, so a
// rank is there since it entered the first of its calls in a row (away for a tenth of the time at most) after its post.
// They have moved when the call that waits for nothing else returns, if it waited for a tenth of that time; a call that
// hands data over until then says that they took as long as that at least.
std::vector<Transfer> TransfersBetweenHosts(const Context& context, const replay::RecordedRun& run);

}  // namespace lockstep::analysis
