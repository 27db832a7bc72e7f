#pragma once
// Averages gradients over all ranks, bucket by bucket, as DDP's Reducer does.

#include <mpi.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "examples/common/network.h"
#include "examples/common/progress_helper.h"
#include "examples/ddp_mpi/buckets.h"
#include "examples/ddp_mpi/options.h"
#include "examples/ddp_mpi/reduce_queue.h"

namespace lockstep::example {

// Calls this program made, by function: what a trace of it must show.
struct CallCounts {
  std::int64_t init = 0, finalize = 0, comm_rank = 0, comm_size = 0, allreduce = 0, iallreduce = 0, testsome = 0,
               waitall = 0, gather = 0, barrier = 0;
};
inline constexpr std::array<const char*, 10> kCallNames = {
    "MPI_Init_thread", "MPI_Finalize", "MPI_Comm_rank", "MPI_Comm_size", "MPI_Allreduce",
    "MPI_Iallreduce",  "MPI_Testsome", "MPI_Waitall",   "MPI_Gather",    "MPI_Barrier"};
static_assert(sizeof(CallCounts) == kCallNames.size() * sizeof(std::int64_t));

class Reducer {
 public:
  // Keeps references. Starts the helper thread for Progress::kThread.
  // `before_collective` is called before each one, by the training thread.
  Reducer(Network& network, const Options& options, int ranks, CallCounts& calls,
          std::function<void()> before_collective);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Forgets the last step's gradients.
  void BeginStep();
  // Copies the gradients of a layer's tensors into their buckets.
  void Pack(std::size_t layer);
  // Launches every bucket that is now complete, strictly in index order (Overlap::kOn; else Wait does).
  void Launch();
  // Lets MPI make progress (Progress::kTest only).
  void Poll();
  // Returns when all buckets are averaged.
  void Wait();
  // Copies them back into the network.
  void Unpack();

 private:
  void PackTensor(std::size_t tensor);
  void Reduce(std::size_t bucket);
  void LaunchComplete();
  void Launch(std::size_t bucket);
  bool AnyOpen() const;
  void TestSome(std::size_t requests);

  Network& network_;
  const Options& options_;
  float scale_;
  CallCounts& calls_;
  std::function<void()> before_collective_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // By tensor.
  std::vector<std::size_t> missing_;    // Tensors not ready yet, by bucket.
  std::size_t next_ = 0;                // First bucket not launched.
  std::vector<std::vector<float>> flat_;
  std::vector<MPI_Request> requests_;
  std::vector<int> done_;

  // requests_ and calls_.testsome are touched under its lock only. Last: it ends first.
  ProgressHelper helper_;
  ReduceQueue queue_;
};

}  // namespace lockstep::example
