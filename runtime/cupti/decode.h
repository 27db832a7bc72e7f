#pragma once
// Converts CUPTI's buffers to records of core/gpu_records.h. Buffers may be damaged: whatever their contents are, no
// memory outside is accessed, with one exception that cannot be checked: the addresses of names (kernels, devices,
// allocators), which CUPTI owns. One thread.

#include <cstddef>
#include <cstdint>

#include "runtime/cupti/abi.h"
#include "runtime/cupti/after_window.h"
#include "runtime/cupti/api.h"
#include "runtime/cupti/callbacks.h"
#include "runtime/cupti/launches.h"
#include "runtime/cupti/output.h"
#include "runtime/cupti/pending.h"
#include "runtime/cupti/windows.h"

namespace lockstep::cupti {

// Converts the times in buffers to ticks. CUPTI before CUDA 11.6 supports no clock but CLOCK_REALTIME.
struct TimeScale {
  bool foreign = false;
  std::uint64_t from = 0;   // A moment on CUPTI's clock ...
  std::uint64_t ticks = 0;  // ... and in ticks.
  double ticks_per_unit = 1;
  std::uint64_t Ticks(std::uint64_t time) const {
    if (!foreign || time == 0) return time;
    return ticks + static_cast<std::uint64_t>(static_cast<std::int64_t>(
                       static_cast<double>(static_cast<std::int64_t>(time - from)) * ticks_per_unit));
  }
};

class Decoder {
 public:
  Decoder(const Api& api, const RecordSizes& sizes, Output& output) : api_(api), sizes_(sizes), output_(output) {}

  // Decodes all records of a buffer. Returns how many there were.
  std::uint64_t Buffer(const std::uint8_t* buffer, std::size_t valid_bytes);
  // Decodes one record of at least `bytes` bytes. Records from a recorded file are passed here directly.
  void Record(const void* record, std::uint32_t bytes);

  // Times outside [low, high] belong to another clock.
  void Believe(std::uint64_t low_ticks, std::uint64_t high_ticks) {
    low_ticks_ = low_ticks;
    high_ticks_ = high_ticks;
  }
  void Scale(const TimeScale& scale) { scale_ = scale; }
  // Whether what comes now may be unfinished, and so without times.
  void Forced(bool forced) { forced_ = forced; }
  // Calls of this function of the driver are ours, and counted only (0: none).
  void Heartbeat(std::uint32_t callback) { heartbeat_ = callback; }
  std::uint64_t heartbeats() const { return heartbeats_; }
  // Launches of CUDA graphs are not what their work says from now on.
  void DistrustGraphs() { graphs_distrusted_ = true; }
  // CUPTI has delivered what it had: GPU work whose launching call has not come in several rounds, or by the end, is
  // assigned to a window by its own time.
  void Round(bool last);
  // Nothing that began before this moment is still pending.
  std::uint64_t HeldSince() const { return pending_.FirstTicks(); }
  Windows& windows() { return windows_; }

  // Devices that a context was made on, by number, in order of their first context.
  struct Devices {
    std::uint32_t used;
    std::uint16_t id[4];
    std::uint8_t uuid[4][16];
  };
  const Devices& used_devices() const { return used_devices_; }

 private:
  struct Function {
    std::uint32_t name;
    std::uint8_t kind, known;
  };
  static constexpr std::uint32_t kMostDevices = 64;

  enum class Place { kKeep, kDrop, kWait };
  // Converts the times to ticks. Returns false if the record was counted as lost.
  bool Times(const char* what, std::uint64_t& begin, std::uint64_t& end);
  // For activity of the host, decided by when it began. Returns false if it was counted as outside of the windows.
  bool HostOn(const char* what, std::uint64_t& begin, std::uint64_t& end);
  // For activity of the GPU, decided by when it was launched. `ticks` is when the GPU began; kDrop is counted.
  Place PlaceOf(const char* what, std::uint32_t correlation, std::uint64_t ticks);
  std::uint32_t LaunchOf(std::uint32_t correlation, bool graph, std::uint64_t ticks);
  Place PlaceByTime(const char* what, std::uint64_t ticks);
  template <typename Ours>
  void Put(Place place, const char* what, std::uint64_t ticks, const Ours& record);
  void WritePending(const PendingRecord& pending);
  // Writes pending records whose launch is known by now; those of round `older` and before are decided by their own
  // time.
  void Settle(bool fall_back, std::uint32_t older);
  void WriteAfterWindow(std::uint32_t correlation, std::uint64_t begin, std::uint64_t end);
  std::uint64_t Walk(const std::uint8_t* buffer, std::size_t valid_bytes);
  bool Long(std::uint32_t bytes, std::uint32_t needed);
  // For records without a time: the approximate time of the records around them.
  std::uint64_t NearTicks() const { return last_ticks_ != 0 ? last_ticks_ : high_ticks_; }
  Function FunctionOf(int domain, std::uint32_t callback);
  void Unknown(std::uint32_t kind);
  void UseDevice(std::uint32_t device);

  void Kernel(const KernelRecord& record, std::uint32_t bytes);
  void Copy(const CopyRecord& record, std::uint32_t bytes);
  void PeerCopy(const PeerCopyRecord& record, std::uint32_t bytes);
  void Memset(const MemsetRecord& record, std::uint32_t bytes);
  void Sync(const SyncRecord& record, std::uint32_t bytes);
  void Event(const EventRecord& record, std::uint32_t bytes);
  void Call(const ApiRecord& record);
  void Overhead(const OverheadRecord& record);
  void Device(const DeviceRecord& record);
  void Graph(const GraphRecord& record);
  void DeviceGraph(const DeviceGraphRecord& record);
  void WholeGraph(const char* what, std::uint64_t begin, std::uint64_t end, std::uint32_t correlation,
                  std::uint32_t graph, std::uint32_t device, std::uint32_t context, std::uint32_t stream);
  void Memory(const MemoryRecord2& record, std::uint32_t bytes);

  const Api& api_;
  const RecordSizes& sizes_;
  Output& output_;
  Windows windows_;
  Launches launches_;
  Pending pending_;
  AfterWindow after_window_;
  std::uint32_t round_ = 0;
  TimeScale scale_;
  bool forced_ = true, graphs_distrusted_ = false;
  std::uint32_t heartbeat_ = 0;
  std::uint64_t heartbeats_ = 0;
  std::uint64_t low_ticks_ = 0, high_ticks_ = ~std::uint64_t{0};
  std::uint64_t last_ticks_ = 0;  // The time of the last record in this buffer that had one.
  Function functions_[2][kMostCallbacks] = {};
  Devices used_devices_{};
  std::uint8_t uuids_[kMostDevices][16] = {};
};

}  // namespace lockstep::cupti
