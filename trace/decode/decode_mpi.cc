// MPI calls, the operations they start, and their completions.

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/uneven.h"
#include "trace/decode/process_decoder.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

using schema::CallOutcome;
using schema::RequestOutcome;
constexpr std::uint8_t kBlocking = schema::Code(CollectiveMode::kBlocking),
                       kNonBlocking = schema::Code(CollectiveMode::kNonBlocking),
                       kPersistent = schema::Code(CollectiveMode::kPersistent);
constexpr std::int32_t kAny = -2;
// A receive that follows a probe so shortly only had to wait for memory for the message.
constexpr std::int64_t kReceivedAfterProbeNs = 100'000;

bool BlocksToCommunicate(MpiClass cls) {
  return cls == MpiClass::kCollective || cls == MpiClass::kSend || cls == MpiClass::kRecv ||
         cls == MpiClass::kSendRecv || cls == MpiClass::kProbe || cls == MpiClass::kWait || cls == MpiClass::kRma;
}

const MpiOpInfo& InfoOf(std::uint16_t op) {
  static constexpr MpiOpInfo kUnknown{MpiOp::kNone, "MPI_?", MpiClass::kOther, CollectiveKind::kNone};
  static const auto table = [] {
    std::array<const MpiOpInfo*, 4096> all{};
    all.fill(&kUnknown);
    for (const MpiOpInfo& info : kMpiOps) all[static_cast<std::uint16_t>(info.op)] = &info;
    return all;
  }();
  return op < table.size() ? *table[op] : kUnknown;
}

}  // namespace

bool MakesRequest(const MpiRecord& call) {
  const MpiClass cls = InfoOf(call.op).cls;
  return call.request != 0 && cls != MpiClass::kStart && cls != MpiClass::kReady && cls != MpiClass::kWait &&
         cls != MpiClass::kTest && cls != MpiClass::kRequest;
}

std::uint32_t ProcessDecoder::CommRow(std::uint32_t number, std::int64_t ns) {
  if (number == kNoComm) return kNone;
  const auto at = comms_.find(number);
  if (at != comms_.end()) return at->second.row;
  // Its creation was not recorded, or its record comes later.
  const auto row = static_cast<std::uint32_t>(tables_.comms.rows());
  comms_[number] = {row, false, false};
  tables_.comms.Append({.comm = row,
                        .global_id = 0,
                        .parent_id = 0,
                        .size = 0,
                        .rank = -1,
                        .kind = schema::CommKind::kIntra,
                        .unidentified = 1,
                        .first_world_rank = -1,
                        .stride = 0,
                        .name = kNone,
                        .begin_ns = ns,
                        .end_ns = kNoTime});
  return row;
}

void ProcessDecoder::OnComm(Thread& thread, std::span<const std::byte> bytes) {
  const auto record = LoadRecord<CommRecord>(bytes);
  const std::int64_t ns = thread.clock.Ns(record.ticks);
  thread.life.Cover(ns, ns);
  if (record.comm == kNoComm) {
    ++unknown_records_;
    return;
  }
  const std::uint8_t flags = record.head.flags;
  const std::uint32_t name = record.name == 0 ? kNone : TextOfThread(thread, record.name);
  schema::Comms& comms = tables_.comms;
  if ((flags & 0x40) != 0) {
    comms.end_ns[CommRow(record.comm, ns)] = ns;
    comms_[record.comm].freed = true;
    return;
  }
  if ((flags & 0x20) != 0) {
    comms.name[CommRow(record.comm, ns)] = name;
    return;
  }
  // A number that was defined before now refers to another communicator.
  if (const auto at = comms_.find(record.comm); at != comms_.end() && at->second.defined) comms_.erase(at);
  const std::uint32_t row = CommRow(record.comm, ns);
  comms_[record.comm].defined = true;
  comms.global_id[row] = record.global_id;
  comms.parent_id[row] = record.parent_id;
  comms.size[row] = record.size;
  comms.rank[row] = record.rank;
  comms.kind[row] = flags & 0x1f;
  comms.unidentified[row] = flags >> 7;
  comms.first_world_rank[row] = record.first_world_rank;
  comms.stride[row] = record.stride;
  comms.name[row] = name;
  comms.begin_ns[row] = std::min(comms.begin_ns[row], ns);
  if (record.stride != 0) return;
  const std::span<const std::byte> members = bytes.subspan(2 * kSlotBytes);
  for (std::size_t i = 0; i < std::min<std::size_t>(record.explicit_members, members.size() / 4); ++i) {
    std::int32_t world_rank;
    std::memcpy(&world_rank, members.data() + i * sizeof world_rank, sizeof world_rank);
    if (i == 0) comms.first_world_rank[row] = world_rank;
    tables_.comm_members.Append({.comm = row, .comm_rank = static_cast<std::uint32_t>(i), .world_rank = world_rank});
  }
}

