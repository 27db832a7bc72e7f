#pragma once
// Converts the records of one process's threads to the tables of its rank file.

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/loss.h"
#include "core/mpi_ops.h"
#include "core/record.h"
#include "core/schema.h"
#include "trace/decode/decode_gpu.h"
#include "trace/decode/open_call.h"
#include "trace/decode/open_requests.h"
#include "trace/decode/record_context.h"
#include "trace/decode/tick_converter.h"
#include "trace/file/strings.h"
#include "trace/nccl/decode_nccl.h"
#include "trace/spool/leftover_rings.h"
#include "trace/spool/record_stream.h"

namespace lockstep::trace {

struct DecoderThread {
  std::int64_t tid = 0;
  RecordStream stream;
  RingState left_open;
  struct Cpu {
    std::uint64_t ticks;
    std::int64_t cpu_ns, run_delay_ns;
  };
  std::vector<Cpu> cpu;  // Read by the agent.
};

// The text behind a StringRecord.
inline std::string_view RecordText(std::span<const std::byte> bytes) {
  const std::size_t length = LoadRecord<StringRecord>(bytes).bytes, room = bytes.size() - kSlotBytes;
  return {reinterpret_cast<const char*>(bytes.data()) + kSlotBytes, length < room ? length : room};
}

// Whether the call returned the handle of a new request.
bool MakesRequest(const MpiRecord& call);

// One per process; Decode is called once. Thread: one at a time.
class ProcessDecoder {
 public:
  // `tables` receives the rows of all tables but meta, processes and the clock tables.
  ProcessDecoder(schema::RankTables& tables, const TickMap& map);

  // `process_row`: row of `processes` the threads belong to. `main_tid`: the
  // process's first thread. `last_sign_ticks`: latest other sign of life, 0 none.
  void Decode(std::vector<DecoderThread> threads, std::uint32_t process_row, std::int64_t main_tid,
              std::uint64_t last_sign_ticks);

  // Before Decode: rows of stacks, by the number of a CallStackRecord.
  void UseCallStacks(std::unordered_map<std::uint32_t, std::uint32_t> rows) { call_stacks_ = std::move(rows); }

  std::uint32_t Intern(std::string_view text) { return strings_.Intern(text); }
  // Adds a row of meta.
  void AddFact(std::string_view key, std::string_view value) {
    tables_.meta.Append({.key = Intern(key), .value = Intern(value)});
  }
  // Adds a row of losses; none for a count of 0.
  void AddLoss(Loss loss, const Seen& seen, std::string_view detail = {}, std::uint32_t thread = schema::kNone);
  void AddLoss(Loss loss, std::uint64_t count, std::string_view detail = {}, std::uint32_t thread = schema::kNone) {
    AddLoss(loss, Seen{{}, count}, detail, thread);
  }

  // Recording was switched on or off, in order of time. Windows belong to the slot: every process gets the marks of
  // all. `end_ns`: the end of a window that was never closed.
  struct WindowMark {
    std::int64_t ns, step;
    WindowCause cause;
    bool on, cut;
  };
  const std::vector<WindowMark>& window_marks() const { return window_marks_; }
  // After Decode, once.
  void MakeWindows(const std::vector<WindowMark>& marks, std::int64_t end_ns);
  void CountLosses();

  // From the first record to the last sign of life.
  const Extent& life() const { return life_; }
  std::uint64_t extrapolated() const { return extrapolated_; }
  std::uint64_t missing_slots() const { return missing_slots_; }  // Slots of rings that are in no block.
  GpuRecords& gpu() { return gpu_; }
  const NcclRecords& nccl() const { return nccl_; }

 private:
  struct Thread {
    DecoderThread input;
    std::uint32_t row;
    TickConverter clock;
    std::vector<std::uint32_t> strings;  // The thread's id -> row of strings.
    Extent life;
    Seen dropped;
    std::uint64_t records = 0, cut_texts = 0, step_marks = 0;
    std::uint64_t blocking_calls = 0;  // Of MPI, that communicate.
    // The thread's last call of MPI, if that is a probe that found a message.
    struct {
      std::uint32_t comm = kNoComm;
      std::int32_t peer = -1, tag = -1;  // As asked for; -2 any.
      std::int64_t begin_ns = 0, end_ns = 0;
    } probe;
    // The thread's last calls of MPI, if these are polls that found nothing, one soon after the other.
    struct Polls {
      std::uint16_t op = 0;     // MpiOp of the last record; 0: there are none.
      std::uint32_t call = 0;   // Its row of mpi_calls.
      std::int64_t row_ns = 0;  // Begin of that row.
      std::int64_t begin_ns = 0, end_ns = 0;
      std::int64_t between_ns = 0;  // Of that outside of calls.
      bool messages = false;        // MPI_Iprobe asked.
      // Of the requests that were asked for, as PollRecord has them; if they are too many, or not told, any.
      bool any = false;
      std::vector<std::uint64_t> requests;
      void Add(std::uint64_t request);
      // Whether a call that begins then goes on with it.
      bool GoesOn(std::int64_t next_ns) const;
      bool Asked(std::uint64_t request) const;
    } polls;
    bool gpu_source = false;  // A thread of the probe itself, which wrote what a GPU library reported.
    std::uint32_t name = schema::kNone;

