#pragma once
// Calls of NCCL's interface, nested and grouped as their threads made them.

#include <cstdint>
#include <span>
#include <vector>

#include "trace/nccl/decode_nccl.h"

namespace lockstep::trace {

class NcclCalls {
 public:
  // `texts` holds the calls' names.
  NcclCalls(const schema::RankTables& texts, std::span<const NcclCallRow> calls);

  // The operation's call around a time, kNone without one. Of nested ones (ncclBcast calls
  // ncclBroadcast; an NVTX range lies within the interposed call) only the outermost is known.
  std::uint32_t Around(std::uint32_t thread, std::int64_t ns) const;
  // The call of ncclGroupEnd that ended the group around a time, kNone without one.
  std::uint32_t GroupEndAround(std::uint32_t thread, std::int64_t ns) const;
  // The ncclGroupEnd that launched an operation's call, kNone if the call was not in a group.
  std::uint32_t GroupEndOf(std::uint32_t call) const { return group_end_[call]; }
  // The operations' calls that a ncclGroupEnd launched, in order.
  std::span<const std::uint32_t> GroupOf(std::uint32_t group_end) const;
  // All operations' calls that are not nested, by thread and time.
  const std::vector<std::uint32_t>& operations() const { return operations_; }

 private:
  std::uint32_t Find(const std::vector<std::vector<std::uint32_t>>& threads, std::uint32_t thread,
                     std::int64_t ns) const;
  std::span<const NcclCallRow> calls_;
  std::vector<std::vector<std::uint32_t>> operations_of_, ends_of_;  // By thread, in order of time, not nested.
  std::vector<std::uint32_t> operations_;
  std::vector<std::uint32_t> group_end_;  // Per call.
  std::vector<std::vector<std::uint32_t>> groups_;
  std::vector<std::uint32_t> group_of_end_;  // Per call: index of groups_, kNone no group's end.
};

}  // namespace lockstep::trace
