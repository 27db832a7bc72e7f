#pragma once
// One rank's events, those of a stretch of time at a time: for what must see the events around one another, of ranks
// that recorded more than fits into memory.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/interval.h"
#include "core/result.h"
#include "core/schema.h"
#include "merge/timeline/timeline.h"

namespace lockstep::ingest {
class EventReader;
class RankSource;
}  // namespace lockstep::ingest

namespace lockstep::merge {

// Tables that are read by time: mpi_calls, ranges, kernels, copies, sync, api, collectives, p2p. Thread: one at a time.
class EventWindows {
 public:
  // Errors as Timeline::ReadRank.
  static Result<EventWindows> Open(const Timeline& timeline, std::int32_t rank);
  // Of tables in memory.
  explicit EventWindows(schema::RankTables tables);
  EventWindows(EventWindows&&) noexcept;
  EventWindows& operator=(EventWindows&&) noexcept;
  ~EventWindows();

  // Of the tables that are read by time.
  std::uint64_t rows() const;
  // Everything, as Timeline::ReadRank gives it. Nothing else may be asked for afterwards.
  schema::RankTables ReadAll() &&;

  // The tables that are not read by time, but for cpu_samples. Read once; before Scan and Read.
  const schema::RankTables& Head();
  // What analysis asks a rank whether it has any of: where there is none, other things are read from the rest.
  enum Seen : std::uint8_t {
    kKernel,
    kOperator,  // A range that an operator or a Python function is.
    kForward,   // A range of the forward pass.
    kWait,      // A stream waits for a record of another, and it is known which.
    kSeenKinds,
  };
  // Finds out when which rows happened, which Read needs: the times of all rows are read once. Calls `seen` for each
  // such row (`device` of kernels), each table in the order of the file.
  void Scan(const std::function<void(Seen what, std::int64_t begin_ns, std::uint16_t device)>& seen);

  // All rows that begin in this time or last into it, in the order of the file, and Head() but for gpu_memory. Numbers
  // of rows (collectives.kernel, ...) are those of the tables returned, kNone for rows that are not in them. Rows that
  // cannot be read are left out. Reads the pieces of the file that have such rows: of tables in order of time hardly
  // more than what is returned.
  schema::RankTables Read(Interval time);
  // The same, but for collectives and p2p: all of their rows, as the timeline numbers them.
  schema::RankTables ReadWithOperations(Interval time);

 private:
  EventWindows();
  schema::RankTables ReadPart(Interval time, bool all_operations);
  template <typename F>
  static void ForEachTable(F&& f);

  std::unique_ptr<ingest::RankSource> source_;  // Null: from memory.
  std::unique_ptr<schema::RankTables> held_, head_;
  std::unique_ptr<ingest::EventReader> events_;
  // By table and piece of ingest::kPieceRows rows: from the first begin to the last end.
  std::vector<std::vector<Interval>> pieces_;
};

}  // namespace lockstep::merge
