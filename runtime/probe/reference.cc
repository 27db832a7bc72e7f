// For PyTorch's hooks (runtime/python/_lockstep/meeting.py): where rank 0's agent is, from its segment to those of
// other hosts' ranks. The text is that of core/reference.h.

#include "core/reference.h"

#include "runtime/probe/hooks.h"
#include "runtime/probe/ring.h"

namespace lockstep::probe {
extern "C" {

// Of this process's own agent, if it is that of this rank and listens; `text` has room for `bytes`. Returns the length,
// 0: there is nothing.
__attribute__((visibility("default"))) int lockstep_hook_own_reference(int rank, char* text, int bytes) {
  if (lockstep_probe.segment == nullptr || text == nullptr || bytes < static_cast<int>(kReferenceTextBytes)) return 0;
  const SegmentHeader& header = *lockstep_probe.segment;
  if (header.slot_rank != rank) return 0;
  const Reference own = OwnReference(header);
  return own.complete() ? static_cast<int>(WriteReference(own, text)) : 0;
}

// What rank 0's said. Thread: one at a time, and not while MPI starts.
__attribute__((visibility("default"))) void lockstep_hook_reference(int rank, const char* text) {
  if (lockstep_probe.segment == nullptr || lockstep_probe.segment->slot_rank != rank) return;
  Reference reference;
  if (ReadReference(text, reference)) LeaveReference(lockstep_probe.segment->mailbox, reference);
}

}  // extern "C"
}  // namespace lockstep::probe
