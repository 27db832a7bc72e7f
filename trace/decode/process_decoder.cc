// Visits all threads' records in order of time.

#include "trace/decode/process_decoder.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <unordered_set>

#include "core/poll_records.h"
#include "core/torch_records.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

constexpr std::uint32_t kMaxThreadStrings = 1u << 20;

// The time at which the record is decoded among those of all threads; empty: it is decoded when its thread is read.
std::optional<std::int64_t> TurnOf(RecordKind kind, std::span<const std::byte> bytes) {
  const auto ticks = [](std::uint64_t of_record) { return static_cast<std::int64_t>(of_record); };
  switch (kind) {
    case RecordKind::kMpi: {
      const auto call = LoadRecord<MpiRecord>(bytes);
      // A handle is given somewhere inside the call that makes a request, and given back somewhere inside the call that
      // ends it. So a thread that was interrupted early in the one can get the handle that another thread gave back
      // meanwhile. With the end of the one and the begin of the other, the requests of a handle are in order.
      return ticks(MakesRequest(call) ? call.end_ticks : call.begin_ticks);
    }
    case RecordKind::kPoll:
      return ticks(LoadRecord<PollRecord>(bytes).first_ticks);
    case RecordKind::kComm:
      return ticks(LoadRecord<CommRecord>(bytes).ticks);
    case RecordKind::kStep:
      return ticks(LoadRecord<StepRecord>(bytes).ticks);
    case RecordKind::kGap:
      return ticks(LoadRecord<GapRecord>(bytes).last_ticks);
    case RecordKind::kWindow:
      return ticks(LoadRecord<WindowRecord>(bytes).ticks);
    case RecordKind::kTorchBegin:
      return ticks(LoadRecord<TorchBeginRecord>(bytes).ticks);
    case RecordKind::kTorchEnd:
      return ticks(LoadRecord<TorchEndRecord>(bytes).ticks);
    default:
      return std::nullopt;
  }
}

}  // namespace

ProcessDecoder::ProcessDecoder(schema::RankTables& tables, const TickMap& map)
    : tables_(tables),
      strings_(tables.strings, tables.string_bytes),
      map_(map),
      gpu_(*this, tables),
      nccl_(*this, tables) {}

void ProcessDecoder::AddLoss(Loss loss, const Seen& seen, std::string_view detail, std::uint32_t thread) {
  if (seen.count == 0) return;
  tables_.losses.Append({.name = Intern(Info(loss).name),
                         .count = seen.count,
                         .first_ns = seen.first_ns,
                         .last_ns = seen.last_ns,
                         .thread = thread,
                         .detail = detail.empty() ? kNone : Intern(detail)});
}

std::uint32_t ProcessDecoder::TextOfThread(const Thread& thread, std::uint32_t id) const {
  return id < thread.strings.size() ? thread.strings[id] : kNone;
}

void ProcessDecoder::OnString(Thread& thread, std::span<const std::byte> bytes) {
  const auto record = LoadRecord<StringRecord>(bytes);
  const std::string_view text = RecordText(bytes);
  if ((record.head.flags & 1) != 0) ++thread.cut_texts;
  if (record.head.kind == RecordKind::kThreadName) {
    if (record.id == 0)
      thread.name = Intern(text);
    else
      thread_names_[record.id] = Intern(text);
    return;
  }
  if (record.id == 0 || record.id >= kMaxThreadStrings) {
    ++unknown_records_;
    return;
  }
  if (record.id >= thread.strings.size()) thread.strings.resize(record.id + std::size_t{1}, kNone);
  thread.strings[record.id] = Intern(text);
}

void ProcessDecoder::OnGap(Thread& thread, const GapRecord& record) {
  thread.polls = {};  // What lies in it may be another call.
  requests_.MarkGap();
  if (record.records != 0)
    thread.dropped.Add(record.records, thread.clock.Ns(record.first_ticks), thread.clock.Ns(record.last_ticks));
}

// Reads the completions that follow a call or poll directly.
void ProcessDecoder::TakeFollow(Thread& thread) {
  thread.follow.clear();
  for (;;) {
    const std::span<const std::byte> next = thread.input.stream.Peek();
    if (next.empty() || LoadRecord<RecordHead>(next).kind != RecordKind::kCompletion) return;
    thread.follow.push_back(LoadRecord<CompletionRecord>(thread.input.stream.Next()));
    ++thread.records;
  }
}

