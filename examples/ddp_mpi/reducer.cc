#include "examples/ddp_mpi/reducer.h"

#include <algorithm>
#include <utility>

#include "runtime/lockstep.h"

namespace lockstep::example {
namespace {

std::uint64_t Bytes(double mebibytes) { return static_cast<std::uint64_t>(mebibytes * 1024 * 1024); }

}  // namespace

Reducer::Reducer(Network& network, const Options& options, int ranks, CallCounts& calls,
                 std::function<void()> before_collective)
    : network_(network),
      options_(options),
      scale_(1.0f / static_cast<float>(ranks)),
      calls_(calls),
      before_collective_(std::move(before_collective)),
      helper_(!options.queue && options.overlap != Overlap::kOff && options.progress == Progress::kThread,
              options.poll_us * 1000,
              [this] {
                const bool open = AnyOpen();
                if (open) TestSome(requests_.size());
                return open;
              }),
      queue_(options.queue && options.overlap != Overlap::kOff, [this](std::size_t bucket) { Reduce(bucket); }) {
  std::vector<std::uint64_t> bytes;
  for (std::size_t i = 0; i < network.tensor_count(); ++i) bytes.push_back(network.TensorBytes(i));
  buckets_ = AssignBuckets(bytes, Bytes(options.first_bucket_mb), Bytes(options.bucket_cap_mb));
  bucket_of_.resize(bytes.size());
  missing_.resize(buckets_.size());
  requests_.assign(buckets_.size(), MPI_REQUEST_NULL);
  done_.resize(buckets_.size());
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const std::size_t tensor : buckets_[b].tensors) bucket_of_[tensor] = b;
    flat_.emplace_back(buckets_[b].bytes / sizeof(float));
  }
}

void Reducer::BeginStep() {
  next_ = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) missing_[b] = buckets_[b].tensors.size();
}

void Reducer::Pack(std::size_t layer) {
  PackTensor(2 * layer + 1);
  PackTensor(2 * layer);
}

void Reducer::Launch() {
  if (options_.overlap == Overlap::kOn) LaunchComplete();
}

void Reducer::LaunchComplete() {
  for (; next_ < buckets_.size() && missing_[next_] == 0; ++next_) Launch(next_);
}

// As DDP: divide by the number of ranks, then sum.
void Reducer::PackTensor(std::size_t tensor) {
  const std::size_t bucket = bucket_of_[tensor];
  float* to = flat_[bucket].data();
  for (const std::size_t other : buckets_[bucket].tensors) {
    if (other == tensor) break;
    to += network_.TensorBytes(other) / sizeof(float);
  }
  const float* from = network_.gradients().data() + network_.TensorOffset(tensor);
  const std::size_t count = network_.TensorBytes(tensor) / sizeof(float);
  for (std::size_t i = 0; i < count; ++i) to[i] = scale_ * from[i];
  --missing_[bucket];
}

void Reducer::Launch(std::size_t bucket) {
  before_collective_();
  if (queue_.wanted()) {
    // As Lockstep names what PyTorch's DDP does here: it says when the bucket was ready.
    lockstep_range_push("ddp bucket");
    queue_.Push(bucket);
    lockstep_range_pop();
    return;
  }
  std::vector<float>& data = flat_[bucket];
  const std::unique_lock lock = helper_.Lock();
  ++calls_.iallreduce;
  MPI_Iallreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                 &requests_[bucket]);
  helper_.Wake();
}

void Reducer::Reduce(std::size_t bucket) {
  std::vector<float>& data = flat_[bucket];
  ++calls_.allreduce;
  MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

bool Reducer::AnyOpen() const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [](MPI_Request request) { return request != MPI_REQUEST_NULL; });
}

void Reducer::TestSome(std::size_t requests) {
  int completed = 0;
  ++calls_.testsome;
  MPI_Testsome(static_cast<int>(requests), requests_.data(), &completed, done_.data(), MPI_STATUSES_IGNORE);
}

void Reducer::Poll() {
  if (options_.overlap != Overlap::kOff && options_.progress == Progress::kTest && AnyOpen()) TestSome(next_);
}

void Reducer::Wait() {
  if (options_.overlap == Overlap::kOff) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      before_collective_();
      Reduce(b);
    }
  } else if (queue_.wanted()) {
    LaunchComplete();
    queue_.Wait();
  } else {
    LaunchComplete();
    const std::unique_lock lock = helper_.Lock();
    helper_.Pause();
    ++calls_.waitall;
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  }
}

void Reducer::Unpack() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const float* from = flat_[b].data();
    for (const std::size_t tensor : buckets_[b].tensors) {
      const std::size_t count = network_.TensorBytes(tensor) / sizeof(float);
      std::copy(from, from + count, network_.gradients().data() + network_.TensorOffset(tensor));
      from += count;
    }
  }
}

}  // namespace lockstep::example
