#pragma once
// One batch of a trace's events as columns, with strings, threads and launch shapes
// of its own. Batches are mapped by any thread in any order; join.h puts them
// together in the file's order, so the result knows nothing of threads or batches.

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/schema.h"
#include "ingest/kineto/map/local_strings.h"
#include "ingest/kineto/read/trace_reader.h"
#include "ingest/map/mapped.h"

namespace lockstep::ingest {

struct ThreadSeen {
  std::int64_t pid = -1, tid = -1;
  std::string name;  // Of a thread whose tid is no number.
  std::int64_t begin_ns = 0, end_ns = 0;
  std::uint64_t records = 0, cpu_ops = 0;
  std::uint32_t label = 0;  // As EventRun::label.
};

// Names that metadata events give to processes and threads.
struct GivenName {
  std::int64_t pid, tid;  // tid -1: of the process.
  std::string name;
  std::uint32_t label = 0;  // As EventRun::label.
};

// Rows that events add one by one, as the file has them. What they hold of a process follows from where they stand.
struct RowCounts {
  std::uint32_t kernels = 0, copies = 0, sync = 0, api = 0, gpu_memory = 0, ranges = 0, comm_events = 0,
                launch_shapes = 0, steps = 0;
  bool operator==(const RowCounts&) const = default;
};

// Events that follow each other and are of one process, or of the GPU. Of a file that several ranks' traces were merged
// into, owners.h finds out whose they are.
struct EventRun {
  std::uint32_t label = 0;                       // Of labels; 0: the process has none.
  std::int64_t pid = -1;                         // Of a process without a label; -1: not known.
  RowCounts first;                               // Rows before it.
  std::int64_t window_end_ns = schema::kNoTime;  // "Record Window End", end of the profiler's own span.
  std::int64_t gpu_step_ns = schema::kNoTime;    // Begin of the last ProfilerStep on a GPU's track.
};

// kDevice: work of a device, of an unknown kind.
enum class Skipped : std::uint8_t { kGpuAnnotation, kOverhead, kOther, kDevice, kCount };

struct Partial {
  schema::Kernels kernels;
  schema::Copies copies;
  schema::Sync sync;
  schema::Api api;
  schema::GpuMemory gpu_memory;
  schema::Ranges ranges;
  schema::KernelShapes shapes;

  LocalStrings strings;
  std::vector<ThreadSeen> threads;
  std::vector<CommEvent> comm_events;
  std::vector<CommKernel> comm_kernels;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> launch_shapes;  // AMD: correlation, row of shapes.
  std::vector<StepMark> steps;
  std::vector<GivenName> names;
  std::vector<GivenName> process_labels;       // Labels (rank_label.h) that metadata gives to processes without one.
  std::vector<std::string> labels{""};         // Of processes, as written. Most traces have none.
  std::vector<EventRun> runs{EventRun()};      // In the file's order.
  std::vector<std::string> other_categories;   // Distinct, a few.
  std::vector<std::string> device_categories;  // Likewise, of Skipped::kDevice.
  std::uint64_t skipped[static_cast<std::size_t>(Skipped::kCount)] = {};
  std::uint64_t events = 0;
  bool hip = false;                     // AMD's runtime was called.
  std::set<std::string> host_backends;  // Of the operations that the host carried out.

  RowCounts Rows() const;
};

std::unique_ptr<Partial> MapBatch(std::span<const kineto::Event> events);

}  // namespace lockstep::ingest
