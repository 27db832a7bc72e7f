#pragma once
// A rank's tables while an import fills them, and what it keeps beside them to find out which kernels are which
// collectives.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "core/schema.h"

namespace lockstep::ingest {

// As StringInterner, for texts whose hash is known already: every batch contains the same thousand names.
class Strings {
 public:
  Strings(schema::Strings& strings, schema::StringBytes& bytes);
  std::uint32_t Intern(std::string_view text) { return Intern(text, std::hash<std::string_view>()(text)); }
  std::uint32_t Intern(std::string_view text, std::uint64_t hash);

 private:
  void Grow();
  schema::Strings& strings_;
  schema::StringBytes& bytes_;
  std::vector<std::uint64_t> hashes_;  // Per row.
  std::vector<std::uint32_t> slots_;   // Open addressing, kNone empty.
};

// The facts that a trace contains about a communication operation: PyTorch writes them to its CPU event
// (record_param_comms) or to its kernel, NCCL to the payload of its NVTX range. Texts are numbers of strings.
struct CommArgs {
  std::uint32_t name = schema::kNone, dtype = schema::kNone;
  std::uint32_t group = schema::kNone, description = schema::kNone, ranks = schema::kNone;
  std::uint32_t in_split = schema::kNone, out_split = schema::kNone;
  std::int64_t in_elements = -1, out_elements = -1, group_size = -1;
  // Rooted operations: the root; send and receive: the other side; else its own. In the group's ranks.
  std::int64_t rank = -1;
  std::int64_t rank_start = -1, rank_stride = -1;
  std::int64_t source = -1, destination = -1;  // World ranks of point-to-point.
  std::int64_t seq = -1;
  // NCCL's own number of the communicator, the same on all its members; 0 not known.
  std::uint64_t communicator = 0;

  bool any() const { return name != schema::kNone || group != schema::kNone || group_size >= 0; }
};

// A CPU event that represents communication.
struct CommEvent {
  enum Kind : std::uint8_t { kRecord, kAnnotation };
  Kind kind = kRecord;  // record_param_comms; "nccl:all_reduce".
  std::uint32_t thread = 0, name = schema::kNone;
  std::int64_t begin_ns = 0, end_ns = 0, external_id = -1;
  // From "Input Dims" and "Input type", which record_shapes gives: -1 and kNone without it.
  std::int64_t input_elements = -1;
  std::uint32_t input_type = schema::kNone;
  CommArgs args;
};

// A kernel that is communication by its name or by its arguments.
struct CommKernel {
  std::uint32_t row = 0;  // Of kernels.
  std::int64_t external_id = -1;
  CommArgs args;
};

struct StepMark {
  std::int64_t index, begin_ns, end_ns;
  std::uint32_t thread;
};

struct MappedTrace {
  schema::RankTables tables;  // The event tables, strings, threads, processes; times since the epoch.
  std::unique_ptr<Strings> strings;
  std::vector<CommEvent> comm_events;    // Threads are rows of threads, texts rows of strings.
  std::vector<CommKernel> comm_kernels;  // By row.
  std::vector<StepMark> steps;
  std::uint64_t launch_missing = 0;  // GPU events whose launching call is not in the trace.
};

}  // namespace lockstep::ingest
