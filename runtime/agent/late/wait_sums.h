#pragma once
// How long this rank's collectives took, summed by communicator: where every member waits for every other, all leave
// together, so that by how much longer one member is inside than another is by how much the other came later. No clocks
// are compared. Taken from records as the agent takes them anyway.

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/record.h"
#include "core/ring_layout.h"
#include "core/torch_records.h"

namespace lockstep::agent {

class RecordReader;

struct WaitSum {
  std::uint64_t comm = 0;  // The same on all members.
  std::uint64_t count =
      0;                // Collectives so far in which all wait for all: blocking ones of MPI, and PyTorch's on gloo.
  std::int64_t ns = 0;  // From this rank's arrival to its end, of all of them together.
};

// Thread: one.
class WaitSums {
 public:
  // Takes complete records of one ring, its oldest first.
  void Take(const RingEntry& entry, std::span<const iovec> parts);

  // The process that communicates, an index into the segment's table; -1: none does.
  std::int64_t process() const { return process_; }
  // The communicators in which most time was spent; `ns_per_tick`: of the event clock.
  std::vector<WaitSum> Largest(std::size_t most, double ns_per_tick) const;

 private:
  struct Comm {
    std::uint64_t global_id;
    std::uint32_t size;
  };
  struct Sum {
    std::uint64_t count = 0, ticks = 0;
  };
  struct Work {
    std::uint64_t comm, begin_ticks;
  };
  void OnRecord(const RecordHead& head, const RecordReader& reader, std::size_t at);
  void OnComm(const CommRecord& record);
  void OnMpi(const MpiRecord& record);
  void OnTorchBegin(const TorchBeginRecord& record);
  void OnTorchEnd(const TorchEndRecord& record);
  // Null for a communicator that other ranks do not know, or that has no others.
  const Comm* Find(std::uint32_t comm) const;
  void Add(std::uint64_t comm, std::uint64_t begin_ticks, std::uint64_t end_ticks);

  std::int64_t process_ = -1;
  std::unordered_map<std::uint32_t, Comm> comms_;  // By the process's number of it.
  std::unordered_map<std::uint64_t, Sum> sums_;
  // PyTorch's works by number: those in progress, and ends whose begin arrives later (from another ring).
  std::unordered_map<std::uint64_t, Work> works_;
  std::unordered_map<std::uint64_t, std::uint64_t> ended_early_;
};

}  // namespace lockstep::agent
