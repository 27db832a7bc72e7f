#pragma once
// Events and calls -> operations, each with the kernel that carried it. See decode_nccl.h.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/nccl/decode_nccl.h"

namespace lockstep::trace {

// The kernel or, without one, the copies to which a launch or an operation led. A collective of copy engines may have
// both.
struct NcclTie {
  std::uint32_t kernel = schema::kNone;  // Row of kernels.
  std::int64_t copy_begin_ns = schema::kNoTime, copy_end_ns = schema::kNoTime;
  bool tied() const { return kernel != schema::kNone || copy_begin_ns != schema::kNoTime; }
};

struct NcclOperation {
  std::uint32_t event = schema::kNone;  // Coll, P2p or copy engine event, ...
  std::uint32_t api = schema::kNone;    // ... the API event above it, ...
  std::uint32_t call = schema::kNone;   // ... and the call around that; each only if it exists.
  NcclTie tie;
  // Of a captured operation's run in a CUDA graph: which run, from 1 (0: not captured), which of its communicator's
  // captured operations of its kind, and when its graph was launched.
  std::uint32_t replay = 0;
  std::uint64_t captured = 0;
  std::int64_t launched_ns = schema::kNoTime;
};

// Finds what threads launched when. Tables have their final rows.
class NcclLaunchIndex {
 public:
  explicit NcclLaunchIndex(const schema::RankTables& tables);

  // Launch and copy calls that `thread` began within [begin, end], in order.
  struct Launch {
    std::int64_t begin_ns, end_ns;
    std::uint64_t correlation;
  };
  std::span<const Launch> Within(std::uint32_t thread, std::int64_t begin_ns, std::int64_t end_ns) const;
  // The result of launches: the first kernel (NCCL's own before others), else all their copies.
  NcclTie TieOf(std::span<const Launch> launches) const;
  // Of a collective by copy engines: from its first copy or kernel to its last, with NCCL's own first kernel if any.
  NcclTie WholeOf(std::span<const Launch> launches) const;
  // All kernels of launches, in order.
  std::vector<std::uint32_t> KernelsOf(std::span<const Launch> launches) const;
  bool IsNccl(std::uint32_t kernel) const { return nccl_[kernel] != 0; }

 private:
  void AddCopies(std::span<const Launch> launches, NcclTie& tie) const;

  const schema::RankTables& tables_;
  std::vector<std::vector<Launch>> threads_;
  using Rows = std::vector<std::pair<std::uint64_t, std::uint32_t>>;  // Correlation, row: sorted.
  Rows kernels_, copies_;
  std::vector<std::uint8_t> nccl_;  // By row of kernels.
};

struct NcclFound {
  std::vector<NcclOperation> operations;  // In order of their enqueueing.
  std::uint64_t orphans = 0;              // API events whose operation never came.
  std::uint64_t replays_untied = 0;       // Runs of captured operations that NCCL told of, with no kernel known.
};

// `events` have their ends; both are as they came. Of captured operations, those runs whose kernels are known, if
// everything was recorded until `whole_until_ns`.
NcclFound FindNcclOperations(const schema::RankTables& tables, std::span<const NcclEventRow> events,
                             std::span<const NcclCallRow> calls, std::int64_t whole_until_ns);

}  // namespace lockstep::trace
