#pragma once
// Asks the application's GPU source for what CUPTI still holds, before the application is
// ended by a signal. Not at other times: the source fetches about twice a second by itself
// (what a closed window or a size limit leaves with CUPTI comes that way), and what is
// fetched by force while a kernel runs has no times for that kernel.

#include <cstdint>
#include <vector>

#include "core/ring_layout.h"

namespace lockstep::agent {

// Thread: the agent's main loop only.
class GpuFlush {
 public:
  explicit GpuFlush(const SegmentView& segment) : segment_(segment) {}

  // Asks every process that records GPU activity. Returns whether there is one.
  bool Ask();
  // Whether every process that was asked has answered, has ended, or does not record any more.
  bool Answered() const;

 private:
  struct Asked {
    std::uint32_t process, generation, number;
  };
  SegmentView segment_;
  std::vector<Asked> asked_;
};

}  // namespace lockstep::agent
