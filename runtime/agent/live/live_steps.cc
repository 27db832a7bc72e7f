#include "runtime/agent/live/live_steps.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/comm_calls.h"
#include "core/comm_kernels.h"
#include "core/gpu_records.h"
#include "core/hash.h"
#include "core/mpi_ops.h"
#include "core/schema_enums.h"
#include "runtime/agent/live/all_wait.h"
#include "runtime/agent/live/record_reader.h"

namespace lockstep::agent {
namespace {

// A sample is taken every few seconds; more records than this between two samples are not worth the memory (10 MB).
constexpr std::size_t kMostKept = std::size_t{1} << 18;
constexpr std::size_t kMostHandles = 4096;
constexpr std::uint8_t kStepEnds = 0x80;

// PollRecord and OpenRequests of trace/ keep the same number of bits of a handle.
std::uint64_t HandleKey(std::uint64_t handle) { return handle & ((std::uint64_t{1} << 52) - 1); }

}  // namespace

void LiveSteps::Reset(std::uint32_t process) {
  const std::int64_t steps = steps_;
  *this = LiveSteps();
  process_ = process;
  steps_ = steps;
}

void LiveSteps::Take(std::uint32_t index, const RingEntry& entry, std::span<const iovec> parts) {
  if (process_ >= 0 && entry.process != process_ && step_ring_ >= 0) return;
  const RecordReader reader(parts);
  Ring* known = nullptr;  // The ring of this index, once the process is known to be the job's.
  RecordHead head;
  for (std::size_t at = 0; reader.Copy(at, &head, sizeof head); at += std::size_t{head.slots} * kSlotBytes) {
    if (head.slots == 0) return;
    // The process that announces steps is followed; before that, the first that communicates.
    if (process_ != entry.process &&
        (head.kind == RecordKind::kStep || (process_ < 0 && head.kind == RecordKind::kComm)))
      Reset(entry.process);
    if (process_ != entry.process) continue;
    if (known == nullptr) {
      known = &rings_[index];
      if (known->generation != entry.generation)
        *known = Ring{.generation = entry.generation, .tid = static_cast<std::uint32_t>(entry.tid)};
    }
    OnRecord(index, *known, head, reader, at);
  }
  KeepWithin();
}

void LiveSteps::OnRecord(std::uint32_t index, Ring& ring, const RecordHead& head, const RecordReader& reader,
                         std::size_t at) {
  const std::size_t bytes = std::size_t{head.slots} * kSlotBytes;
  const auto load = [&](auto& record) { return bytes >= sizeof record && reader.Copy(at, &record, sizeof record); };
  switch (head.kind) {
    case RecordKind::kStep:
      if (StepRecord record; load(record)) OnStep(index, record);
      break;
    case RecordKind::kMpi:
      if (MpiRecord record; load(record)) {
        RecordHead next{};
        reader.Copy(at + bytes, &next, sizeof next);
        OnMpi(index, ring, record, next.kind == RecordKind::kCompletion);
      }
      break;
    case RecordKind::kPoll:
      if (PollRecord record; load(record)) OnPoll(index, ring, record);
      break;
    case RecordKind::kCompletion:
      if (CompletionRecord record; load(record)) OnCompletion(index, ring, record);
      break;
    case RecordKind::kComm:
      if (CommRecord record; load(record)) OnComm(record);
      break;
    case RecordKind::kString: {
      StringRecord record;
      if (!load(record)) break;
      std::string text(std::min<std::size_t>(record.bytes, kMaxStringBytes), '\0');
      if (!reader.Copy(at + sizeof record, text.data(), text.size())) break;
      if (IsCommKernelName(text)) ring.comm_kernels.insert(record.id);
      if (IsDistributedCall(text)) ring.calls.insert(record.id);
      break;
    }
    case RecordKind::kRange:
    case RecordKind::kMark:
      if (RangeRecord record; index == step_ring_ && load(record)) OnRange(ring, record);
      break;
    case RecordKind::kBlocked:
      if (BlockedRecord record; index == step_ring_ && load(record)) helpers_.Blocked(record);
      break;
    case RecordKind::kTorchBegin:
      if (TorchBeginRecord record; load(record)) OnTorchBegin(index, record);
      break;
    case RecordKind::kTorchEnd:
      if (TorchEndRecord record; load(record)) OnTorchEnd(record);
      break;
    case RecordKind::kGpuKernel:
      if (GpuKernelRecord record; load(record)) {
        gpu_ = true;
        kernels_.push_back({{record.begin_ticks, record.end_ticks}, ring.comm_kernels.contains(record.name)});
        last_kernel_ticks_ = std::max(last_kernel_ticks_, record.end_ticks);
      }
      break;
    default:
      break;
  }
}

void LiveSteps::OnStep(std::uint32_t ring, const StepRecord& record) {
  // The steps come from another source or thread, or their numbers begin again.
  if (step_ring_ != ring ||
      (!boundaries_.empty() && record.index <= boundaries_.back().index && (record.head.flags & kStepEnds) == 0)) {
    boundaries_.clear();
    calls_.clear();
    helpers_ = LiveHelpers();
    step_ring_ = ring;
  }
  if (!boundaries_.empty() && (boundaries_.back().head.flags & kStepEnds) == 0) ++steps_;
  boundaries_.push_back(record);
}

void LiveSteps::OnComm(const CommRecord& record) {
  if ((record.head.flags & (kCommFreed | kCommRenamed)) != 0) return;
  const bool known = (record.head.flags & kCommUnidentified) == 0;
  comms_[record.comm] = {known ? record.global_id : 0, record.size};
}

// Takes a range of the thread that marks steps.
void LiveSteps::OnRange(const Ring& ring, const RangeRecord& record) {
  const Ticks ticks{record.begin_ticks, record.end_ticks};
  if (ring.calls.contains(record.name)) calls_.push_back({ticks, false});
  if (helped_ && record.head.flags >> 4 == schema::Category::kInput) helpers_.Input(ticks);
}

void LiveSteps::OnTorchBegin(std::uint32_t index, const TorchBeginRecord& record) {
  if (record.message != kTorchCollective) {
    if (works_.size() < kMostHandles) works_[record.work] = -1;
    return;
  }
  helped_ = true;
  const auto comm = comms_.find(record.comm);
  const bool named = comm != comms_.end() && comm->second.global_id != 0;
  const std::uint32_t members = named ? comm->second.size : 1;
  Hash64 key;
  key.Add(named ? comm->second.global_id : record.ticks);
  key.Add(record.seq);
  const std::int64_t number = first_operation_ + static_cast<std::int64_t>(operations_.size());
  operations_.push_back({.key = key.value(),
                         .ticks = {record.ticks, 0},
                         .end_low = 0,
                         .members = members,
                         .splits = named && AllWait(record, members) ? 1u : 0u,
                         .ring = index,
                         .tid = rings_[index].tid,
                         .blocking = true});
  if (const auto early = ended_early_.find(record.work); early != ended_early_.end()) {
    operations_.back().ticks.end = operations_.back().end_low = early->second;
    ended_early_.erase(early);
  } else if (works_.size() < kMostHandles) {
    works_[record.work] = number;
  }
}

void LiveSteps::OnTorchEnd(const TorchEndRecord& record) {
  if (record.sender != 0) return;
  const auto found = works_.find(record.work);
  if (found == works_.end()) {
    if (ended_early_.size() < kMostHandles) ended_early_[record.work] = record.ticks;
    return;
  }
  const std::int64_t number = found->second - first_operation_;
  works_.erase(found);
  if (number < 0) return;
  Operation& operation = operations_[static_cast<std::size_t>(number)];
  operation.ticks.end = operation.end_low = record.ticks;
}

std::int64_t LiveSteps::Add(std::uint32_t ring, const MpiRecord& record, std::uint32_t start, Ticks ticks) {
  const MpiOpInfo* info = InfoOfMpi(record.op);
  const auto comm = comms_.find(record.comm);
  if (info == nullptr || info->kind == CollectiveKind::kNone) return -1;
  Hash64 key;
  const bool named = comm != comms_.end() && comm->second.global_id != 0;
  key.Add(named ? comm->second.global_id : ticks.begin);
  key.Add(std::uint64_t{record.seq} << 32 | start);
  const bool splits = named && AllWait(record, *info);
  operations_.push_back({.key = key.value(),
                         .ticks = ticks,
                         .end_low = ticks.end,
                         .members = named ? comm->second.size : 1,
                         .splits = splits ? 1u : 0u,
                         .ring = ring,
                         .tid = rings_[ring].tid,
                         .blocking = ticks.end != 0});
  helped_ |= step_ring_ >= 0 && OfHelper(operations_.back());
  return first_operation_ + static_cast<std::int64_t>(operations_.size()) - 1;
}

void LiveSteps::CountCalls(std::uint32_t index, Ring& ring, MpiClass cls, const Calls& calls) {
  if (!IsMpiOther(cls)) {
    ring.mpi_ticks += calls.ticks.end - calls.ticks.begin;
    if (index == step_ring_) calls_.push_back(calls);
  }
}

// A query that found nothing may have moved data for long.
void LiveSteps::OnPoll(std::uint32_t index, Ring& ring, const PollRecord& record) {
  const MpiOpInfo* info = InfoOfMpi(static_cast<std::uint16_t>(record.op_and_request & 0xfff));
  if (info == nullptr || record.last_ticks < record.first_ticks) return;
  CountCalls(index, ring, info->cls, {{record.first_ticks, record.last_ticks}, true});
}

void LiveSteps::OnMpi(std::uint32_t index, Ring& ring, const MpiRecord& record, bool completions_follow) {
  ring.call = record;
  const MpiOpInfo* info = InfoOfMpi(record.op);
  if (info == nullptr) return;
  const bool recorded = (record.head.flags & kMpiUnrecorded) == 0;
  if (recorded) CountCalls(index, ring, info->cls, {{record.begin_ticks, record.end_ticks}, false});
  switch (info->cls) {
    case MpiClass::kCollective:
      if (recorded) Add(index, record, 0, {record.begin_ticks, record.end_ticks});
      break;
    case MpiClass::kCollectiveInit:
    case MpiClass::kSendInit:
    case MpiClass::kRecvInit:
      if (record.request != 0 && persistent_.size() < kMostHandles)
        persistent_[HandleKey(record.request)] = {record, 0};
      break;
    case MpiClass::kStart:
      if (!completions_follow && record.request != 0) Start(index, record, record.request, 0);
      break;
    case MpiClass::kWait:
    case MpiClass::kTest:
      if (!completions_follow && record.request != 0 && (record.head.flags & kMpiNothingCompleted) == 0)
        Complete(record.request, record);
      break;
    case MpiClass::kRequest:
      if (static_cast<MpiOp>(record.op) != MpiOp::kRequest_free || record.request == 0) break;
      if (persistent_.erase(HandleKey(record.request)) == 0) Complete(record.request, record);
      break;
    default:
      if (recorded && record.request != 0 && (record.head.flags & kMpiError) == 0)
        Post(record.request, Add(index, record, 0, {record.begin_ticks, 0}), record.begin_ticks);
      break;
  }
}

void LiveSteps::OnCompletion(std::uint32_t index, Ring& ring, const CompletionRecord& record) {
  if ((record.head.flags & kCompletionStarted) != 0)
    Start(index, ring.call, record.request, record.bytes);
  else if (record.request != 0 && (record.head.flags & kCompletionPending) == 0)
    Complete(record.request, ring.call);
}

void LiveSteps::Start(std::uint32_t ring, const MpiRecord& call, std::uint64_t handle, std::uint64_t nth) {
  const auto made = persistent_.find(HandleKey(handle));
  if (made == persistent_.end()) return;
  Persistent& persistent = made->second;
  persistent.starts = nth != 0 ? static_cast<std::uint32_t>(nth) : persistent.starts + 1;
  if ((call.head.flags & kMpiUnrecorded) != 0) return;
  Post(handle, Add(ring, persistent.init, persistent.starts, {call.begin_ticks, 0}), call.begin_ticks);
}

void LiveSteps::Post(std::uint64_t handle, std::int64_t operation, std::uint64_t at_ticks) {
  if (const auto early = completed_early_.find(HandleKey(handle)); early != completed_early_.end()) {
    const Ticks call = early->second.front();
    early->second.erase(early->second.begin());
    if (early->second.empty()) completed_early_.erase(early);
    if (call.end >= at_ticks) {
      if (operation >= 0) operations_.back().ticks.end = call.end, operations_.back().end_low = call.begin;
      return;
    }
  }
  if (posted_.size() < kMostHandles) posted_[HandleKey(handle)].push_back(operation);
}

void LiveSteps::Complete(std::uint64_t handle, const MpiRecord& call) {
  const auto queue = posted_.find(HandleKey(handle));
  if (queue == posted_.end()) {
    // Waiting for an inactive persistent request completes no operation.
    if (completed_early_.size() < kMostHandles && !persistent_.contains(HandleKey(handle)))
      completed_early_[HandleKey(handle)].push_back({call.begin_ticks, call.end_ticks});
    return;
  }
  const std::int64_t number = queue->second.front() - first_operation_;
  queue->second.erase(queue->second.begin());
  if (queue->second.empty()) posted_.erase(queue);
  if (number < 0) return;
  Operation& operation = operations_[static_cast<std::size_t>(number)];
  operation.ticks.end = call.end_ticks;
  operation.end_low = call.begin_ticks;
}

// If too much arrived since the last sample, the older half is dropped together with its steps.
void LiveSteps::KeepWithin() {
  if (std::max({calls_.size(), operations_.size(), kernels_.size(), helpers_.size()}) <= kMostKept) return;
  std::uint64_t before = 0;
  if (calls_.size() > kMostKept) before = std::max(before, calls_[kMostKept / 2].ticks.begin);
  if (operations_.size() > kMostKept) before = std::max(before, operations_[kMostKept / 2].ticks.begin);
  if (kernels_.size() > kMostKept) before = std::max(before, kernels_[kMostKept / 2].ticks.begin);
  if (helpers_.size() > kMostKept) before = std::max(before, helpers_.end_ticks(kMostKept / 2));
  Forget(before);
  // This happens if many operations never end, or kernels are far out of order.
  while (operations_.size() > kMostKept) operations_.pop_front(), ++first_operation_;
  while (kernels_.size() > kMostKept) kernels_.pop_front();
  whole_from_ticks_ = std::max(whole_from_ticks_, before);
  while (boundaries_.size() > 1 && boundaries_.front().ticks < before) boundaries_.pop_front();
}

void LiveSteps::Forget(std::uint64_t before_ticks) {
  while (!calls_.empty() && calls_.front().ticks.end < before_ticks) calls_.pop_front();
  while (!kernels_.empty() && kernels_.front().ticks.end < before_ticks) kernels_.pop_front();
  helpers_.Forget(before_ticks);
  // An operation that is never completed must not keep all later ones.
  while (!operations_.empty() && (operations_.front().ticks.end == 0 ? operations_.size() > kMostKept / 2
                                                                     : operations_.front().ticks.end < before_ticks)) {
    operations_.pop_front();
    ++first_operation_;
  }
}

std::size_t LiveSteps::Entries(Ticks window, bool queries) const {
  const auto within = [&](const auto& all, auto begin_of) {
    const auto before = [&](const auto& one, std::uint64_t ticks) { return begin_of(one) < ticks; };
    return std::pair(std::lower_bound(all.begin(), all.end(), window.begin, before),
                     std::lower_bound(all.begin(), all.end(), window.end, before));
  };
  const auto calls = within(calls_, [](const Calls& one) { return one.ticks.begin; });
  const auto operations = within(operations_, [](const Operation& one) { return one.ticks.begin; });
  return static_cast<std::size_t>(
      std::count_if(calls.first, calls.second, [&](const Calls& one) { return queries || !one.queries; }) +
      (operations.second - operations.first));
}

LiveStep LiveSteps::Make(std::int64_t index, Ticks window, const IntervalSet& helped, bool queries,
                         const NsOfTicks& ns_of_ticks) const {
  LiveStep step{index, {ns_of_ticks(window.begin), ns_of_ticks(window.end)}, {}, {}, -1};
  const auto inside = [&](const Ticks& one) { return one.begin < window.end && one.end > window.begin; };
  if (gpu_) {
    std::vector<Interval> communicates, computes;
    for (const Kernel& kernel : kernels_)
      if (inside(kernel.ticks))
        (kernel.communicates ? communicates : computes)
            .push_back({ns_of_ticks(kernel.ticks.begin), ns_of_ticks(kernel.ticks.end)});
    step.gpu_exposed_ns =
        Total(Subtract(Clip(Normalize(std::move(communicates)), step.window), Normalize(std::move(computes))));
    return step;
  }
  std::vector<Interval> calls;
  for (const Calls& made : calls_) {
    if (!inside(made.ticks) || (made.queries && !queries)) continue;
    calls.push_back({ns_of_ticks(made.ticks.begin), ns_of_ticks(made.ticks.end)});
  }
  step.in_comm = Clip(Unite(Normalize(std::move(calls)), helped), step.window);
  for (const Operation& one : operations_)
    if (one.ticks.end != 0 && inside(one.ticks))
      step.operations.push_back({one.key, ns_of_ticks(one.ticks.begin),
                                 ns_of_ticks(std::max(one.end_low, one.ticks.begin)), ns_of_ticks(one.ticks.end),
                                 one.members, one.splits});
  return step;
}

std::vector<LiveStep> LiveSteps::Sample(std::uint64_t until_ticks, std::size_t most_steps, std::size_t most_entries,
                                        const NsOfTicks& ns_of_ticks) {
  // A GPU's records arrive in batches, seconds after the events.
  if (gpu_) until_ticks = std::min(until_ticks, last_kernel_ticks_);
  struct Candidate {
    std::int64_t index;
    Ticks window;
  };
  std::vector<Candidate> whole;
  std::uint64_t last_end = 0;
  for (std::size_t i = 1; i < boundaries_.size() && boundaries_[i].ticks <= until_ticks; ++i) {
    const StepRecord& begin = boundaries_[i - 1];
    last_end = boundaries_[i].ticks;
    const bool next = (boundaries_[i].head.flags & kStepEnds) != 0 || boundaries_[i].index == begin.index + 1;
    if ((begin.head.flags & kStepEnds) != 0 || !next || begin.ticks < whole_from_ticks_) continue;
    whole.push_back({begin.index, {begin.ticks, boundaries_[i].ticks}});
  }
  std::vector<LiveStep> steps;
  if (last_end == 0) return steps;
  // Takes all steps, because waits are found across their boundaries, whichever steps are shown.
  IntervalSet helped;
  if (helped_ && !gpu_) {
    std::vector<LiveHelpers::Collective> others;
    for (const Operation& one : operations_)
      if (OfHelper(one)) others.push_back({one.ticks, one.tid});
    helped = helpers_.Exposed(others, ns_of_ticks);
  }
  // Without the time of queries, which may be many, where a single step is too large with it.
  bool queries = true;
  for (std::int64_t stride = 1;;) {
    std::size_t count = 0, entries = 0;
    for (const Candidate& one : whole)
      if (one.index % stride == 0) {
        ++count;
        entries += gpu_ ? 0 : Entries(one.window, queries);
      }
    if (count > 1 && (count > most_steps || entries > most_entries)) {
      stride *= 2;
      continue;
    }
    // A single step with that many entries is too large to be sent every few seconds.
    if (entries > most_entries && std::exchange(queries, false)) {
      stride = 1;
      continue;
    }
    if (entries > most_entries) break;
    for (const Candidate& one : whole)
      if (one.index % stride == 0) steps.push_back(Make(one.index, one.window, helped, queries, ns_of_ticks));
    break;
  }
  while (boundaries_.front().ticks < last_end) boundaries_.pop_front();
  Forget(last_end);
  completed_early_.clear();
  ended_early_.clear();
  return steps;
}

LiveSteps::Open LiveSteps::open() const {
  if (boundaries_.empty() || (boundaries_.back().head.flags & kStepEnds) != 0) return {};
  return {boundaries_.back().index, boundaries_.back().ticks};
}

double LiveSteps::MpiShare(std::uint64_t now_ticks) {
  std::uint64_t most = 0;
  for (auto& [index, ring] : rings_) most = std::max(most, std::exchange(ring.mpi_ticks, 0));
  const std::uint64_t span = share_from_ticks_ == 0 ? 0 : now_ticks - share_from_ticks_;
  share_from_ticks_ = now_ticks;
  if (most == 0 || span == 0) return -1;
  return std::min(1.0, static_cast<double>(most) / static_cast<double>(span));
}

}  // namespace lockstep::agent
