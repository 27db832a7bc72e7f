#pragma once
// Asks the application's GPU source for what CUPTI still holds: before the application
// is ended by a signal, and when a capture window has closed. CUPTI hands records out
// when its buffers are full or when asked; unasked, the source asks it about twice a second.

#include <cstdint>
#include <vector>

#include "core/ring_layout.h"

namespace lockstep {

// Thread: the agent's main loop only.
class GpuFlush {
 public:
  explicit GpuFlush(const SegmentView& segment) : segment_(segment) {}

  // Asks every process that records GPU activity; true if there is one.
  bool Ask();
  // Whether all that were asked have answered, ended, or no longer record.
  bool Answered() const;

 private:
  struct Asked {
    std::uint32_t process, generation, number;
  };
  SegmentView segment_;
  std::vector<Asked> asked_;
};

}  // namespace lockstep
