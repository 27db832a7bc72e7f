#pragma once
// libcupti's recording with nothing behind it: buffers are taken back and used again. What is left to a profiler that
// does better than any other.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/kernel_gpu.h"

namespace gpu_kernels {

class CuptiAlone {
 public:
  // `kinds`: numbers of CUpti_ActivityKind with commas between them. flush_ms: how often finished buffers are asked
  // for, 0: never.
  CuptiAlone(const std::string& library, const std::string& kinds, int flush_ms) : cupti_(library) {
    cupti_.Call("cuptiActivityRegisterCallbacks", &Requested, &Completed);
    std::istringstream numbers(kinds);
    for (std::string kind; std::getline(numbers, kind, ',');) kinds_.push_back(std::stoi(kind));
    for (const int kind : kinds_) cupti_.Call("cuptiActivityEnable", kind);
    if (flush_ms == 0) return;
    flusher_ = std::thread([this, flush_ms] {
      while (!stopped_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(flush_ms));
        cupti_.Call("cuptiActivityFlushAll", 0u);
      }
    });
  }
  CuptiAlone(const CuptiAlone&) = delete;
  CuptiAlone& operator=(const CuptiAlone&) = delete;
  ~CuptiAlone() { Stop(); }
  // Kinds off, and all records fetched.
  void Stop() {
    if (stopped_.exchange(true)) return;
    if (flusher_.joinable()) flusher_.join();
    for (const int kind : kinds_) cupti_.Call("cuptiActivityDisable", kind);
    cupti_.Call("cuptiActivityFlushAll", 1u);
  }
  static std::uint64_t bytes() { return bytes_; }

 private:
  static constexpr std::size_t kBufferBytes = std::size_t{4} << 20;  // As torch.profiler's.

  static void Requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
    const std::lock_guard guard(lock_);
    if (free_.empty()) free_.push_back(static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes)));
    *buffer = free_.back();
    free_.pop_back();
    *bytes = kBufferBytes;
    *most = 0;
  }
  static void Completed(void* /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer, std::size_t /*bytes*/,
                        std::size_t valid_bytes) {
    const std::lock_guard guard(lock_);
    free_.push_back(buffer);
    bytes_ += valid_bytes;
  }

  static inline std::mutex lock_;
  static inline std::vector<std::uint8_t*> free_;
  static inline std::atomic<std::uint64_t> bytes_{0};
  Library cupti_;
  std::vector<int> kinds_;
  std::thread flusher_;
  std::atomic<bool> stopped_{false};
};

}  // namespace gpu_kernels
