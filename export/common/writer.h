#pragma once
// One output format. The driver (export.h) walks the run once: Begin; for each rank in order, and then for the cluster
// where the writer wants it, BeginRank, Write for each of its events, EndRank; Finish. A further format is a writer in
// a file of its own and one more row in formats.def.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/interval.h"
#include "core/result.h"
#include "export/common/event.h"
#include "merge/timeline/timeline.h"

namespace lockstep::exporters {}

namespace lockstep::ingest {
class EventReader;
}

namespace lockstep::exporters {

// The data of the run for all writers.
struct ExportRun {
  const merge::Timeline* timeline = nullptr;
  std::string output;        // File or directory to make.
  std::int64_t base_ns = 0;  // The cluster time that is 0 in the output; no event is before it.
  Interval window{0, 0};     // Cluster time of what is exported.
  bool all_steps = true;     // False: what is outside of the window was not asked for.
  std::vector<std::int32_t> ranks;
  std::vector<std::string> remarks;  // What was left out, for the output's own metadata.
  // Arrows that end at an instance's last arriver, numbered as Event::flow: (row of collectives, number), sorted.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> flow_ends;
  // Those of one row of collectives.
  auto FlowsInto(std::uint32_t instance) const {
    return std::ranges::equal_range(flow_ends, instance, {}, &std::pair<std::uint32_t, std::uint64_t>::first);
  }
  // World ranks of communicators by global id, in ascending order, as far as their collectives show them: files of NCCL
  // contain only the number of members.
  std::unordered_map<std::uint64_t, std::vector<std::int32_t>> comm_members;
  // Names of communicators by global id, of ranks that were written already.
  std::unordered_map<std::uint64_t, std::string> comm_names;
};

// One rank, or the cluster (rank -1, head without rows).
struct ExportRank {
  std::int32_t rank = -1;
  std::string title;  // "rank 5 · node1 · GPU 1"
  const schema::RankTables* head = nullptr;
  const merge::ClockMap* clock = nullptr;
  ingest::EventReader* reader = nullptr;  // For tables without events (kernel_shapes); null for the cluster.
  std::uint32_t training_thread = schema::kNone;
  bool gpu = false;
};

// Thread: one call at a time.
class Writer {
 public:
  virtual ~Writer() = default;
  virtual bool wants_cluster() const { return false; }
  // Whether the format can represent events of this kind.
  virtual bool Takes(EventKind) const { return true; }
  virtual Status Begin(const ExportRun& run) = 0;
  virtual Status BeginRank(const ExportRank& rank) = 0;
  virtual Status Write(const Event& event) = 0;
  virtual Status EndRank() = 0;
  virtual Status Finish() = 0;
  // Bytes written so far.
  virtual std::uint64_t bytes() const = 0;
  // Of stacks, written so far.
  virtual std::uint64_t samples() const { return 0; }
  // What the format could not represent, one line each; "" if there is nothing.
  virtual std::string trouble() const { return {}; }
};

struct WriterOptions {
  bool split = false;  // perfetto: an archive with a file per rank.
};

struct Format {
  std::string_view name, summary;
  std::string_view default_output;  // In the run directory.
  bool directory;                   // The output is a directory.
  // Null: this build cannot write it; `missing` names what is required.
  std::unique_ptr<Writer> (*make)(const WriterOptions& options);
  std::string_view missing;
  bool samples_only = false;  // It holds samples of stacks and no events.
};

// All formats, the default first.
const std::vector<Format>& Formats();
// Null if there is no format of that name.
const Format* FindFormat(std::string_view name);

}  // namespace lockstep::exporters