// Reads up to the next record that is decoded in order of time. Returns false at the end of the stream.
bool ProcessDecoder::Advance(Thread& thread) {
  RecordStream& stream = thread.input.stream;
  for (;;) {
    const std::span<const std::byte> bytes = stream.Next();
    if (stream.TakeHole()) requests_.MarkGap();
    if (bytes.empty()) return false;
    const auto head = LoadRecord<RecordHead>(bytes);
    const std::uint16_t least = MinSlots(head.kind);
    if (least == 0 || head.slots < least) {
      ++unknown_records_;
      continue;
    }
    ++thread.records;
    const std::optional<std::int64_t> turn = TurnOf(head.kind, bytes);
    if (!turn) {
      TakeAtOnce(thread, head.kind, bytes);
      continue;
    }
    thread.turn = *turn;
    thread.record = bytes;
    if (head.kind == RecordKind::kMpi || head.kind == RecordKind::kPoll) TakeFollow(thread);
    return true;
  }
}

void ProcessDecoder::TakeAtOnce(Thread& thread, RecordKind kind, std::span<const std::byte> bytes) {
  switch (kind) {
    case RecordKind::kRange:
    case RecordKind::kMark:
    case RecordKind::kRangeStartEnd:
      return OnRange(thread, bytes);
    case RecordKind::kRangeStart:
      return OnRangeStart(thread, bytes);
    case RecordKind::kRangeEnd:
      return OnRangeEnd(thread, LoadRecord<RangeRecord>(bytes));
    case RecordKind::kDomain:
      return OnDomain(thread, bytes);
    case RecordKind::kCategory:
      return OnCategory(thread, bytes);
    case RecordKind::kFact:
      return OnFact(thread, bytes);
    case RecordKind::kMemory:
      return OnMemory(thread, LoadRecord<MemoryRecord>(bytes));
    case RecordKind::kLoss:
      return OnLoss(thread, LoadRecord<LossRecord>(bytes));
    case RecordKind::kBlocked:
      return OnBlocked(thread, LoadRecord<BlockedRecord>(bytes));
    case RecordKind::kString:
    case RecordKind::kThreadName:
      return OnString(thread, bytes);
    case RecordKind::kCpu: {
      const auto cpu = LoadRecord<CpuRecord>(bytes);
      const std::int64_t ns = thread.clock.Ns(cpu.ticks);
      thread.life.Cover(ns, ns);
      tables_.cpu_samples.Append(
          {.time_ns = ns, .thread = thread.row, .cpu_ns = cpu.cpu_ns, .run_delay_ns = cpu.run_delay_ns});
      return;
    }
    case RecordKind::kGpuKernel:
    case RecordKind::kGpuShape:
    case RecordKind::kGpuCopy:
    case RecordKind::kGpuSync:
    case RecordKind::kGpuApi:
    case RecordKind::kGpuDevice:
    case RecordKind::kGpuOverhead:
    case RecordKind::kGpuMemory:
      thread.gpu_source = true;
      return gpu_.Add(kind, bytes, {thread.row, thread.clock, thread.strings});
    case RecordKind::kNcclBegin:
    case RecordKind::kNcclEnd:
    case RecordKind::kNcclCall:
    case RecordKind::kNcclComm: {
      const Interval times = nccl_.Add(kind, bytes, {thread.row, thread.clock, thread.strings});
      return thread.life.Cover(times.begin, times.end);
    }
    case RecordKind::kCompletion:
      ++unknown_requests_;  // Its call was lost.
      return;
    case RecordKind::kCallStack:  // Its agent has found out what it is (SpoolKind::kCallStacks).
    case RecordKind::kPad:        // RecordStream skips padding; the others are decoded in order of time.
    case RecordKind::kMpi:
    case RecordKind::kPoll:
    case RecordKind::kComm:
    case RecordKind::kStep:
    case RecordKind::kGap:
    case RecordKind::kWindow:
    case RecordKind::kTorchBegin:
    case RecordKind::kTorchEnd:
      return;
  }
}

void ProcessDecoder::Visit(Thread& thread) {
  const std::span<const std::byte> bytes = thread.record;
  switch (LoadRecord<RecordHead>(bytes).kind) {
    case RecordKind::kMpi:
      return OnMpi(thread, LoadRecord<MpiRecord>(bytes));
    case RecordKind::kPoll:
      return OnPoll(thread, LoadRecord<PollRecord>(bytes));
    case RecordKind::kComm:
      return OnComm(thread, bytes);
    case RecordKind::kGap:
      return OnGap(thread, LoadRecord<GapRecord>(bytes));
    case RecordKind::kWindow:
      return OnWindow(thread, LoadRecord<WindowRecord>(bytes));
    case RecordKind::kTorchBegin:
      return OnTorchBegin(thread, bytes);
    case RecordKind::kTorchEnd:
      return OnTorchEnd(thread, bytes);
    default:
      return OnStep(thread, LoadRecord<StepRecord>(bytes));
  }
}