    // The next record to be decoded in order of time, and the completions that belong to it.
    std::int64_t turn = 0;  // Ticks.
    std::span<const std::byte> record;
    std::vector<CompletionRecord> follow;
  };
  struct StepMark {
    std::int64_t index, ns, cpu_ns;
    std::uint32_t others_cpu_us;  // As in StepRecord.
    std::uint32_t thread;
    std::uint8_t source;
    bool ends;
  };
  // How a persistent request was made.
  struct Persistent {
    MpiRecord init;
    std::uint32_t starts;
    std::uint32_t channel = 0;  // Of a partitioned message: the how many-th of its communicator, partner and tag.
  };

  // process_decoder.cc: visiting records.
  bool Advance(Thread& thread);
  void TakeAtOnce(Thread& thread, RecordKind kind, std::span<const std::byte> bytes);
  void TakeFollow(Thread& thread);
  void Visit(Thread& thread);
  void OnString(Thread& thread, std::span<const std::byte> bytes);
  void OnGap(Thread& thread, const GapRecord& record);
  void OnStep(Thread& thread, const StepRecord& record);
  std::uint32_t TextOfThread(const Thread& thread, std::uint32_t id) const;
  void DecodeLeftOpen(Thread& thread, std::int64_t last_ns);
  void FinishThreads(std::vector<Thread>& threads, std::uint32_t process_row, std::int64_t main_tid);
  static bool Slept(Thread& thread, const Extent& meanwhile);
  // Adds rows for threads that only occur in GPU records; they follow `threads`.
  void AddThreadsWithoutRing(const std::vector<Thread>& threads, std::uint32_t process_row, std::uint32_t training);

  // decode_ranges.cc
  void OnRange(Thread& thread, std::span<const std::byte> bytes);
  void OnRangeStart(Thread& thread, std::span<const std::byte> bytes);
  void OnRangeEnd(Thread& thread, const RangeRecord& record);
  void OnDomain(Thread& thread, std::span<const std::byte> bytes);
  void OnCategory(Thread& thread, std::span<const std::byte> bytes);
  void DecodeOpenRanges(Thread& thread, std::int64_t last_ns);
  void PairRanges(std::int64_t last_ns);  // Start/end ranges.
  void NameShapes();
  void NameDomains();  // And categories. Until then ranges.domain holds the process's numbers.
  std::uint32_t NameOf(const Thread& thread) const;

  // decode_windows.cc
  void OnWindow(Thread& thread, const WindowRecord& record);
  void ExtendStepRanges();
  void OrderMarks();
  void KeepWholeSteps();
  void DropRangesOutside();
  void TellFirstKernels();

  // decode_blocked.cc
  void OnBlocked(Thread& thread, const BlockedRecord& record);
  void FinishBlocked();

  // decode_losses.cc
  void OnLoss(Thread& thread, const LossRecord& record);
  void AddToldLosses();

  // facts.cc
  void OnFact(Thread& thread, std::span<const std::byte> bytes);
  void OnMemory(Thread& thread, const MemoryRecord& record);

