#pragma once
// Which operation a stream, or the host, waited for, where the trace says so: waits of
// streams for recorded events (cudaStreamWaitEvent), waits of the host for an event or a
// stream. Nothing here is inferred from times. docs/tables.md, "Waits of streams".

#include <cstdint>
#include <vector>

#include "analysis/gpu/launch_index.h"

namespace lockstep::gpu {

struct StreamWaits {
  // The trace tells for which records streams waited: who did not wait is known too.
  bool told = false;
  // Per operation: of the waits that its stream had to pass since the operation before it, the
  // operation released last that they waited for; kNone: none, or of none is it known.
  std::vector<std::uint32_t> held_by;
  // Per operation: the row of sync (a wait of its stream) that held_by comes from, kNone.
  std::vector<std::uint32_t> wait_of;
  // Per operation: how long held_by held it back, from when it was launched and everything before it
  // on its stream had ended; 0: it had ended by then.
  std::vector<std::int64_t> held_ns;
  // Per operation: one of those waits is for a record that the trace does not know.
  std::vector<bool> unknown;
  // Per row of sync, of waits of streams and of the host for an event or a stream: what it
  // waited for, the operation that ended last; kNone: there was nothing to wait for.
  std::vector<std::uint32_t> released_by;
  // Per row of sync: released_by is known. False: other kinds, no record or stream known.
  std::vector<bool> known;
};

// Everything on a stream runs in the order in which it was asked for, which correlation
// numbers keep: CUPTI counts them up at each call's entry. Linear, n log n where streams
// interleave. All vectors are empty if the trace has no such waits.
StreamWaits FindStreamWaits(const schema::RankTables& tables, const GpuTimeline& timeline);

}  // namespace lockstep::gpu
