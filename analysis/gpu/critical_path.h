#pragma once
// The chain of host work, launches and GPU work that decided how long a window of one
// rank took. docs/tables.md defines its nodes, edges and weights; what the weights
// explain least is waiting.

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "analysis/gpu/device_gaps.h"

namespace lockstep::gpu {

enum class PathCategory : std::uint8_t {
  kCpu,
  kDataLoading,
  kCompute,
  kCommunication,
  kCopy,
  kLaunch,
  kKernelGap,
  kSync,
  kOther
};
inline constexpr std::size_t kPathCategories = static_cast<std::size_t>(PathCategory::kOther) + 1;
std::string_view PathCategoryName(PathCategory category);

enum class PathEdge : std::uint8_t {
  kStream,    // From the end of the operation before it on its stream.
  kCross,     // From the end of an operation on another stream.
  kLaunch,    // From the begin of the launching call.
  kHost,      // Along a host thread.
  kRelease,   // From the end of the operation that a blocking call waited for.
  kCut,       // The same where clocks disagree: the operation ends with the call.
  kHandOver,  // From one host thread to another.
  kSource,    // From the window's begin: nothing before it is known.
  kOp,        // Along an operation.
  kTail,      // From the last operation to the window's end.
};

// A stretch of the path; they tile the window.
struct PathPiece {
  std::int64_t begin_ns, end_ns;
  PathEdge edge;
  bool counts;  // Its time is explained: it has weight.
  std::uint32_t
      op;  // kOp, kCut: of GpuTimeline.ops; kStream, kCross, kLaunch, kSource: the one it leads to; else kNone.
  std::uint32_t thread;  // kHost, kHandOver (the one it leads to), kSource of a thread; else kNone.
};

struct CriticalPath {
  std::int64_t explained_ns = 0;  // Weight of the path: the largest of all paths.
  std::vector<PathPiece> pieces;  // In order of time, without empty ones.
};

// Finds paths in one rank's events. Built once; n log n in the events.
class CriticalPathFinder {
 public:
  explicit CriticalPathFinder(const DeviceActivity& activity);
  ~CriticalPathFinder();
  CriticalPathFinder(const CriticalPathFinder&) = delete;
  CriticalPathFinder& operator=(const CriticalPathFinder&) = delete;

  // O(m log n) for m events in the window.
  CriticalPath Find(Interval window);

  // Calls f(category, name, ns) for what the pieces are made of; sums to the window.
  // A piece along a host thread is many: one per range it passes through.
  struct Share {
    PathCategory category;
    std::string_view name;
    std::int64_t ns;
    bool operation;  // A GPU operation or a launch: countable.
  };
  std::vector<Share> Shares(const CriticalPath& path) const;

 private:
  class Graph;
  std::unique_ptr<Graph> graph_;
};

}  // namespace lockstep::gpu
