#include "comms/pmpi/agreement.h"

#include <algorithm>

#include "core/event_clock.h"

namespace lockstep::pmpi {
namespace {

// A child votes when its children have voted, and so on, so each level may use its whole patience. 32^6 ranks are
// enough.
constexpr std::int64_t kMostLevels = 6;

}  // namespace

bool Agree(AgreementBoard& board, int rank, int size, bool able, std::int64_t patience_ns, int fanout) {
  const auto refuse = [&] {
    // "Here" is published with it, so neighbours that wait for it learn the answer at once.
    board.Post(Note::kVote, false);
    board.Post(Note::kDecision, false);
    board.Post(Note::kHere, true);
    board.Publish();
    return false;
  };
  if (!able) return refuse();
  if (!board.Post(Note::kHere, true) || !board.Publish()) return false;
  const int parent = (rank - 1) / fanout;
  if (rank > 0 && board.Await(parent, Note::kHere, RawNs() + patience_ns) != Reply::kYes) return refuse();
  const std::int64_t first = std::int64_t{rank} * fanout + 1;
  const std::int64_t end = std::min<std::int64_t>(first + fanout, size);
  bool all = true;
  for (std::int64_t child = first; child < end && all; ++child)
    all = board.Await(static_cast<int>(child), Note::kHere, RawNs() + patience_ns) == Reply::kYes;
  for (std::int64_t child = first; child < end && all; ++child)
    all = board.Await(static_cast<int>(child), Note::kVote, RawNs() + kMostLevels * patience_ns) == Reply::kYes;
  if (!all) return refuse();
  bool yes = true;
  if (rank > 0) {
    if (!board.Post(Note::kVote, true)) return refuse();
    // From here on only the decision ends the wait: a vote whose publishing failed may have arrived.
    board.Publish();
    yes = board.Await(parent, Note::kDecision, INT64_MAX) == Reply::kYes;
  }
  board.Post(Note::kDecision, yes);
  board.Publish();
  return yes;
}

}  // namespace lockstep::pmpi
