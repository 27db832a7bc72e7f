#pragma once
// Finds which CPU events of a trace are one communication operation, and which operation is around a given time.

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "core/collective.h"
#include "core/schema.h"
#include "ingest/map/mapped.h"

namespace lockstep::ingest {

inline constexpr std::uint32_t kNoOp = schema::kNone;

// The facts about one operation from a CPU event, or from a pair of one inside the other.
struct CommOperation {
  std::uint32_t thread = schema::kNone;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t external_id = -1;
  CommArgs args;
  std::uint32_t annotation = schema::kNone;
  std::int64_t input_elements = -1;
  std::uint32_t input_type = schema::kNone;
  CollectiveKind kind = CollectiveKind::kNone;
  int direction = -1;         // Point-to-point: 0 send, 1 receive.
  std::uint32_t kernels = 0;  // That it launched.

  bool usable() const { return kind != CollectiveKind::kNone || direction >= 0; }
};

// "nccl:all_reduce" lies inside its record_param_comms: together one operation.
// Either may be missing: the first before PyTorch 1.12 or in traces cut down by
// other tools, the second where nothing but annotations was kept.
class CommOperations {
 public:
  // Sorts the trace's communication events.
  explicit CommOperations(MappedTrace& trace);

  bool empty() const { return ops_.empty(); }
  CommOperation& operator[](std::size_t op) { return ops_[op]; }
  const CommOperation& operator[](std::size_t op) const { return ops_[op]; }
  // The innermost operation around a time on a thread, kNoOp.
  std::uint32_t At(std::uint32_t thread, std::int64_t ns) const;
  // The one of this external id, kNoOp.
  std::uint32_t OfExternal(std::int64_t id) const;
  // In order of their begin.
  const std::vector<std::uint32_t>& OfThread(std::uint32_t thread) const;

 private:
  std::vector<CommOperation> ops_;
  std::unordered_map<std::int64_t, std::uint32_t> by_external_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> by_thread_;  // Operations in order of their begin.
  std::map<std::uint32_t, std::vector<std::int64_t>> reach_;       // Latest end so far, beside them.
};

}  // namespace lockstep::ingest
