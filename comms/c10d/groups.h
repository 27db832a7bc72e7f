#pragma once
// Process groups of torch.distributed: their numbers, and which one a work is of.
//
// The hooks in Python tell each group when it is made, and which group a call is on, on the thread that makes the call.
// PyTorch's C++ works on a ProcessGroupGloo. Which one a group's is, is seen where it is constructed (backends.h): what
// C++ then starts on it by itself (DDP's reducer, on the thread that runs the backward pass, DTensor, functional
// collectives) is known by it. Where that was not seen, the first call on a group shows it, and a ProcessGroupGloo
// without a call so far is the only group that had none. Where that does not decide it, the group is not known, and its
// works are matched with no other rank's.

#include <atomic>
#include <cstdint>

namespace lockstep::c10d {

struct Group {
  std::uint64_t named = 0;   // Hash of its name and its ranks, which a later group may have, too.
  std::uint32_t number = 0;  // Of records.
  std::atomic<bool> live{false};
  std::atomic<const void*> backend{nullptr};  // Its ProcessGroupGloo, once it is known.
  std::uint32_t others = 0;  // The next so many are further ProcessGroupGloo objects of the same group.
  std::int32_t size = 0, first = 0, stride = 0;
  const std::int32_t* members = nullptr;  // World ranks, where they are no arithmetic sequence (stride 0).
  std::atomic<std::uint64_t> collectives{0};

  // Rank in the group; -1 for a rank that is no member, and for -1.
  std::int32_t RankOf(std::int32_t world_rank) const;
};

// What the calling thread's call is on.
struct Current {
  std::uint32_t number = 0;  // 0 none.
  std::int32_t peer = -1;    // World rank of the partner or the root.
  std::int32_t tag = -1;     // Of a message, from 0; else -1.
};

Current Exchange(const Current& current);

// The group of a call of the calling thread, and partner or root. Never null; of an unknown group RankOf gives -1.
// Thread: any.
Group* GroupOfCall(Current* current);
Group* UnknownGroup();
// The group of this number, never null.
Group* GroupOf(std::uint32_t number);
// Whether the calling thread is in a call of Python, or in one of the hooks' ranges that show waits within them;
// whether it is in a call that is no message.
bool WaitIsShown();
bool InCollective();
// The same where the ProcessGroupGloo is known too. Partner and root are given only if the call is on that group.
Group* GroupAt(const void* backend, Current* current);
// A new ProcessGroupGloo is at this address: one that was there before is gone, and its group with it.
void Forget(const void* backend);

}  // namespace lockstep::c10d