  // decode_mpi.cc: calls and operations.
  void OnMpi(Thread& thread, const MpiRecord& record);
  void OnPoll(Thread& thread, const PollRecord& record);
  void OnComm(Thread& thread, std::span<const std::byte> bytes);
  std::uint32_t AddCall(const Thread& thread, const MpiRecord& record, std::int64_t begin_ns, std::int64_t end_ns);
  void AddCollective(const Thread& thread, const MpiRecord& record, std::uint8_t mode, std::uint32_t start,
                     std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t call);
  bool AddP2p(const Thread& thread, const MpiRecord& record, bool receive, std::uint8_t mode,
              const CompletionRecord* status, std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t call);
  void Post(const Thread& thread, const MpiRecord& record, const MpiOpInfo& info, std::int64_t begin_ns,
            std::int64_t end_ns, std::uint32_t call);
  void Start(const Thread& thread, const MpiRecord& record, std::uint64_t handle, std::uint64_t nth,
             std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t call);
  // `since_ns`: when the thread began to ask for it, by this call or by polls before it.
  void Complete(const Thread& thread, std::uint64_t handle, const CompletionRecord* completion, std::int64_t since_ns,
                std::int64_t begin_ns, std::int64_t end_ns);
  void Incomplete(std::uint64_t handle, std::int64_t ns);
  void Ready(std::uint64_t handle, std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t call);
  OpenRequests::Operation PostBoth(const Thread& thread, const MpiRecord& record, std::int64_t begin_ns,
                                   std::int64_t end_ns, std::uint32_t call);
  Persistent MadePersistent(const MpiRecord& init);
  void Free(std::uint64_t handle);
  // decode_open_call.cc
  void AddOpenCall(const RingState& state, std::int64_t begin_ns);
  void AddAwaited(const OpenCall& open, const OpenCallFact& call);
  void AddOpenCallFact(const OpenCallFact& call);
  std::uint32_t CommRow(std::uint32_t number, std::int64_t ns);

  // Row of stacks; kNone: not known.
  std::uint32_t StackOf(std::uint32_t call_stack) const {
    const auto at = call_stacks_.find(call_stack);
    return at == call_stacks_.end() ? schema::kNone : at->second;
  }

  // decode_torch.cc
  void OnTorchBegin(Thread& thread, std::span<const std::byte> bytes);
  void OnTorchEnd(Thread& thread, std::span<const std::byte> bytes);

  // decode_finish.cc: steps of decoding that need all rows.
  void MakeSteps();
  void NumberMessages();
  void FindPeers();
  void SortTables();

  struct ToldLoss {
    Seen seen;
    std::uint32_t thread = schema::kNone;  // The only one that reported it.
  };

  schema::RankTables& tables_;
  StringInterner<schema::Strings, schema::StringBytes> strings_;
  const TickMap& map_;
  GpuRecords gpu_;
  NcclRecords nccl_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, ToldLoss> told_losses_;  // Rows of strings: name, detail.

  std::unordered_map<std::uint32_t, std::uint32_t> call_stacks_;
  std::vector<std::uint32_t> waker_tids_;  // By row of blocked.

  OpenRequests requests_;
  std::unordered_map<std::uint64_t, Persistent> persistent_;
  // Partitioned messages made so far, by communicator's number, partner, tag and whether they are received.
  std::map<std::tuple<std::uint32_t, std::int32_t, std::int32_t, bool>, std::uint32_t> partitioned_;
  struct Comm {
    std::uint32_t row;
    bool defined, freed;
  };
  std::unordered_map<std::uint32_t, Comm> comms_;
  struct TorchWork {
    std::uint32_t row;
    bool message;  // A row of p2p, else of collectives.
  };
  std::unordered_map<std::uint64_t, TorchWork> torch_works_;  // That have not ended, by number.
  std::unordered_map<std::uint64_t, std::uint32_t>
      torch_from_any_;  // Rows of p2p by work, of which the source may be told.
  std::vector<StepMark> marks_;
  // Row of p2p -> when its matched probe returned, or when it was called after another probe.
  std::unordered_map<std::uint32_t, std::int64_t> probed_ns_;
  std::vector<WindowMark> window_marks_;
  std::unordered_map<std::string, std::uint32_t> facts_;      // Those that became rows of meta, by name.
  std::unordered_map<std::uint32_t, std::uint32_t> domains_;  // The process's number -> row of strings.
  struct RangeEnding {
    std::int64_t ns;
    bool forgotten;
  };
  std::unordered_map<std::uint64_t, std::size_t> started_ranges_;  // Id -> row of ranges.
  std::unordered_map<std::uint64_t, RangeEnding> range_endings_;   // Threads' records are not read in order of time.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>
      categories_;                                                 // Domain's number, id -> row of strings.
  std::unordered_map<std::uint32_t, std::uint32_t> thread_names_;  // By tid: names given by other threads.

  Extent life_;
  std::uint64_t extrapolated_ = 0, missing_slots_ = 0;
  std::uint64_t unknown_records_ = 0, unknown_requests_ = 0, undefined_comms_ = 0, open_ranges_ = 0;
};

}  // namespace lockstep::trace