void ProcessDecoder::OnStep(Thread& thread, const StepRecord& record) {
  const std::int64_t ns = thread.clock.Ns(record.ticks);
  thread.life.Cover(ns, ns);
  ++thread.step_marks;
  marks_.push_back({record.index, ns, record.cpu_ns, record.others_cpu_us, thread.row,
                    static_cast<std::uint8_t>(record.head.flags & 0x7f), (record.head.flags & 0x80) != 0});
}

// Records what the thread was doing at its last sign of life.
void ProcessDecoder::DecodeLeftOpen(Thread& thread, std::int64_t last_ns) {
  const RingState& state = thread.input.left_open;
  if (!state.known) return;
  if (state.polls.calls != 0) {
    WritePolls(state.polls, [&](const auto* records, std::uint32_t slots) {
      thread.follow.assign(records->pending, records->pending + slots - 1);
      OnPoll(thread, records->poll);
    });
    thread.follow.clear();
  }
  DecodeOpenRanges(thread, last_ns);
  if (state.call_op != 0 && state.call_begin_ticks != 0) {
    const std::int64_t begin = thread.clock.Ns(state.call_begin_ticks);
    thread.life.Cover(begin, begin);
    tables_.mpi_calls.Append({.begin_ns = begin,
                              .duration_ns = DurationNs(begin, last_ns),
                              .thread = thread.row,
                              .op = static_cast<std::uint16_t>(state.call_op),
                              .comm = kNone,
                              .bytes = 0,
                              .peer = -1,
                              .tag = -1,
                              .count = 1,
                              .outcome = schema::CallOutcome::kNotReturned});
    AddOpenCall(state, begin);
  }
  if (state.from_segment && state.dropped_records != 0)
    OnGap(thread,
          {{RecordKind::kGap, 0, 1}, 0, state.dropped_first_ticks, state.dropped_last_ticks, state.dropped_records});
}

void ProcessDecoder::Decode(std::vector<DecoderThread> inputs, std::uint32_t process_row, std::int64_t main_tid,
                            std::uint64_t last_sign_ticks) {
  std::vector<Thread> threads;
  threads.reserve(inputs.size());
  for (DecoderThread& input : inputs)
    threads.push_back(
        {.input = std::move(input), .row = static_cast<std::uint32_t>(threads.size()), .clock = TickConverter(map_)});

  // The thread with the earliest record comes first; equal times in order of the threads.
  using Turn = std::pair<std::int64_t, std::uint32_t>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  for (Thread& thread : threads) {
    thread.input.stream.Seal();
    if (Advance(thread)) turns.emplace(thread.turn, thread.row);
  }
  while (!turns.empty()) {
    Thread& thread = threads[turns.top().second];
    turns.pop();
    // Mostly one thread has many records in a row, which do not go through the queue.
    bool more = true;
    do {
      Visit(thread);
      more = Advance(thread);
    } while (more && (turns.empty() || Turn(thread.turn, thread.row) <= turns.top()));
    if (more) turns.emplace(thread.turn, thread.row);
  }

  if (last_sign_ticks != 0) life_.last_ns = TickConverter(map_).Ns(last_sign_ticks);
  for (Thread& thread : threads) {
    for (const DecoderThread::Cpu& cpu : thread.input.cpu) {
      const std::int64_t ns = thread.clock.Ns(cpu.ticks);
      tables_.cpu_samples.Append(
          {.time_ns = ns, .thread = thread.row, .cpu_ns = cpu.cpu_ns, .run_delay_ns = cpu.run_delay_ns});
      life_.Cover(kNoTime, ns);
    }
    const RingState& state = thread.input.left_open;
    if (state.known && state.call_op != 0 && state.call_begin_ticks != 0)
      life_.Cover(kNoTime, thread.clock.Ns(state.call_begin_ticks));
    if (state.known)
      for (const RingState::OpenRange& range : state.ranges)
        life_.Cover(kNoTime, thread.clock.Ns(range.record.begin_ticks));
    life_.Cover(thread.life);
  }
  life_.Cover(gpu_.life());
  for (Thread& thread : threads) DecodeLeftOpen(thread, life_.last_ns);
  PairRanges(life_.last_ns);
  FinishThreads(threads, process_row, main_tid);
  FinishBlocked();
  ExtendStepRanges();
  OrderMarks();
  MakeSteps();
  NameDomains();
  gpu_.SortAndLink();
  std::int64_t first_switch_ns = INT64_MAX;
  for (const WindowMark& mark : window_marks_) first_switch_ns = std::min(first_switch_ns, mark.ns);
  nccl_.MakeRows(first_switch_ns);
  FindPeers();
  SortTables();
  NumberMessages();
}

