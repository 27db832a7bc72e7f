// The walk over all threads' records, in order of time.

#include "trace/decode/process_decoder.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string>
#include <unordered_set>

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

constexpr std::uint32_t kMaxThreadStrings = 1u << 20;

}  // namespace

ProcessDecoder::ProcessDecoder(schema::RankTables& tables, const TickMap& map)
    : tables_(tables),
      strings_(tables.strings, tables.string_bytes),
      map_(map),
      gpu_(*this, tables),
      nccl_(*this, tables) {}

void ProcessDecoder::AddLoss(Loss loss, std::uint64_t count, std::int64_t first_ns, std::int64_t last_ns,
                             std::uint32_t thread, std::string_view detail) {
  if (count == 0) return;
  tables_.losses.Append({.name = Intern(Info(loss).name),
                         .count = count,
                         .first_ns = first_ns,
                         .last_ns = last_ns,
                         .thread = thread,
                         .detail = detail.empty() ? kNone : Intern(detail)});
}

void ProcessDecoder::Touch(Thread& thread, std::int64_t begin_ns, std::int64_t end_ns) {
  if (thread.first_ns == kNoTime || begin_ns < thread.first_ns) thread.first_ns = begin_ns;
  if (thread.last_ns == kNoTime || end_ns > thread.last_ns) thread.last_ns = end_ns;
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
  requests_.MarkGap();
  if (record.records == 0) {
    ++thread.pauses;
    return;
  }
  const std::int64_t first = thread.clock.Ns(record.first_ticks), last = thread.clock.Ns(record.last_ticks);
  thread.dropped += record.records;
  if (thread.dropped_first_ns == kNoTime || first < thread.dropped_first_ns) thread.dropped_first_ns = first;
  if (thread.dropped_last_ns == kNoTime || last > thread.dropped_last_ns) thread.dropped_last_ns = last;
}

// The completions that follow a call or poll at once.
void ProcessDecoder::TakeFollow(Thread& thread) {
  thread.follow.clear();
  for (;;) {
    const std::span<const std::byte> next = thread.input.stream.Peek();
    if (next.empty() || LoadRecord<RecordHead>(next).kind != RecordKind::kCompletion) return;
    thread.follow.push_back(LoadRecord<CompletionRecord>(thread.input.stream.Next()));
    ++thread.records;
  }
}

