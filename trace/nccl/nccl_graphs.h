#pragma once
// Captured operations of NCCL -> their runs in CUDA graphs.

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/nccl/nccl_operations.h"

namespace lockstep::trace {

// NCCL tells its plugin of a captured operation once, at capture, and of replays only where a proxy takes part
// (src/enqueue.cc, 2.28 to 2.32: ncclLaunchPrepare adds the host callback for plans with proxy operations only). So a
// run of a captured operation is known by its kernel. Its node is found by order: that of node ids is taken for that of
// capture, within a graph and between graphs (CUPTI documents neither). A graph is left out where what was captured
// fits it at more than one place.
class NcclCaptured {
 public:
  // The event that groups what is captured together, and the row of comms.
  using Key = std::pair<std::uint64_t, std::uint32_t>;

  void AddLaunch(Key key, std::uint32_t thread, std::int64_t ns) { launches_[key].push_back({ns, thread, {}}); }
  // NCCL's event of an operation, which is `api`'s. At capture it comes from the thread that announced the kernel.
  void AddEvent(Key key, std::uint32_t thread, std::uint32_t api, std::uint32_t event);
  // After all of the above. `op` has its API event and call; `kind`: of its kernel.
  void AddOperation(Key key, const NcclOperation& op, std::uint8_t kind, std::int64_t ns);

  std::int64_t last_ns() const { return last_ns_; }             // Of what was captured, kNoTime nothing.
  std::uint64_t told_replays() const { return told_replays_; }  // Events that came at replays.
  // Each known run of each captured operation, with its kernel.
  std::vector<NcclOperation> Runs(const schema::RankTables& tables);

 private:
  struct Launch {
    std::int64_t ns;
    std::uint32_t thread;
    std::set<std::uint32_t> apis;  // Of the operations that NCCL said are in it.
  };
  struct Operation {
    NcclOperation op;
    std::uint8_t kind;
    std::int64_t ns;
  };
  // What one kernel carries.
  struct Carried {
    std::int64_t ns;
    std::vector<NcclOperation> operations;
    std::uint32_t kinds;  // A bit per CollectiveKind.
  };
  std::vector<Carried> InOrder();

  std::map<Key, std::vector<Launch>> launches_;
  std::map<Key, std::vector<Operation>> operations_;
  std::unordered_map<std::uint32_t, std::uint32_t> event_of_;  // By API event.
  std::int64_t last_ns_ = schema::kNoTime;
  std::uint64_t told_replays_ = 0;
};

}  // namespace lockstep::trace
