#pragma once
// Parameters that every rank holds a part of, gathered unit by unit for the time
// they are needed, as FSDP does. A unit is a layer.

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "examples/common/network.h"
#include "examples/common/progress_helper.h"
#include "examples/fsdp_mpi/options.h"

namespace lockstep::example {

// Calls this program made, by function: what a trace of it must show.
struct CallCounts {
  std::int64_t init = 0, finalize = 0, comm_rank = 0, comm_size = 0, allgather = 0, iallgather = 0, ireduce_scatter = 0,
               testsome = 0, wait = 0, waitall = 0, allreduce = 0, gather = 0, barrier = 0;
};
inline constexpr std::array<const char*, 13> kCallNames = {"MPI_Init_thread",
                                                           "MPI_Finalize",
                                                           "MPI_Comm_rank",
                                                           "MPI_Comm_size",
                                                           "MPI_Allgather",
                                                           "MPI_Iallgather",
                                                           "MPI_Ireduce_scatter_block",
                                                           "MPI_Testsome",
                                                           "MPI_Wait",
                                                           "MPI_Waitall",
                                                           "MPI_Allreduce",
                                                           "MPI_Gather",
                                                           "MPI_Barrier"};
static_assert(sizeof(CallCounts) == kCallNames.size() * sizeof(std::int64_t));

class Shards {
 public:
  // Keeps references; takes this rank's part of the network's parameters and
  // releases them all. `before_collective` is called before each one, by the
  // training thread. Starts the helper thread for Progress::kThread.
  Shards(Network& network, const Options& options, int rank, int ranks, CallCounts& calls,
         std::function<void()> before_collective);

  std::size_t units() const { return units_.size(); }
  // Bytes of a whole unit as it travels, padding included.
  std::uint64_t UnitBytes(std::size_t unit) const;

  // Begins to gather a unit that will be needed soon (--prefetch 1 only). At most
  // two units may be under way or in the buffers: one in use and the next.
  void Prefetch(std::size_t unit);
  // Instead of what --prefetch says; between steps.
  void UsePrefetch(bool on) { prefetch_ = on; }
  // Returns when the unit's parameters are in the network.
  void Gather(std::size_t unit);
  // The whole unit is not needed any more. What uses it all the same computes
  // with NaN, and the training shows it.
  void Release(std::size_t unit);
  // Begins to average the unit's gradients; each rank gets those of its part.
  void ReduceGradients(std::size_t unit);
  // Returns when all gradients are there.
  void FinishGradients();
  // Stochastic gradient descent with momentum 0.9 on this rank's part.
  void Update(float learning_rate);
  // Lets MPI make progress (Progress::kTest only).
  void Poll();

 private:
  struct Unit {
    std::size_t offset, floats;  // In the network's parameters and gradients.
    std::size_t part_floats;     // Of each rank; the last rank's may be padded.
    std::vector<float> part, momentum, gradient, send;
  };
  void Accept(std::size_t unit);
  bool AnyOpen() const;
  void TestSome();

  Network& network_;
  const Options& options_;
  bool prefetch_;
  int rank_, ranks_;
  CallCounts& calls_;
  std::function<void()> before_collective_;
  std::vector<Unit> units_;
  std::array<std::vector<float>, 2> gathered_;  // Units of even and odd number.
  std::vector<bool> prefetched_;
  std::vector<MPI_Request> requests_;  // By unit: gathers, then gradients.
  std::vector<int> done_;

  // requests_ is touched under its lock only. Last: it ends first.
  ProgressHelper helper_;
};

}  // namespace lockstep::example