// Up to the next record whose turn is decided by its time among all threads'.
// False at the end of the stream.
bool ProcessDecoder::Advance(Thread& thread) {
  for (;;) {
    const std::span<const std::byte> bytes = thread.input.stream.Next();
    if (thread.input.stream.TakeHole()) requests_.MarkGap();
    if (bytes.empty()) return false;
    const auto head = LoadRecord<RecordHead>(bytes);
    const std::uint16_t least = MinSlots(head.kind);
    if (least == 0 || head.slots < least) {
      ++unknown_records_;
      continue;
    }
    ++thread.records;
    thread.kind = head.kind;
    switch (head.kind) {
      case RecordKind::kPad:
        --thread.records;
        continue;
      case RecordKind::kRange:
      case RecordKind::kMark:
      case RecordKind::kRangeStartEnd:
        OnRange(thread, bytes);
        continue;
      case RecordKind::kRangeStart:
        OnRangeStart(thread, bytes);
        continue;
      case RecordKind::kRangeEnd:
        OnRangeEnd(thread, LoadRecord<RangeRecord>(bytes));
        continue;
      case RecordKind::kDomain:
        OnDomain(thread, bytes);
        continue;
      case RecordKind::kLoss:
        OnLoss(thread, LoadRecord<LossRecord>(bytes));
        continue;
      case RecordKind::kGpuKernel:
      case RecordKind::kGpuShape:
      case RecordKind::kGpuCopy:
      case RecordKind::kGpuSync:
      case RecordKind::kGpuApi:
      case RecordKind::kGpuDevice:
      case RecordKind::kGpuOverhead:
      case RecordKind::kGpuMemory:
        thread.gpu_source = true;
        gpu_.Add(head.kind, bytes, {thread.row, thread.clock, thread.strings});
        continue;
      case RecordKind::kNcclBegin:
      case RecordKind::kNcclEnd:
      case RecordKind::kNcclCall:
      case RecordKind::kNcclComm: {
        const Interval times = nccl_.Add(head.kind, bytes, {thread.row, thread.clock, thread.strings});
        Touch(thread, times.begin, times.end);
        continue;
      }
      case RecordKind::kCategory:
        OnCategory(thread, bytes);
        continue;
      case RecordKind::kFact:
        OnFact(thread, bytes);
        continue;
      case RecordKind::kMemory:
        OnMemory(thread, LoadRecord<MemoryRecord>(bytes));
        continue;
      case RecordKind::kString:
      case RecordKind::kThreadName:
        OnString(thread, bytes);
        continue;
      case RecordKind::kCpu: {
        const auto cpu = LoadRecord<CpuRecord>(bytes);
        const std::int64_t ns = thread.clock.Ns(cpu.ticks);
        Touch(thread, ns, ns);
        tables_.cpu_samples.Append(
            {.time_ns = ns, .thread = thread.row, .cpu_ns = cpu.cpu_ns, .run_delay_ns = cpu.run_delay_ns});
        continue;
      }
      case RecordKind::kCompletion:
        ++unknown_requests_;
        continue;  // Its call was lost.
      case RecordKind::kMpi:
        thread.mpi = LoadRecord<MpiRecord>(bytes);
        thread.key = static_cast<std::int64_t>(thread.mpi.begin_ticks);
        TakeFollow(thread);
        return true;
      case RecordKind::kPoll:
        thread.poll = LoadRecord<PollRecord>(bytes);
        thread.key = static_cast<std::int64_t>(thread.poll.first_ticks);
        TakeFollow(thread);
        return true;
      case RecordKind::kComm:
        thread.comm = LoadRecord<CommRecord>(bytes);
        thread.comm_members = bytes.subspan(2 * kSlotBytes);
        thread.key = static_cast<std::int64_t>(thread.comm.ticks);
        return true;
      case RecordKind::kStep:
        thread.step = LoadRecord<StepRecord>(bytes);
        thread.key = static_cast<std::int64_t>(thread.step.ticks);
        return true;
      case RecordKind::kGap:
        thread.gap = LoadRecord<GapRecord>(bytes);
        thread.key = static_cast<std::int64_t>(thread.gap.last_ticks);
        return true;
      case RecordKind::kWindow:
        thread.window = LoadRecord<WindowRecord>(bytes);
        thread.key = static_cast<std::int64_t>(thread.window.ticks);
        return true;
    }
  }
}

void ProcessDecoder::Visit(Thread& thread) {
  switch (thread.kind) {
    case RecordKind::kMpi:
      OnMpi(thread, thread.mpi);
      break;
    case RecordKind::kPoll:
      OnPoll(thread, thread.poll);
      break;
    case RecordKind::kComm:
      OnComm(thread, thread.comm);
      break;
    case RecordKind::kGap:
      OnGap(thread, thread.gap);
      break;
    case RecordKind::kWindow:
      OnWindow(thread, thread.window);
      break;
    case RecordKind::kStep: {
      const StepRecord& step = thread.step;
      const std::int64_t ns = thread.clock.Ns(step.ticks);
      Touch(thread, ns, ns);
      ++thread.step_marks;
      marks_.push_back({step.index, ns, step.cpu_ns, thread.row, static_cast<std::uint8_t>(step.head.flags & 0x7f),
                        (step.head.flags & 0x80) != 0});
      break;
    }
    default:
      break;
  }
}

