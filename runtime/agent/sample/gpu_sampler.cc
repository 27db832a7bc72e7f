#include "runtime/agent/sample/gpu_sampler.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "core/clock_ns.h"
#include "runtime/agent/rings/segment_entries.h"
#include "runtime/agent/sample/nvml.h"

namespace lockstep::agent {
namespace {

using std::chrono::nanoseconds;

// A sample takes up to some milliseconds of CPU time, depending on driver and device. The period is chosen so that
// sampling costs at most 1/500 of a core, at most five samples per second, and at least one in ten seconds.
constexpr std::int64_t kShortestNs = 200'000'000, kLongestNs = 10'000'000'000, kShare = 500;
constexpr std::size_t kMostWaiting = 4096;  // Samples that were not taken yet.
constexpr std::uint32_t kMostDevices = 4;   // ProcessEntry::gpu_uuids

}  // namespace

// Outlives the sampler if the thread is stuck in the driver.
struct GpuSampler::Shared {
  EventClock clock;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<GpuUuid> devices;
  std::vector<GpuSample> ready;
  std::string trouble;
  bool recording = false, stop = false;
};

GpuSampler::GpuSampler(const EventClock& clock) : shared_(std::make_shared<Shared>()) { shared_->clock = clock; }

GpuSampler::~GpuSampler() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
}

void GpuSampler::Follow(const SegmentView& segment) {
  std::vector<GpuUuid> devices;
  for (const ProcessEntry& entry : UsedProcesses(segment)) {
    if (entry.state.load(std::memory_order_acquire) != SlotState::kActive) continue;
    const std::uint32_t count = std::min(entry.gpu_count.load(std::memory_order_acquire), kMostDevices);
    for (std::uint32_t d = 0; d < count; ++d) {
      GpuUuid uuid;
      std::copy(std::begin(entry.gpu_uuids[d]), std::end(entry.gpu_uuids[d]), uuid.begin());
      if (uuid != GpuUuid{} && std::find(devices.begin(), devices.end(), uuid) == devices.end())
        devices.push_back(uuid);
    }
  }
  const bool recording = AnyRecording(segment);
  if (!started_ && devices.empty()) return;
  {
    const std::lock_guard lock(shared_->mutex);
    if (recording && !shared_->recording) shared_->changed.notify_all();
    shared_->recording = recording;
    shared_->devices = std::move(devices);
  }
  if (started_) return;
  started_ = true;
  try {
    std::thread(Work, shared_).detach();
  } catch (const std::system_error& error) {
    const std::lock_guard lock(shared_->mutex);
    shared_->trouble = std::string("no thread for it: ") + error.what();
  }
}

std::vector<GpuSample> GpuSampler::Take() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->ready, {});
}

std::string GpuSampler::TakeTrouble() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->trouble, {});
}

// Never hold the lock during a call into the driver.
void GpuSampler::Work(const std::shared_ptr<Shared>& shared) {
  const auto give_up = [&](const std::string& why) {
    const std::lock_guard lock(shared->mutex);
    shared->trouble = why;
  };
  const auto nvml = Nvml::Open();
  if (!nvml.ok()) return give_up(nvml.error().where + ": " + nvml.error().what);
  std::map<GpuUuid, Nvml::Device> found;  // Null: the device cannot be read, which was reported once.
  std::int64_t pause_ns = kShortestNs;
  for (;;) {
    std::vector<GpuUuid> devices;
    {
      std::unique_lock lock(shared->mutex);
      shared->changed.wait(lock, [&] { return shared->stop || (shared->recording && !shared->devices.empty()); });
      if (shared->stop) return;
      devices = shared->devices;
    }
    const std::int64_t begin_ns = ClockNs(CLOCK_THREAD_CPUTIME_ID);
    std::vector<GpuSample> samples;
    for (const GpuUuid& uuid : devices) {
      const auto [at, fresh] = found.try_emplace(uuid, nullptr);
      if (fresh) {
        if (auto device = nvml.value().Find(uuid); device.ok()) {
          at->second = device.value();
        } else {
          give_up(device.error().where + ": " + device.error().what);
        }
      }
      if (at->second == nullptr) continue;
      GpuSample sample{};
      std::copy(uuid.begin(), uuid.end(), sample.uuid);
      sample.ticks = shared->clock.Ticks();
      if (nvml.value().Read(at->second, sample)) {
        samples.push_back(sample);
      } else {
        at->second = nullptr;
        give_up(UuidText(uuid, "GPU") + ": gives no readings any more");
      }
    }
    pause_ns = std::clamp((ClockNs(CLOCK_THREAD_CPUTIME_ID) - begin_ns) * kShare, kShortestNs, kLongestNs);
    std::unique_lock lock(shared->mutex);
    if (shared->ready.size() + samples.size() <= kMostWaiting)
      shared->ready.insert(shared->ready.end(), samples.begin(), samples.end());
    shared->changed.wait_for(lock, nanoseconds(pause_ns), [&] { return shared->stop; });
    if (shared->stop) return;
  }
}

}  // namespace lockstep::agent