std::uint32_t ProcessDecoder::AddCall(const Thread& thread, const MpiRecord& record, std::int64_t begin_ns,
                                      std::int64_t end_ns) {
  const std::uint8_t flags = record.head.flags;
  tables_.mpi_calls.Append({.begin_ns = begin_ns,
                            .duration_ns = DurationNs(begin_ns, end_ns),
                            .thread = thread.row,
                            .op = record.op,
                            .comm = CommRow(record.comm, begin_ns),
                            .bytes = record.bytes,
                            .peer = record.peer,
                            .tag = record.tag,
                            .count = 1,
                            .outcome = (flags & kMpiError) != 0              ? CallOutcome::kError
                                       : (flags & kMpiNothingCompleted) != 0 ? CallOutcome::kNothingCompleted
                                                                             : CallOutcome::kCompleted});
  return static_cast<std::uint32_t>(tables_.mpi_calls.rows() - 1);
}

void ProcessDecoder::AddCollective(const Thread& thread, const MpiRecord& record, std::uint8_t mode,
                                   std::uint32_t start, std::int64_t begin_ns, std::int64_t end_ns,
                                   std::uint32_t call) {
  const bool blocking = mode == kBlocking;
  const std::uint8_t flags = record.head.flags;
  // One that failed may have returned at once, without the others: it says nothing of waits or clocks.
  const bool failed = (flags & kMpiError) != 0;
  const std::uint8_t uneven = UnevenBits(failed || (flags & kMpiUneven) != 0, failed || (flags & kMpiGivesNothing) != 0,
                                         failed || (flags & kMpiTakesNothing) != 0);
  tables_.collectives.Append({.comm = CommRow(record.comm, begin_ns),
                              .seq = record.seq,
                              .start = start,
                              .kind = static_cast<std::uint8_t>(InfoOf(record.op).kind),
                              .mode = mode,
                              .uneven = uneven,
                              .thread = thread.row,
                              .begin_ns = begin_ns,
                              .post_end_ns = end_ns,
                              .last_incomplete_ns = kNoTime,
                              .wait_begin_ns = blocking ? begin_ns : kNoTime,
                              .end_ns = blocking ? end_ns : kNoTime,
                              .bytes = record.bytes,
                              .count = record.count,
                              .dtype = record.dtype,
                              .root = std::max(record.peer, -1),
                              .call = call,
                              .kernel = kNone,
                              .enqueue_begin_ns = kNoTime,
                              .algorithm = kNone,
                              .protocol = kNone,
                              .caller = StackOf(record.start)});
}

