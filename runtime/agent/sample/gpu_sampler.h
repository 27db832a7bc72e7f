#pragma once
// Samples clocks, power, temperature and throttling reasons of the GPUs that this slot's processes use. The samples are
// evidence for a slow rank; no other part depends on them. They are taken on a thread of their own, because a call into
// the driver may take long or never return.

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

  // Reads which devices the processes use (ProcessEntry::gpu_uuids) and whether recording is on. The thread starts with
  // the first device, so never before the application uses a GPU.
  void Follow(const SegmentView& segment);
  // Samples since the last call.
  std::vector<GpuSample> Take();
  // The reason why there are no samples, or no more; reported once. "" if nothing is wrong.
  std::string TakeTrouble();

 private:
  struct Shared;
  static void Work(const std::shared_ptr<Shared>& shared);
  std::shared_ptr<Shared> shared_;
  bool started_ = false;
};

}  // namespace lockstep::agent
