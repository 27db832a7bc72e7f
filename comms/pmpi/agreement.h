#pragma once
// All ranks decide one question alike, without any call that a rank could wait in
// for a rank that is not there.
//
// Why: the clock anchors call collectives. A rank that calls one which another
// never calls does not merely wait: on the application's communicators it shifts
// the matching of everything that follows, and the results are wrong. So nothing
// is called before every rank's own probe has said, in that very process and for
// that very MPI_Init, that it will call it too.
//
// The ranks form a tree (kAgreementFanout children each; rank 0 is the root).
// Each leaves three notes where its neighbours find them, in this order:
//   here      "my probe takes part": from now on the other two will follow
//   vote      to the parent: yes, if this rank and all ranks below it are able
//   decision  to the children: the root's own vote, handed down
// Waiting for "here" has a limit, after which the answer is no. A rank waits
// without limit for one thing only, its parent's decision, and only after having
// seen the parent's "here" and voted yes: giving up then could contradict a yes
// that is on its way. Everything the parent does before it decides has a limit,
// so the decision comes, or the parent's process is stopped or gone, which ends
// or stops the job without us as well.
// Proved on paper and by a random test of this very code
// (docs/decisions/mpi-agreement.md, tests/unit/comms/pmpi).

#include <cstdint>

namespace lockstep::pmpi {

inline constexpr int kAgreementFanout = 32;

enum class Note : int { kHere, kVote, kDecision };
enum class Reply : int { kAbsent, kNo, kYes };

// Where notes are written and read.
class AgreementBoard {
 public:
  // Writes a note of this rank; its neighbours can read it after Publish at the latest. Returns false if it cannot be
  // written.
  virtual bool Post(Note note, bool yes) = 0;
  virtual bool Publish() = 0;
  // Waits for a neighbour's note until `deadline_ns` (RawNs). kAbsent: it was not there in time, or the store is
  // gone.
  virtual Reply Await(int peer, Note note, std::int64_t deadline_ns) = 0;

 protected:
  ~AgreementBoard() = default;
};

// Decides like a collective over ranks [0, size), without being one: a rank that does not call it
// turns the answer into no for the others. `able`: this rank would take part. `patience_ns`: how
// long to wait for a neighbour that has not appeared yet. Returns the same on every rank that calls
// it.
bool Agree(AgreementBoard& board, int rank, int size, bool able, std::int64_t patience_ns,
           int fanout = kAgreementFanout);

}  // namespace lockstep::pmpi