// Returns false for MPI_PROC_NULL: there is no message and no row.
bool ProcessDecoder::AddP2p(const Thread& thread, const MpiRecord& record, bool receive, std::uint8_t mode,
                            const CompletionRecord* status, std::int64_t begin_ns, std::int64_t end_ns,
                            std::uint32_t call) {
  std::int32_t peer = record.peer, tag = record.tag;
  std::uint64_t bytes = record.bytes;
  const auto op = static_cast<MpiOp>(record.op);
  const bool matched = op == MpiOp::kMrecv || op == MpiOp::kImrecv;
  // A matched probe's message names no source.
  if (receive && peer == -1 && matched) peer = kAny;
  if (status != nullptr) {
    peer = status->source;
    tag = status->tag;
    bytes = status->bytes;
  }
  if (peer == -1) return false;
  const bool blocking = mode == kBlocking;
  const bool error = (record.head.flags & kMpiError) != 0;
  tables_.p2p.Append({.comm = CommRow(record.comm, begin_ns),
                      .direction = receive,
                      .mode = mode,
                      .peer = peer,
                      .peer_world_rank = -1,
                      .tag = tag,
                      .seq = 0,
                      .thread = thread.row,
                      .begin_ns = begin_ns,
                      .post_end_ns = end_ns,
                      .last_incomplete_ns = kNoTime,
                      .wait_begin_ns = blocking ? begin_ns : kNoTime,
                      .end_ns = blocking ? end_ns : kNoTime,
                      .bytes = bytes,
                      .outcome = error      ? RequestOutcome::kError
                                 : blocking ? RequestOutcome::kCompleted
                                            : RequestOutcome::kNeverCompleted,
                      .call = call,
                      .kernel = kNone,
                      .caller = matched ? kNone : StackOf(record.start)});
  const std::uint64_t probed = std::uint64_t{record.start} << 32 | record.seq;
  if (receive && matched && probed != 0)
    probed_ns_[static_cast<std::uint32_t>(tables_.p2p.rows() - 1)] = TickConverter(thread.clock).Ns(probed);
  return true;
}

// One request for two messages. What is asked for follows the record.
OpenRequests::Operation ProcessDecoder::PostBoth(const Thread& thread, const MpiRecord& record, std::int64_t begin_ns,
                                                 std::int64_t end_ns, std::uint32_t call) {
  OpenRequests::Operation operation{OpenRequests::Kind::kOther, static_cast<std::uint32_t>(tables_.p2p.rows()), 0};
  if (AddP2p(thread, record, false, kNonBlocking, nullptr, begin_ns, end_ns, call)) ++operation.rows;
  for (const CompletionRecord& asked : thread.follow) {
    if ((asked.head.flags & kCompletionPending) == 0) continue;
    operation.told = (asked.head.flags & kCompletionStatus) != 0;
    if (AddP2p(thread, record, true, kNonBlocking, &asked, begin_ns, end_ns, call)) ++operation.rows;
  }
  if (operation.rows != 0) operation.kind = OpenRequests::Kind::kP2p;
  return operation;
}

// Partitioned messages match in the order in which they were made, and only each other.
ProcessDecoder::Persistent ProcessDecoder::MadePersistent(const MpiRecord& init) {
  const auto op = static_cast<MpiOp>(init.op);
  if (op != MpiOp::kPsend_init && op != MpiOp::kPrecv_init) return {init, 0};
  return {init, 0, ++partitioned_[{init.comm, init.peer, init.tag, op == MpiOp::kPrecv_init}]};
}

void ProcessDecoder::Post(const Thread& thread, const MpiRecord& record, const MpiOpInfo& info, std::int64_t begin_ns,
                          std::int64_t end_ns, std::uint32_t call) {
  OpenRequests::Operation operation{OpenRequests::Kind::kOther, 0};
  const bool recorded = (record.head.flags & kMpiUnrecorded) == 0;
  if (recorded && info.cls == MpiClass::kCollectivePost) {
    AddCollective(thread, record, kNonBlocking, 0, begin_ns, end_ns, call);
    operation = {OpenRequests::Kind::kCollective, static_cast<std::uint32_t>(tables_.collectives.rows() - 1)};
  } else if (recorded && (info.cls == MpiClass::kSendPost || info.cls == MpiClass::kRecvPost)) {
    if (AddP2p(thread, record, info.cls == MpiClass::kRecvPost, kNonBlocking, nullptr, begin_ns, end_ns, call))
      operation = {OpenRequests::Kind::kP2p, static_cast<std::uint32_t>(tables_.p2p.rows() - 1)};
  } else if (recorded && info.cls == MpiClass::kSendRecvPost) {
    operation = PostBoth(thread, record, begin_ns, end_ns, call);
  } else if (recorded && (info.cls == MpiClass::kIoPost || info.cls == MpiClass::kRmaPost)) {
    const bool error = (record.head.flags & kMpiError) != 0;
    tables_.mpi_requests.Append({.op = record.op,
                                 .comm = CommRow(record.comm, begin_ns),
                                 .thread = thread.row,
                                 .wait_thread = kNone,
                                 .begin_ns = begin_ns,
                                 .post_end_ns = end_ns,
                                 .wait_begin_ns = kNoTime,
                                 .end_ns = kNoTime,
                                 .bytes = record.bytes,
                                 .peer = record.peer,
                                 .outcome = error ? RequestOutcome::kError : RequestOutcome::kNeverCompleted});
    operation = {OpenRequests::Kind::kRequest, static_cast<std::uint32_t>(tables_.mpi_requests.rows() - 1)};
  }
  if (record.request != 0 && (record.head.flags & kMpiError) == 0) requests_.Post(record.request, operation);
}

