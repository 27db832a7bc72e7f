#pragma once
// Samples of the GPUs that this slot's processes use: clocks, power, temperature, what
// throttles them. Evidence for a slow rank; nothing depends on it. On a thread of its own,
// because a call into the driver may take long or never return.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/event_clock.h"
#include "core/ring_layout.h"
#include "core/spool_layout.h"

namespace lockstep::agent {

class GpuSampler {
 public:
  explicit GpuSampler(const EventClock& clock);
  ~GpuSampler();  // Does not wait for the thread.
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  // Looks which devices the processes name (ProcessEntry::gpu_uuids) and whether recording is on.
  // The thread starts with the first device: not before the application does.
  void Follow(const SegmentView& segment);
  // Samples since the last call.
  std::vector<GpuSample> Take();
  // Once: why there are no samples, or no more; "" if nothing is wrong.
  std::string TakeTrouble();

 private:
  struct Shared;
  static void Work(const std::shared_ptr<Shared>& shared);
  std::shared_ptr<Shared> shared_;
  bool started_ = false;
};

}  // namespace lockstep::agent
