#pragma once
// What range sources tell the capture window (core/window.h): --range records
// while a range of a name is open, --step-range makes each opening a step boundary.

#include "core/ring_writer.h"

namespace lockstep::probe {

// Whether any range matters. False costs two loads; sources then need not call the others.
inline bool WindowWatchesRanges() {
  const SegmentHeader* segment = lockstep_probe.segment;
  return segment != nullptr && (segment->window.range_name[0] != 0 || segment->window.step_range[0] != 0);
}

// A range was opened or closed on the calling thread. `source` as in the table ranges;
// `domain` and `name` may be null. Called before the range's own begin is recorded and
// after its end was, whether recording is on or off; may switch recording. Sources call
// them for every range while WindowWatchesRanges(), so a range whose name is kept in a
// per-address cache must not bypass them.
void RangeOpened(std::uint8_t source, const char* domain, const char* name);
void RangeClosed(std::uint8_t source, const char* domain, const char* name);

}  // namespace lockstep::probe