void ProcessDecoder::Start(const Thread& thread, const MpiRecord& record, std::uint64_t handle, std::uint64_t nth,
                           std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t call) {
  const auto at = persistent_.find(OpenRequests::Key(handle));
  if (at == persistent_.end()) {
    ++unknown_requests_;
    requests_.Post(handle, {OpenRequests::Kind::kOther, 0});
    return;
  }
  Persistent& persistent = at->second;
  persistent.starts = nth != 0 ? static_cast<std::uint32_t>(nth) : persistent.starts + 1;
  if ((record.head.flags & kMpiUnrecorded) != 0) return;
  MpiRecord init = persistent.init;
  init.head.flags = static_cast<std::uint8_t>((init.head.flags & ~kMpiError) | (record.head.flags & kMpiError));
  OpenRequests::Operation operation{OpenRequests::Kind::kOther, 0};
  const MpiClass cls = InfoOf(init.op).cls;
  if (cls == MpiClass::kCollectiveInit) {
    AddCollective(thread, init, kPersistent, persistent.starts, begin_ns, end_ns, call);
    operation = {OpenRequests::Kind::kCollective, static_cast<std::uint32_t>(tables_.collectives.rows() - 1)};
  } else if (AddP2p(thread, init, cls == MpiClass::kRecvInit, kPersistent, nullptr, begin_ns, end_ns, call)) {
    operation = {OpenRequests::Kind::kP2p, static_cast<std::uint32_t>(tables_.p2p.rows() - 1)};
    if (persistent.channel != 0)
      tables_.p2p.seq[operation.row] = persistent.channel * schema::kPartitionedSeq + persistent.starts - 1;
  }
  requests_.Post(handle, operation);
}

// The message is there when its last part is: until then whoever waits for it waits for this rank.
void ProcessDecoder::Ready(std::uint64_t handle, std::int64_t begin_ns, std::int64_t end_ns, std::uint32_t call) {
  requests_.ForEach(handle, [&](const OpenRequests::Operation& operation) {
    if (operation.kind != OpenRequests::Kind::kP2p) return;
    tables_.p2p.begin_ns[operation.row] = begin_ns;
    tables_.p2p.post_end_ns[operation.row] = end_ns;
    tables_.p2p.call[operation.row] = call;
  });
}

