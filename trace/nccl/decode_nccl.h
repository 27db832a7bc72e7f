#pragma once
// Records of the NCCL source -> comms, collectives, p2p, and which kernel carried each operation.
//
// Nothing is paired while records are read: NCCL announces a kernel before what it carries, ends
// children after their parents and announces replayed graphs from other threads. All of it waits
// here until every record was read and the kernels have their final rows (docs/decisions/nccl-no-state.md).

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/gpu_records.h"
#include "core/interval.h"
#include "core/schema.h"
#include "trace/decode/record_context.h"

namespace lockstep::trace {

class ProcessDecoder;

struct NcclEventRow {
  std::uint64_t id, parent, group, seq, count, stream, buffer;
  std::int64_t begin_ns, end_ns;  // kNoTime: no end seen.
  std::uint64_t end_value = 0;    // Kernel channels: the GPU's timer at its end.
  std::uint32_t comm, thread;
  std::uint32_t algorithm, protocol, name;  // Rows of strings.
  std::int32_t peer;
  NcclEvent kind;
  std::uint8_t function, dtype, channels;
  bool captured;
};

struct NcclCallRow {
  std::int64_t begin_ns, end_ns;
  std::uint64_t count, stream, buffer, seq;
  std::uint32_t comm, thread, name;
  std::int32_t peer, result;
  NcclSource source;
  std::uint8_t function, direction, dtype, reduction;
};

struct NcclComm {
  std::uint32_t row;   // Of comms.
  NcclSource id_from;  // The source of its id.
  bool ended;
};

// One per process.
class NcclRecords {
 public:
  NcclRecords(ProcessDecoder& decoder, schema::RankTables& tables) : decoder_(decoder), tables_(tables) {}

  // Of the kinds kNcclBegin to kNcclComm; `bytes` holds at least the kind's slots. Returns the
  // record's times, rank clock.
  Interval Add(RecordKind kind, std::span<const std::byte> bytes, const RecordContext& context);

  // After kernels, copies and api have their final rows and threads. Recording was on from the process's begin until
  // `whole_until_ns`.
  void MakeRows(std::int64_t whole_until_ns);

  // Counts what was not found. Called after the process's windows are known.
  void CountLosses();

  std::uint64_t untied() const { return untied_.size(); }  // Operations whose kernel was not found.

 private:
  Interval OnBegin(const NcclBeginRecord& record, const RecordContext& context);
  Interval OnEnd(const NcclEndRecord& record, const RecordContext& context);
  Interval OnCall(const NcclCallRecord& record, const RecordContext& context);
  Interval OnComm(const NcclCommRecord& record, const RecordContext& context);
  // The row of comms for a communicator's number; created if it was not described yet.
  std::uint32_t CommRow(std::uint32_t number, std::int64_t ns);
  void PairEnds();
  void NoteOthers();
  void MakeOperations(std::int64_t whole_until_ns);

  ProcessDecoder& decoder_;
  schema::RankTables& tables_;
  std::vector<NcclEventRow> events_;  // Of each thread in the order of its ring. `comm`: row of comms.
  std::vector<NcclCallRow> calls_;
  struct Ending {
    std::uint64_t id, value;
    std::int64_t ns;
  };
  std::vector<Ending> endings_;
  std::unordered_map<std::uint32_t, NcclComm> comms_;  // By number.
  // Operations without kernel, and per communicator when those that have one were enqueued.
  struct Untied {
    std::uint32_t comm;
    std::int64_t enqueued_ns;
  };
  std::vector<Untied> untied_;
  std::unordered_map<std::uint32_t, std::vector<std::int64_t>> tied_ns_;
  Seen kernels_untied_, one_sided_, device_side_;
  std::uint64_t orphans_ = 0, replays_untied_ = 0;
};

}  // namespace lockstep::trace