// What the thread was doing when it was last heard of.
void ProcessDecoder::DecodeLeftOpen(Thread& thread, std::int64_t last_ns) {
  const RingState& state = thread.input.left_open;
  if (!state.known) return;
  if (state.poll_calls != 0) {
    thread.follow.clear();
    const PollRecord poll{
        {RecordKind::kPoll, 0, 1}, state.poll_calls, state.poll_first_ticks, state.poll_last_ticks, state.poll_key};
    OnPoll(thread, poll);
  }
  DecodeOpenRanges(thread, last_ns);
  if (state.call_op != 0 && state.call_begin_ticks != 0) {
    const std::int64_t begin = thread.clock.Ns(state.call_begin_ticks);
    Touch(thread, begin, begin);
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

  // Thread with the earliest record first; equal times in order of the threads.
  using Turn = std::pair<std::int64_t, std::uint32_t>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  for (Thread& thread : threads) {
    thread.input.stream.Seal();
    if (Advance(thread)) turns.emplace(thread.key, thread.row);
  }
  while (!turns.empty()) {
    Thread& thread = threads[turns.top().second];
    turns.pop();
    // Mostly one thread has many records in a row: no queue for those.
    bool more = true;
    do {
      Visit(thread);
      more = Advance(thread);
    } while (more && (turns.empty() || Turn(thread.key, thread.row) <= turns.top()));
    if (more) turns.emplace(thread.key, thread.row);
  }

  TickConverter clock(map_);
  last_ns_ = last_sign_ticks != 0 ? clock.Ns(last_sign_ticks) : kNoTime;
  for (Thread& thread : threads) {
    for (const DecoderThread::Cpu& cpu : thread.input.cpu) {
      const std::int64_t ns = thread.clock.Ns(cpu.ticks);
      tables_.cpu_samples.Append(
          {.time_ns = ns, .thread = thread.row, .cpu_ns = cpu.cpu_ns, .run_delay_ns = cpu.run_delay_ns});
      last_ns_ = std::max(last_ns_, ns);
    }
    const RingState& state = thread.input.left_open;
    if (state.known && state.call_op != 0 && state.call_begin_ticks != 0)
      last_ns_ = std::max(last_ns_, thread.clock.Ns(state.call_begin_ticks));
    if (state.known)
      for (const RingState::OpenRange& range : state.ranges)
        last_ns_ = std::max(last_ns_, thread.clock.Ns(range.record.begin_ticks));
    if (thread.first_ns != kNoTime && (first_ns_ == kNoTime || thread.first_ns < first_ns_))
      first_ns_ = thread.first_ns;
    last_ns_ = std::max(last_ns_, thread.last_ns);  // kNoTime is less than any time.
  }
  if (gpu_.first_ns() != kNoTime && (first_ns_ == kNoTime || gpu_.first_ns() < first_ns_)) first_ns_ = gpu_.first_ns();
  last_ns_ = std::max(last_ns_, gpu_.last_ns());
  for (Thread& thread : threads) DecodeLeftOpen(thread, last_ns_);
  PairRanges(last_ns_);
  FinishThreads(threads, process_row, main_tid);
  ExtendStepRanges();
  OrderMarks();
  MakeSteps();
  NameDomains();
  gpu_.SortAndLink();
  nccl_.MakeRows();
  FindPeers();
  SortTables();
  NumberMessages();
}

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
  for (const Thread& thread : threads)
    if (thread.input.tid == main_tid) training = thread.row;
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
                            .begin_ns = thread.first_ns,
                            .end_ns = thread.last_ns,
                            .records = thread.records,
                            .dropped = thread.dropped,
                            .training = thread.row == training});
    const RecordStream& stream = thread.input.stream;
    AddLoss(Loss::kRingFull, thread.dropped, thread.dropped_first_ns, thread.dropped_last_ns, thread.row);
    AddLoss(Loss::kStringTruncated, thread.cut_texts, kNoTime, kNoTime, thread.row);
    missing_slots_ += stream.missing_slots();
    unknown_records_ += stream.broken_records();
    extrapolated_ += thread.clock.extrapolated();
  }
  AddThreadsWithoutRing(threads, process_row, training);
}

void ProcessDecoder::AddThreadsWithoutRing(const std::vector<Thread>& threads, std::uint32_t process_row,
                                           std::uint32_t training) {
  std::unordered_multimap<std::int64_t, GpuRecords::ThreadLife> lives;
  for (const Thread& thread : threads)
    lives.emplace(thread.input.tid, GpuRecords::ThreadLife{thread.row, thread.first_ns, thread.last_ns});
  for (const std::uint32_t tid : gpu_.tids()) {
    if (lives.contains(tid)) continue;
    const auto row = static_cast<std::uint32_t>(tables_.threads.rows());
    const auto [first, last] = gpu_.HostTimes(tid);
    lives.emplace(tid, GpuRecords::ThreadLife{row, first, last});
    const auto named = thread_names_.find(tid);
    tables_.threads.Append({.thread = row,
                            .process = process_row,
                            .tid = tid,
                            .name = named == thread_names_.end() ? kNone : named->second,
                            .begin_ns = first,
                            .end_ns = last,
                            .records = 0,
                            .dropped = 0,
                            .training = row == training});
  }
  gpu_.ResolveThreads(lives);
}

}  // namespace lockstep::trace