void ProcessDecoder::Complete(const Thread& thread, std::uint64_t handle, const CompletionRecord* completion,
                              std::int64_t since_ns, std::int64_t begin_ns, std::int64_t end_ns) {
  OpenRequests::Operation operation;
  if (!requests_.Complete(handle, operation)) {
    // Waiting for an inactive persistent request is allowed and completes nothing.
    if (!persistent_.contains(OpenRequests::Key(handle))) ++unknown_requests_;
    return;
  }
  const std::uint8_t flags = completion == nullptr ? 0 : completion->head.flags;
  const std::uint8_t outcome = (flags & kCompletionCancelled) != 0 ? RequestOutcome::kCancelled
                               : (flags & kCompletionError) != 0   ? RequestOutcome::kError
                                                                   : RequestOutcome::kCompleted;
  if (operation.kind == OpenRequests::Kind::kRequest) {
    schema::MpiRequests& requests = tables_.mpi_requests;
    requests.wait_thread[operation.row] = thread.row;
    requests.wait_begin_ns[operation.row] = begin_ns;
    requests.end_ns[operation.row] = end_ns;
    // These operations cannot be cancelled, and Open MPI's ompio (4.1.4) leaves that field of their status unchanged.
    requests.outcome[operation.row] =
        (flags & kCompletionError) != 0 ? RequestOutcome::kError : RequestOutcome::kCompleted;
  } else if (operation.kind == OpenRequests::Kind::kCollective) {
    tables_.collectives.wait_begin_ns[operation.row] = begin_ns;
    tables_.collectives.end_ns[operation.row] = end_ns;
    if (outcome == RequestOutcome::kError) tables_.collectives.uneven[operation.row] = UnevenBits(true, true, true);
  } else if (operation.kind == OpenRequests::Kind::kP2p) {
    schema::P2p& p2p = tables_.p2p;
    for (std::uint32_t row = operation.row; row != operation.row + operation.rows; ++row) {
      p2p.wait_begin_ns[row] = std::max(since_ns, std::min(begin_ns, p2p.post_end_ns[row]));
      p2p.end_ns[row] = end_ns;
      p2p.outcome[row] = outcome;
      // Of a partitioned one the parts' bytes are known, and libraries leave them out of the status.
      if (operation.told && (flags & kCompletionStatus) != 0 && p2p.direction[row] == schema::Direction::kReceive &&
          outcome != RequestOutcome::kCancelled && p2p.seq[row] < schema::kPartitionedSeq) {
        p2p.peer[row] = completion->source;
        p2p.tag[row] = completion->tag;
        p2p.bytes[row] = completion->bytes;
      }
    }
  }
}

void ProcessDecoder::Incomplete(std::uint64_t handle, std::int64_t ns) {
  requests_.ForEach(handle, [&](const OpenRequests::Operation& operation) {
    if (operation.kind != OpenRequests::Kind::kCollective && operation.kind != OpenRequests::Kind::kP2p) return;
    for (std::uint32_t row = operation.row; row != operation.row + operation.rows; ++row) {
      std::int64_t& last = operation.kind == OpenRequests::Kind::kCollective
                               ? tables_.collectives.last_incomplete_ns[row]
                               : tables_.p2p.last_incomplete_ns[row];
      last = std::max(last, ns);  // kNoTime is less than any time.
    }
  });
}

void ProcessDecoder::Free(std::uint64_t handle) {
  const bool was_persistent = persistent_.erase(OpenRequests::Key(handle)) != 0;
  OpenRequests::Operation operation;
  if (!requests_.Complete(handle, operation)) {
    if (!was_persistent) ++unknown_requests_;
    return;
  }
  for (std::uint32_t i = 0; operation.kind == OpenRequests::Kind::kP2p && i < operation.rows; ++i)
    tables_.p2p.outcome[operation.row + i] = RequestOutcome::kFreed;
  if (operation.kind == OpenRequests::Kind::kRequest)
    tables_.mpi_requests.outcome[operation.row] = RequestOutcome::kFreed;
}

