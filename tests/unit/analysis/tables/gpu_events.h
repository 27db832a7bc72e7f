#pragma once
// Ranks whose launching calls matter: calls and GPU operations apart, times in a unit of choice.

#include <cstdint>
#include <string_view>

#include "hand_made.h"

namespace lockstep::test {

class GpuEvents : public HandMade {
 public:
  std::int64_t us = 1;  // What times are multiplied with.

  // A runtime call; its correlation, fresh if none is given.
  std::uint64_t Call(std::string_view name, std::int64_t begin, std::int64_t end, std::uint64_t correlation = 0,
                     std::uint32_t thread = 0) {
    if (correlation == 0) correlation = next_++;
    tables.api.Append({.begin_ns = begin * us,
                       .duration_ns = (end - begin) * us,
                       .thread = thread,
                       .name = Intern(name),
                       .correlation = correlation,
                       .vendor = 1});
    return correlation;
  }
  void KernelAt(std::string_view name, std::int64_t begin, std::int64_t end, std::uint64_t correlation,
                std::uint32_t stream = 7) {
    tables.kernels.Append({.begin_ns = begin * us,
                           .duration_ns = (end - begin) * us,
                           .stream = stream,
                           .correlation = correlation,
                           .name = Intern(name),
                           .shape = schema::kNone,
                           .vendor = 1});
  }
  void Launch(std::string_view call, std::int64_t call_begin, std::int64_t call_end, std::string_view name,
              std::int64_t begin, std::int64_t end, std::uint32_t stream = 7, std::uint32_t thread = 0) {
    KernelAt(name, begin, end, Call(call, call_begin, call_end, 0, thread), stream);
  }
  // A kernel whose launching call takes one unit.
  void Launched(std::string_view name, std::int64_t begin, std::int64_t end, std::int64_t launch,
                std::uint32_t stream = 7, std::uint32_t thread = 0) {
    Launch("cudaLaunchKernel", launch, launch + 1, name, begin, end, stream, thread);
  }
  void CopyAt(std::uint8_t kind, std::int64_t begin, std::int64_t end, std::uint64_t bytes, std::uint64_t correlation,
              std::uint32_t stream, std::uint8_t host_memory) {
    tables.copies.Append({.begin_ns = begin * us,
                          .duration_ns = (end - begin) * us,
                          .stream = stream,
                          .correlation = correlation,
                          .kind = kind,
                          .bytes = bytes,
                          .vendor = 1,
                          .host_memory = host_memory});
  }
  std::uint32_t Range(std::uint8_t source, std::uint32_t thread, std::string_view name, std::int64_t begin,
                      std::int64_t end) {
    return HandMade::Range(source, thread, name, begin * us, end * us);
  }
  std::uint32_t Op(std::uint32_t thread, std::string_view name, std::int64_t begin, std::int64_t end) {
    return Range(3, thread, name, begin, end);
  }

 private:
  std::uint64_t next_ = 1'000;
};

}  // namespace lockstep::test
