#include "examples/fsdp_mpi/shards.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep::example {

Shards::Shards(Network& network, const Options& options, int rank, int ranks, CallCounts& calls,
               std::function<void()> before_collective)
    : network_(network),
      options_(options),
      prefetch_(options.prefetch),
      rank_(rank),
      ranks_(ranks),
      calls_(calls),
      before_collective_(std::move(before_collective)),
      helper_(options.progress == Progress::kThread, options.poll_us * 1000, [this] {
        const bool open = AnyOpen();
        if (open) TestSome();
        return open;
      }) {
  const auto count = static_cast<std::size_t>(ranks);
  std::size_t largest = 0;
  for (std::size_t u = 0; u < network.layers().size(); ++u) {
    Unit unit{};
    // A layer's bias lies right behind its weight.
    unit.offset = network.TensorOffset(2 * u);
    unit.floats = (network.TensorBytes(2 * u) + network.TensorBytes(2 * u + 1)) / sizeof(float);
    unit.part_floats = (unit.floats + count - 1) / count;
    unit.part.resize(unit.part_floats);
    unit.momentum.resize(unit.part_floats);
    unit.gradient.resize(unit.part_floats);
    unit.send.resize(unit.part_floats * count);
    const std::size_t first = std::min(unit.part_floats * static_cast<std::size_t>(rank), unit.floats);
    const std::size_t own = std::min(unit.part_floats, unit.floats - first);
    std::copy_n(network.parameters().data() + unit.offset + first, own, unit.part.begin());
    largest = std::max(largest, unit.send.size());
    units_.push_back(std::move(unit));
  }
  for (std::vector<float>& buffer : gathered_) buffer.resize(largest);
  for (std::size_t u = 0; u < units_.size(); ++u) Release(u);
  prefetched_.resize(units_.size());
  requests_.assign(2 * units_.size(), MPI_REQUEST_NULL);
  done_.resize(requests_.size());
}

std::uint64_t Shards::UnitBytes(std::size_t unit) const { return units_[unit].send.size() * sizeof(float); }

void Shards::Prefetch(std::size_t unit) {
  if (!prefetch_) return;
  const Unit& own = units_[unit];
  before_collective_();
  const std::unique_lock lock = helper_.Lock();
  ++calls_.iallgather;
  MPI_Iallgather(own.part.data(), static_cast<int>(own.part_floats), MPI_FLOAT, gathered_[unit % 2].data(),
                 static_cast<int>(own.part_floats), MPI_FLOAT, MPI_COMM_WORLD, &requests_[unit]);
  prefetched_[unit] = true;
  helper_.Wake();
}

void Shards::Gather(std::size_t unit) {
  const Unit& own = units_[unit];
  if (!prefetched_[unit]) {
    before_collective_();
    ++calls_.allgather;
    MPI_Allgather(own.part.data(), static_cast<int>(own.part_floats), MPI_FLOAT, gathered_[unit % 2].data(),
                  static_cast<int>(own.part_floats), MPI_FLOAT, MPI_COMM_WORLD);
  } else {
    const std::unique_lock lock = helper_.Lock();
    if (requests_[unit] != MPI_REQUEST_NULL) {
      ++calls_.wait;
      MPI_Wait(&requests_[unit], MPI_STATUS_IGNORE);
    }
    prefetched_[unit] = false;
  }
  std::copy_n(gathered_[unit % 2].begin(), own.floats, network_.parameters().data() + own.offset);
}

void Shards::Release(std::size_t unit) {
  std::fill_n(network_.parameters().data() + units_[unit].offset, units_[unit].floats,
              std::numeric_limits<float>::quiet_NaN());
}

// As FSDP: divide by the number of ranks, then sum.
void Shards::ReduceGradients(std::size_t unit) {
  Unit& own = units_[unit];
  const float scale = 1.0f / static_cast<float>(ranks_);
  const float* from = network_.gradients().data() + own.offset;
  for (std::size_t i = 0; i < own.floats; ++i) own.send[i] = scale * from[i];
  before_collective_();
  const std::unique_lock lock = helper_.Lock();
  ++calls_.ireduce_scatter;
  MPI_Ireduce_scatter_block(own.send.data(), own.gradient.data(), static_cast<int>(own.part_floats), MPI_FLOAT, MPI_SUM,
                            MPI_COMM_WORLD, &requests_[units_.size() + unit]);
  helper_.Wake();
}

void Shards::FinishGradients() {
  const std::unique_lock lock = helper_.Lock();
  helper_.Pause();
  ++calls_.waitall;
  MPI_Waitall(static_cast<int>(units_.size()), requests_.data() + units_.size(), MPI_STATUSES_IGNORE);
}

void Shards::Update(float learning_rate) {
  for (Unit& unit : units_) {
    for (std::size_t i = 0; i < unit.part_floats; ++i) {
      unit.momentum[i] = 0.9f * unit.momentum[i] + unit.gradient[i];
      unit.part[i] -= learning_rate * unit.momentum[i];
    }
  }
}

bool Shards::AnyOpen() const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [](MPI_Request request) { return request != MPI_REQUEST_NULL; });
}

void Shards::TestSome() {
  int completed = 0;
  ++calls_.testsome;
  MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &completed, done_.data(), MPI_STATUSES_IGNORE);
}

void Shards::Poll() {
  if (options_.progress == Progress::kTest && AnyOpen()) TestSome();
}

}  // namespace lockstep::example