void ProcessDecoder::OnMpi(Thread& thread, const MpiRecord& record) {
  const std::int64_t begin = thread.clock.Ns(record.begin_ticks);
  const std::int64_t end = std::max(begin, thread.clock.Ns(record.end_ticks));
  thread.life.Cover(begin, end);
  const MpiOpInfo& info = InfoOf(record.op);
  const bool recorded = (record.head.flags & kMpiUnrecorded) == 0;
  const std::uint32_t call = recorded ? AddCall(thread, record, begin, end) : kNone;
  if (recorded) thread.blocking_calls += BlocksToCommunicate(info.cls);
  const auto probe = std::exchange(thread.probe, {});
  const Thread::Polls polls = std::exchange(thread.polls, {});
  const bool polled = polls.GoesOn(begin);
  const bool probes = info.cls == MpiClass::kProbe || static_cast<MpiOp>(record.op) == MpiOp::kIprobe;
  if (recorded && probes && (record.head.flags & kMpiError) == 0)
    thread.probe = {record.comm, record.peer, record.tag, polled && polls.messages ? polls.begin_ns : begin, end};
  if ((record.head.flags & kMpiRefused) == kMpiRefused) return;
  const CompletionRecord* status = nullptr;
  for (const CompletionRecord& completion : thread.follow)
    if (status == nullptr && (completion.head.flags & kCompletionStatus) != 0) status = &completion;

  switch (info.cls) {
    case MpiClass::kCollective:
      if (recorded) AddCollective(thread, record, kBlocking, 0, begin, end, call);
      break;
    case MpiClass::kSend:
    case MpiClass::kRecv: {
      const bool receive = info.cls == MpiClass::kRecv;
      if (!recorded || !AddP2p(thread, record, receive, kBlocking, receive ? status : nullptr, begin, end, call)) break;
      const auto asked_for = [](std::int32_t asked, std::int32_t found) { return asked == kAny || asked == found; };
      // What waits for the message is the probe. Which message it is, is decided by when it was received.
      if (receive && probe.comm == record.comm && asked_for(probe.peer, tables_.p2p.peer.back()) &&
          asked_for(probe.tag, tables_.p2p.tag.back()) && begin - probe.end_ns <= kReceivedAfterProbeNs) {
        probed_ns_.try_emplace(static_cast<std::uint32_t>(tables_.p2p.rows() - 1), begin);
        tables_.p2p.begin_ns.back() = tables_.p2p.wait_begin_ns.back() = probe.begin_ns;
      }
      break;
    }
    case MpiClass::kSendRecv:
      if (!recorded) break;
      AddP2p(thread, record, false, kBlocking, nullptr, begin, end, call);
      if (status != nullptr) AddP2p(thread, record, true, kBlocking, status, begin, end, call);
      break;
    case MpiClass::kCollectiveInit:
    case MpiClass::kSendInit:
    case MpiClass::kRecvInit:
      if (record.request != 0 && (record.head.flags & kMpiError) == 0)
        persistent_.insert_or_assign(OpenRequests::Key(record.request), MadePersistent(record));
      break;
    case MpiClass::kReady:
      if (recorded) Ready(record.request, begin, end, call);
      break;
    case MpiClass::kStart:
      for (const CompletionRecord& started : thread.follow)
        if ((started.head.flags & kCompletionStarted) != 0)
          Start(thread, record, started.request, started.bytes, begin, end, call);
      if (thread.follow.empty() && record.request != 0) Start(thread, record, record.request, 0, begin, end, call);
      break;
    case MpiClass::kWait:
    case MpiClass::kTest:
      for (const CompletionRecord& completion : thread.follow) {
        if ((completion.head.flags & kCompletionPending) != 0)
          Incomplete(completion.request, end);
        else
          Complete(thread, completion.request, &completion,
                   polled && polls.Asked(completion.request) ? polls.begin_ns : begin, begin, end);
      }
      // One request, whose status needed no slot of its own.
      if (thread.follow.empty() && record.request != 0 && (record.head.flags & kMpiNothingCompleted) == 0)
        Complete(thread, record.request, nullptr, polled && polls.Asked(record.request) ? polls.begin_ns : begin, begin,
                 end);
      break;
    case MpiClass::kRequest:
      if (static_cast<MpiOp>(record.op) == MpiOp::kRequest_free && record.request != 0) Free(record.request);
      break;
    case MpiClass::kLifecycle:
      // MPI 4.1, 11.2.2: it is collective over all connected processes. An older probe gave it no number.
      if (recorded && static_cast<MpiOp>(record.op) == MpiOp::kFinalize && record.comm != kNoComm &&
          (record.head.flags & kMpiError) == 0) {
        AddCollective(thread, record, kBlocking, 0, begin, end, call);
        tables_.collectives.kind.back() = static_cast<std::uint8_t>(CollectiveKind::kFinalize);
      }
      break;
    default:
      if (recorded && static_cast<MpiOp>(record.op) == MpiOp::kWin_fence && record.count == kFenceNumbered &&
          (record.head.flags & kMpiError) == 0) {
        AddCollective(thread, record, kBlocking, 0, begin, end, call);
        tables_.collectives.kind.back() = static_cast<std::uint8_t>(CollectiveKind::kFence);
        break;
      }
      Post(thread, record, info, begin, end, call);
      break;
  }
}

}  // namespace lockstep::trace