// Whether the thread used less than a tenth of a core meanwhile, as far as samples tell.
bool ProcessDecoder::Slept(Thread& thread, const Extent& meanwhile) {
  std::int64_t span_ns = 0, cpu_ns = 0, last_ns = kNoTime, last_cpu_ns = 0;
  for (const DecoderThread::Cpu& cpu : thread.input.cpu) {
    const std::int64_t ns = thread.clock.Ns(cpu.ticks);
    if (ns < meanwhile.first_ns || ns > meanwhile.last_ns) continue;
    if (last_ns != kNoTime) span_ns += ns - last_ns, cpu_ns += cpu.cpu_ns - last_cpu_ns;
    last_ns = ns;
    last_cpu_ns = cpu.cpu_ns;
  }
  return 10 * cpu_ns <= span_ns;
}

// The training thread is the one that marks steps. Without marks it is main, unless that sleeps while another thread
// communicates: then it only waits for that thread's end. Several that communicate may each make as many calls as main.
void ProcessDecoder::FinishThreads(std::vector<Thread>& threads, std::uint32_t process_row, std::int64_t main_tid) {
  std::uint32_t training = threads.empty() ? kNone : 0;
  std::uint64_t most_marks = 0;
  for (std::size_t i = threads.size(); i-- > 0;)
    if (!threads[i].gpu_source) training = threads[i].row;
  const std::vector<std::uint32_t>& tids = gpu_.tids();
  std::uint32_t extra = static_cast<std::uint32_t>(threads.size());
  std::unordered_set<std::int64_t> with_ring;
  for (const Thread& thread : threads) with_ring.insert(thread.input.tid);
  for (const std::uint32_t tid : tids) {
    if (with_ring.contains(tid)) continue;
    if (tid == main_tid) training = extra;
    ++extra;
  }
  Thread *main = nullptr, *most = nullptr;
  for (Thread& thread : threads) {
    if (thread.input.tid == main_tid) main = &thread;
    if (most == nullptr || thread.blocking_calls > most->blocking_calls) most = &thread;
  }
  if (main != nullptr) training = main->row;
  if (most != nullptr && most->blocking_calls > (main == nullptr ? 0 : 2 * main->blocking_calls) &&
      (main == nullptr || Slept(*main, most->life)))
    training = most->row;
  for (const Thread& thread : threads) {
    if (thread.step_marks <= most_marks) continue;
    most_marks = thread.step_marks;
    training = thread.row;
  }
  for (Thread& thread : threads) {
    tables_.threads.Append({.thread = thread.row,
                            .process = process_row,
                            .tid = thread.input.tid,
                            .name = NameOf(thread),
                            .begin_ns = thread.life.first_ns,
                            .end_ns = thread.life.last_ns,
                            .records = thread.records,
                            .dropped = thread.dropped.count,
                            .training = thread.row == training});
    const RecordStream& stream = thread.input.stream;
    AddLoss(Loss::kRingFull, thread.dropped, {}, thread.row);
    AddLoss(Loss::kStringTruncated, thread.cut_texts, {}, thread.row);
    missing_slots_ += stream.missing_slots();
    unknown_records_ += stream.broken_records();
    extrapolated_ += thread.clock.extrapolated();
  }
  AddThreadsWithoutRing(threads, process_row, training);
}

void ProcessDecoder::AddThreadsWithoutRing(const std::vector<Thread>& threads, std::uint32_t process_row,
                                           std::uint32_t training) {
  std::unordered_multimap<std::int64_t, GpuRecords::ThreadLife> lives;
  for (const Thread& thread : threads) lives.emplace(thread.input.tid, GpuRecords::ThreadLife{thread.row, thread.life});
  for (const std::uint32_t tid : gpu_.tids()) {
    if (lives.contains(tid)) continue;
    const auto row = static_cast<std::uint32_t>(tables_.threads.rows());
    const Extent life = gpu_.HostLife(tid);
    lives.emplace(tid, GpuRecords::ThreadLife{row, life});
    const auto named = thread_names_.find(tid);
    tables_.threads.Append({.thread = row,
                            .process = process_row,
                            .tid = tid,
                            .name = named == thread_names_.end() ? kNone : named->second,
                            .begin_ns = life.first_ns,
                            .end_ns = life.last_ns,
                            .records = 0,
                            .dropped = 0,
                            .training = row == training});
  }
  gpu_.ResolveThreads(lives);
}

}  // namespace lockstep::trace
