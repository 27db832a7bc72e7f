#pragma once
// What belongs together among one rank's events: GPU operations and the host calls that
// launched them, host calls and the ranges around them, the order on each device. Each
// part is made in linear time when the tables are in time order (n log n else), without
// a hash table; a table builds only the parts it needs. Rows are u32, kNone for "none".

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/gpu/rank_view.h"

namespace lockstep::gpu {

// What a host call does, by api.kind and its name (CUDA runtime, CUDA driver, HIP).
enum class HostCall : std::uint8_t {
  kOther,
  kLaunch,
  kGraphLaunch,
  kCopy,          // Asynchronous copy or memset. Blocks all the same if it writes to pageable memory.
  kBlockingCopy,  // cudaMemcpy and the like, without "Async".
  kSync,          // Returns when the stream, the device or the event is done; cudaFree too.
  kMemory,        // Allocates or frees.
  kEvent,         // Records, queries, stream-side waits: never block.
};
HostCall ClassifyHostCall(std::string_view name, std::uint8_t api_kind);
// Per row of api.
std::vector<HostCall> ClassifyHostCalls(const schema::RankTables& tables);

// Correlation -> the row of api that launched it. Where several rows carry one
// correlation: a launching call before others, then the one that began first.
struct LaunchIndex {
  std::vector<std::uint32_t> of_kernel, of_copy, of_sync;  // Per row: row of api, kNone.
};
LaunchIndex FindLaunches(const schema::RankTables& tables);

// Ranges of each thread by what encloses what. Marks enclose nothing and are left out.
class RangeNest {
 public:
  // Bits of ranges.source (1 << source) that take part.
  static constexpr std::uint32_t kAllSources = 0xff, kCpuOps = 1u << 3, kPythonFunctions = 1u << 4;
  // Keeps a reference to `tables`.
  explicit RangeNest(const schema::RankTables& tables, std::uint32_t sources = kAllSources);

  // Innermost range of the thread that is open at that time. O(log n).
  std::uint32_t At(std::uint32_t thread, std::int64_t time_ns) const;
  // The same for many events at once; linear if `begin_ns` does not decrease.
  std::vector<std::uint32_t> At(std::span<const std::uint32_t> thread, std::span<const std::int64_t> begin_ns) const;
  // Innermost range open when this one began, kNone for outermost. `range` takes part.
  std::uint32_t Parent(std::uint32_t range) const { return parent_[range]; }
  // Rows of the ranges of one thread that take part, by begin, the longest first.
  std::span<const std::uint32_t> Of(std::uint32_t thread) const;
  std::size_t threads() const { return first_.size() - 1; }
  // Per row: its length less that of the ranges directly in it; 0 for rows that take no part.
  std::vector<std::int64_t> SelfTimes() const;

 private:
  std::uint32_t Open(std::uint32_t range, std::int64_t time_ns) const;
  const schema::Ranges& ranges_;
  std::vector<std::uint32_t> order_, first_, parent_;
};

struct GpuStream {
  std::uint16_t device = 0;
  std::uint32_t context = 0, stream = 0;
  friend auto operator<=>(const GpuStream&, const GpuStream&) = default;
};

// A kernel, copy or memset.
struct GpuOp {
  std::int64_t begin_ns, end_ns;
  std::uint32_t row;       // Of kernels or copies.
  std::uint32_t api;       // Row of api that launched it, kNone.
  std::uint32_t stream;    // Of GpuTimeline.streams.
  merge::KernelClass cls;  // Copies: kMemory.
  bool copy;
  bool busy;  // Keeps the device busy in the sense of the identity: no sync pseudo-kernel.
};

struct GpuTimeline {
  std::vector<GpuStream> streams;  // Sorted.
  std::vector<GpuOp> ops;          // By begin, then end, kernels before copies, row.
  std::uint16_t DeviceOf(const GpuOp& op) const { return streams[op.stream].device; }
  // Devices that occur, sorted.
  std::vector<std::uint16_t> Devices() const;
};
GpuTimeline MakeGpuTimeline(const RankView& rank, const LaunchIndex& launches);

// The note of a rank without GPU events.
std::string_view NoGpuEvents();

}  // namespace lockstep::gpu
