#pragma once
// Process groups of torch.distributed: their numbers, and which one a work is of.
//
// PyTorch tells observers what a work is, not the group that carries it. The hooks in Python tell each group when it is
// made, and which group a call is on, on the thread that makes the call. What PyTorch's C++ starts by itself (DDP's
// reducer, on the thread that runs the backward pass) comes without a call: it is the only group there is, or else the
// only one that models with DDP use. Where that does not decide it, the group is not known, and its works are matched
// with no other rank's.

#include <atomic>
#include <cstdint>

namespace lockstep::c10d {

struct Group {
  std::uint32_t number = 0;  // Of records.
  std::atomic<bool> live{false}, reduces{false};  // The second: a model with DDP reduces its gradients on it.
  std::int32_t size = 0, first = 0, stride = 0;
  const std::int32_t* members = nullptr;  // World ranks, where they are no arithmetic sequence (stride 0).
  std::atomic<std::uint64_t> collectives{0};

  // Rank in the group; -1 for a rank that is no member, and for -1.
  std::int32_t RankOf(std::int32_t world_rank) const;
};

// What the calling thread's call is on.
struct Current {
  std::uint32_t number = 0;             // 0 none.
  std::int32_t peer = -1, tag = -1;     // World rank of the partner or the root.
};

Current Exchange(const Current& current);

// The group of a work that the calling thread begins, and partner or root. Never null. Of an unknown group RankOf gives
// -1. Thread: any.
Group* GroupOfWork(bool all_reduce, Current* current);

}  // namespace lockstep::c10d
