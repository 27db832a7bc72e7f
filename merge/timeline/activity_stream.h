#pragma once
// Streams one rank's events into the breakdown: reads a piece at a time of each table, in order of time, so that only
// the current pieces are held in memory.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/mpi_ops.h"
#include "ingest/rank_files/event_reader.h"
#include "merge/timeline/blocked_time.h"
#include "merge/timeline/breakdown.h"
#include "merge/timeline/gpu_windows.h"
#include "merge/timeline/kernel_class.h"
#include "merge/timeline/unrecorded_calls.h"

namespace lockstep::merge {

struct HtaWindow;

inline constexpr schema::Columns<schema::MpiCalls> kCallColumns(&schema::MpiCalls::begin_ns,
                                                                &schema::MpiCalls::duration_ns,
                                                                &schema::MpiCalls::thread, &schema::MpiCalls::op);
inline constexpr schema::Columns<schema::Sync> kSyncColumns(&schema::Sync::begin_ns, &schema::Sync::duration_ns,
                                                            &schema::Sync::stream, &schema::Sync::correlation);
inline constexpr schema::Columns<schema::CpuSamples> kSampleColumns(&schema::CpuSamples::time_ns,
                                                                    &schema::CpuSamples::thread,
                                                                    &schema::CpuSamples::cpu_ns,
                                                                    &schema::CpuSamples::run_delay_ns);
using CallRows = ingest::RowCursor<schema::MpiCalls, kCallColumns>;
using SyncRows = ingest::RowCursor<schema::Sync, kSyncColumns>;
using SampleRows = ingest::RowCursor<schema::CpuSamples, kSampleColumns>;

// The long tables with the columns that a pass uses.
struct EventTables {
  explicit EventTables(ingest::EventReader& events);

  ingest::EventReader& reader;
  CallRows calls;
  KernelRows kernels;
  CopyRows copies;
  SyncRows sync;
  ApiRows api;
  SampleRows samples;

  // Of tables of many pieces, reads only the columns that a walk over times needs, or everything again; which call
  // launched a kernel only with `launches`.
  void OnlyTimes();
  void AllColumns(bool launches);
};

// Of collectives.mode and p2p.mode: one call posts the operation, another completes it.
bool IsPosted(std::uint8_t mode);

// Of a number in mpi_calls.op or mpi_requests.op; functions of a newer version count as "other".
MpiClass ClassOf(std::uint16_t op);

// Reads several tables side by side: always continues with the one that is furthest behind, and reports how
// far all of them are. A row may come after rows that begin later, if these are of its own piece or the one
// before.
class Watermarks {
 public:
  // `advance(ns)`: no later row begins before `ns`. `whole`: never called.
  Watermarks(bool whole, std::function<void(std::int64_t)> advance) : whole_(whole), advance_(std::move(advance)) {}
  // Takes the table's next piece and raises `latest` to the begins in it; returns false if there was none.
  using Next = std::function<bool(std::int64_t& latest)>;
  void Add(Next next) { tables_.push_back({std::move(next)}); }
  void Run();

 private:
  struct Table {
    Next next;
    std::int64_t latest = INT64_MIN, settled = INT64_MIN;
    bool done = false;
  };
  bool whole_;
  std::function<void(std::int64_t)> advance_;
  std::vector<Table> tables_;
};

// Thread: one at a time.
class ActivityStream {
 public:
  // `windows`: what to break down. With `hta_window`, the last one counts only what HTA would keep. `whole`: tables
  // need not be in order of time, and are held until the end.
  ActivityStream(const schema::RankTables& head, EventTables& tables, std::uint32_t training, bool hta_classes,
                 const std::vector<Interval>& windows, const HtaWindow* hta_window, bool whole);

  // Called with pieces that hold some range with a category; name, times, thread and category are read.
  void OnRanges(std::function<void(const schema::Ranges&)> f) { on_ranges_ = std::move(f); }
  // Rows of a table in memory, by their begin, to be added with AddOp.
  void AddRows(const std::vector<std::int64_t>& begin_ns, std::function<void(std::size_t row)> add);
  // Of GPU ranks its operations only.
  void AddUnrecorded(const UnrecordedComm& comm);
  // For CPU ranks.
  void AddBlocked(const BlockedTime& blocked);
  // Adds time in which the rank waits for the other half of a message.
  void AddMessageWait(Interval wait, std::uint32_t kernel);
  // Adds an operation in flight; `kernel` is the row of the kernel that carried it, or kNone.
  void AddOp(const CommOp& op, std::uint32_t kernel);

  // Reads everything. Returns false if rows came too late for this method; the terms must not be used then.
  bool Run(std::vector<Terms>& terms);

 private:
  // Sources of both breakdowns, in the order in which they are made.
  enum Source : std::size_t {
    kCallsBusy,
    kInputBusy,
    kCompute,
    kUnrecordedBusy,
    kOpsCertain,
    kKernelsCertain,
    kUnrecordedCertain,
    kPossible,
    kTransfer,
    kWait,
    kInside,
    kKernelsCopy,
    kCopies,
    kSyncs,
    kOther,
    kRequestsOther,
    kIo,
    kRequestsIo,
    kRma,
    kRequestsRma,
    kSetup,
    kInput,
    kBlocked,
    kAwaited,
    kMessage,
    kBeside,
    kSources,
  };
  // A kernel that carried a recorded collective.
  struct Carrier {
    std::uint64_t row;
    KernelClass cls;
    bool kept;
  };

  void Put(Source source, Interval interval, bool kept = true) {
    all_.Add(source, interval);
    if (hta_window_ != nullptr && kept) kept_.Add(source, interval);
  }
  // Whether what this kernel carries counts as communication; `kept`: in HTA's window.
  bool Counts(std::uint32_t kernel, bool& kept) const;
  void FindCarriers();
  const Carrier* CarrierOf(std::uint64_t kernel) const;
  void AddRequests();
  bool NextCalls(std::int64_t& latest);
  bool NextRanges(std::int64_t& latest);
  bool NextKernels(std::int64_t& latest);
  bool NextCopies(std::int64_t& latest);
  bool NextSyncs(std::int64_t& latest);

  const schema::RankTables& head_;
  EventTables& tables_;
  const std::uint32_t training_;
  const bool gpu_, hta_classes_;
  const HtaWindow* hta_window_;
  bool posted_ = false;  // Some operation may move data while no thread is inside MPI.
  KernelClassifier classifier_;
  std::vector<Carrier> carriers_;  // By row.
  std::size_t carrier_ = 0;
  Breakdown all_, kept_;
  Watermarks marks_;
  std::function<void(const schema::Ranges&)> on_ranges_;
  schema::Ranges ranges_;
  std::uint64_t next_range_ = 0;
};

}  // namespace lockstep::merge
