#pragma once
// The input of exporters: one rank's events in order of their begin, in cluster time, each with the row of the table
// that it comes from. The writer of a format decides from kind and row what to show.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "core/schema.h"

namespace lockstep::exporters {

enum class EventKind : std::uint8_t {
  kStep,        // Window of a step on this rank, with the terms of the identity (timeline's step_ranks).
  kHostStep,    // The same step as the host marked it, on ranks whose windows are the GPU's (steps).
  kRange,       // ranges
  kMpiCall,     // mpi_calls
  kMpiRequest,  // mpi_requests
  kCollective,  // collectives
  kMessage,     // p2p
  kKernel,      // kernels
  kCopy,        // copies
  kSync,        // sync
  kApi,         // api
  kBlocked,     // blocked
  kOverhead,    // overheads
  kMemory,      // gpu_memory; an instant
  kSensors,     // gpu_samples; an instant
  kCounter,     // A value from now on, see Counter.
  kJobStep,     // Of the cluster: a step of the job (timeline's steps).
  kInstance,    // Of the cluster: a matched collective, first arrival to last end.
  kWait,        // Of the cluster, within an instance: until the last arrival.
  kTransfer,    // Of the cluster, within an instance: from the last arrival on.
  kFinding,     // Of the cluster: an instant.
  kCount,
};
inline constexpr std::size_t kEventKinds = static_cast<std::size_t>(EventKind::kCount);

// As users read it behind a count: "kernel", "MPI calls".
std::string_view NounOf(EventKind kind, std::uint64_t count);
// May be left out to save space: events of which a job has thousands per step.
constexpr bool IsDetail(EventKind kind) {
  switch (kind) {
    case EventKind::kRange:
    case EventKind::kMpiCall:
    case EventKind::kMpiRequest:
    case EventKind::kMessage:
    case EventKind::kKernel:
    case EventKind::kCopy:
    case EventKind::kSync:
    case EventKind::kApi:
    case EventKind::kBlocked:
    case EventKind::kOverhead:
      return true;
    default:
      return false;
  }
}
// Of counter tracks.
constexpr bool IsValue(EventKind kind) {
  return kind == EventKind::kMemory || kind == EventKind::kSensors || kind == EventKind::kCounter;
}

// Counters that are computed here; a memory event or sensor reading has several other values.
inline constexpr std::uint32_t kInFlight = 0, kBytesInFlight = 1;
struct Counter {
  std::uint32_t number;
  std::string_view unit;
  std::int64_t value;
};

// A finding of `lockstep analyze`, in the words of the report.
struct Finding {
  std::string id, headline, evidence, action;
  std::int32_t rank = -1;               // The rank it names, -1 none.
  std::int64_t saves_ns_per_step = -1;  // -1 unknown.
};

// A member of a matched collective, or the instance itself.
struct InstanceRef {
  std::uint32_t instance = schema::kNone;  // Row of the timeline's collectives: the same on all ranks.
  std::uint32_t member = schema::kNone;    // Row of its collective_ranks.
};

using EventRow =
    std::variant<std::monostate, const schema::TlStepRanks::Row*, const schema::Steps::Row*, const schema::Ranges::Row*,
                 const schema::MpiCalls::Row*, const schema::MpiRequests::Row*, const schema::Collectives::Row*,
                 const schema::P2p::Row*, const schema::Kernels::Row*, const schema::Copies::Row*,
                 const schema::Sync::Row*, const schema::Api::Row*, const schema::Blocked::Row*,
                 const schema::Overheads::Row*, const schema::GpuMemory::Row*, const schema::GpuSamples::Row*,
                 const schema::TlSteps::Row*, const schema::TlCollectives::Row*, const Counter*, const Finding*>;

struct Event {
  EventKind kind;
  std::int64_t begin_ns, end_ns;  // Cluster time; equal for instants.
  EventRow row;                   // Valid during the call only; its times are the rank's.
  std::uint64_t number = 0;       // Of the row in its table.
  InstanceRef instance;           // For collectives that were matched, and for the cluster's events about them.
  std::uint64_t flow = 0;         // This member's wait is one of the longest: the number of its arrow, 0 none.
  bool flow_target = false;       // It is where arrows end: those of InstanceRef::instance (FlowsOf).
  bool ended = true;              // False: the operation never ended, and the end is the last sign of life.

  template <typename Row>
  const Row& as() const {
    return *std::get<const Row*>(row);
  }
};

// Shown as an instant on a track of slices.
inline bool IsMark(const Event& event) {
  return event.kind == EventKind::kFinding ||
         (event.kind == EventKind::kRange && event.as<schema::Ranges::Row>().kind == schema::RangeKind::kMark);
}

}  // namespace lockstep::exporters
