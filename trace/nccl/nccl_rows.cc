// Operations -> rows of collectives and p2p.

#include <algorithm>
#include <map>
#include <tuple>

#include "core/collective.h"
#include "core/comm_kernels.h"
#include "core/window.h"
#include "trace/decode/process_decoder.h"
#include "trace/nccl/decode_nccl.h"
#include "trace/nccl/nccl_channels.h"
#include "trace/nccl/nccl_operations.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

// Numbers counted by us beside NCCL's own of the same communicator and function.
constexpr std::uint64_t kCountedSeq = std::uint64_t{1} << 40;
// Collectives of copy engines have numbers of the communicator's own: how often its ranks have met in such
// collectives so far (2.29.2, ce_coll.cc), not how often the function was called. They are no kernel's numbers.
constexpr std::uint64_t kCopyEngineSeq = std::uint64_t{1} << 41;
constexpr std::uint8_t kGpu = static_cast<std::uint8_t>(CollectiveMode::kGpu);

std::uint64_t SizeOf(std::uint8_t dtype) {
  switch (static_cast<DataType>(dtype)) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kByte:
    case DataType::kFloat8e4m3:
    case DataType::kFloat8e5m2:
      return 1;
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

// NCCL's counts of these are per rank (nccl.h: sendcount of ncclAllGather, recvcount of ncclReduceScatter, count of
// ncclAlltoAll, ncclGather and ncclScatter); the array is what all ranks' parts make.
bool CountsPerRank(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
}

std::uint64_t Product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

// What is known of one operation, the caller's words before NCCL's.
struct Facts {
  const NcclEventRow *event, *api;
  const NcclCallRow* call;

  const NcclEventRow* told() const { return event != nullptr ? event : api; }
  std::uint32_t comm() const {
    const std::uint32_t comm = told() != nullptr ? told()->comm : kNone;
    return comm == kNone && call != nullptr ? call->comm : comm;
  }
  std::uint32_t thread() const { return call != nullptr ? call->thread : api != nullptr ? api->thread : event->thread; }
  std::int64_t enqueued() const {
    return call != nullptr ? call->begin_ns : api != nullptr ? api->begin_ns : event->begin_ns;
  }
  std::int64_t returned() const {
    if (call != nullptr) return call->end_ns;
    const NcclEventRow* host = api != nullptr ? api : event;
    return host->end_ns == kNoTime ? host->begin_ns : host->end_ns;
  }
  bool p2p() const {
    if (event != nullptr) return event->kind == NcclEvent::kP2p;
    if (call != nullptr) return call->function == static_cast<std::uint8_t>(CollectiveKind::kSendRecv);
    return api->kind == NcclEvent::kP2pApi;
  }
  bool receives() const {
    const bool said = event != nullptr && event->function <= 1;
    return (!said && call != nullptr ? call->direction : told()->function) == 1;
  }
  CollectiveKind kind() const {
    const std::uint8_t kind = event == nullptr && call != nullptr ? call->function : told()->function;
    return kind <= static_cast<std::uint8_t>(CollectiveKind::kSendRecv) ? static_cast<CollectiveKind>(kind)
                                                                        : CollectiveKind::kNone;
  }
  std::int32_t peer() const { return event == nullptr && call != nullptr ? call->peer : told()->peer; }
  // Elements and their type. NVTX knows bytes only.
  std::pair<std::uint64_t, std::uint8_t> elements() const {
    if (call != nullptr && call->source != NcclSource::kNvtx) return {call->count, call->dtype};
    if (api != nullptr && SizeOf(api->dtype) != 0) return {api->count, api->dtype};
    if (event != nullptr) return {event->count, event->dtype};
    if (call != nullptr) return {call->count, call->dtype};
    return {api->count, api->dtype};
  }
};

std::int64_t EndOf(const schema::Kernels& kernels, std::uint32_t row) {
  const std::int64_t begin = kernels.begin_ns[row], duration = kernels.duration_ns[row];
  return begin > INT64_MAX - duration ? INT64_MAX : begin + duration;
}

struct Span {
  std::uint64_t count = 0;
  std::int64_t first_ns = kNoTime, last_ns = kNoTime;
  void Add(std::int64_t ns) {
    ++count;
    if (first_ns == kNoTime || ns < first_ns) first_ns = ns;
    last_ns = std::max(last_ns, ns);
  }
};

}  // namespace

void NcclRecords::MakeRows() {
  PairEnds();
  NoteOthers();
  MakeOperations();
  const schema::Kernels& kernels = tables_.kernels;
  std::vector<std::uint8_t> nccl_named(kernels.rows() == 0 ? 0 : tables_.strings.rows());
  for (std::uint32_t i = 0; i < nccl_named.size(); ++i) nccl_named[i] = IsNcclKernelName(TextOf(tables_, i));
  for (std::uint32_t row = 0; row < kernels.rows(); ++row)
    if (kernels.work_rule[row] != schema::WorkRule::kLaunched && kernels.name[row] < nccl_named.size() &&
        nccl_named[kernels.name[row]] != 0)
      kernels_untied_ns_.push_back(kernels.begin_ns[row]);
  events_ = {};
  calls_ = {};
}

// Communication that no operation is made of.
void NcclRecords::NoteOthers() {
  for (const NcclCallRow& call : calls_) {
    if (call.function != static_cast<std::uint8_t>(CollectiveKind::kNone) || call.result != 0) continue;
    const std::string_view name = TextOf(tables_, call.name);
    if (name == "ncclPutSignal" || name == "ncclSignal" || name == "ncclWaitSignal")
      one_sided_ns_.push_back(call.begin_ns);
    else if (name == "ncclDevCommCreate")
      device_side_ns_.push_back(call.begin_ns);
  }
}

void NcclRecords::MakeOperations() {
  if (events_.empty() && calls_.empty()) return;
  const NcclChannels channels(events_);
  const NcclFound found = FindNcclOperations(tables_, events_, calls_);
  schema::Kernels& kernels = tables_.kernels;
  std::unordered_map<std::uint32_t, std::uint32_t> shared;  // Kernel -> operations.
  for (const NcclOperation& op : found.operations)
    if (op.tie.kernel != kNone) ++shared[op.tie.kernel];
  for (const auto& [kernel, operations] : shared) {
    kernels.work[kernel] = schema::Work::kCommunication;
    kernels.work_rule[kernel] = schema::WorkRule::kLaunched;
  }
  const auto event_at = [&](std::uint32_t i) { return i == kNone ? nullptr : &events_[i]; };
  std::map<std::tuple<std::uint32_t, std::uint8_t>, bool> numbered;  // By NCCL itself.
  for (const NcclOperation& op : found.operations)
    if (const NcclEventRow* event = event_at(op.event); event != nullptr && event->kind == NcclEvent::kCollective)
      numbered[{event->comm, event->function}] = true;

  std::map<std::tuple<std::uint32_t, std::uint8_t>, std::uint64_t> next_collective;
  std::map<std::tuple<std::uint32_t, std::int32_t, bool>, std::uint64_t> next_message;
  for (const NcclOperation& op : found.operations) {
    const Facts facts{event_at(op.event), event_at(op.api), op.call == kNone ? nullptr : &calls_[op.call]};
    const std::uint32_t comm = facts.comm();
    const std::uint32_t size = comm < tables_.comms.rows() ? tables_.comms.size[comm] : 0;
    const NcclTie& tie = op.tie;
    const std::int64_t enqueued = facts.enqueued();
    std::int64_t begin = enqueued, end = kNoTime;
    if (tie.copy_begin_ns != kNoTime) {
      begin = tie.copy_begin_ns;
      end = tie.copy_end_ns;
    } else if (tie.kernel != kNone) {
      begin = kernels.begin_ns[tie.kernel];
      end = EndOf(kernels, tie.kernel);
    } else if (facts.event != nullptr && op.replay == 0 && channels.TimesOf(facts.event->id, begin, end)) {
      // NCCL's own times of the kernel, where CUPTI has none: less exact by the delay of its polling.
    } else if (op.replay != 0) {
      replayed_ns_.push_back(enqueued);
    } else if (size != 1) {  // In place, one rank's collective launches nothing.
      untied_.push_back({comm, enqueued});
    }
    if (tie.tied()) tied_ns_[comm].push_back(enqueued);
    const auto [elements, dtype] = facts.elements();
    const std::uint64_t item = SizeOf(dtype);
    if (facts.p2p() && facts.told() != nullptr && facts.told()->function > 1 && facts.call == nullptr) {
      ++orphans_;  // Part of a collective that NCCL makes of messages, without a word on its direction.
      continue;
    }
    if (facts.p2p()) {
      const std::int32_t peer = std::max(facts.peer(), -1);
      tables_.p2p.Append({.comm = comm,
                          .direction = facts.receives(),
                          .mode = kGpu,
                          .peer = peer,
                          .peer_world_rank = -1,
                          .tag = 0,
                          .seq = next_message[{comm, peer, facts.receives()}]++,
                          .thread = facts.thread(),
                          .begin_ns = begin,
                          .post_end_ns = facts.returned(),
                          .last_incomplete_ns = kNoTime,
                          .wait_begin_ns = end != kNoTime ? begin : kNoTime,
                          .end_ns = end,
                          .bytes = Product(elements, item),
                          .outcome = schema::RequestOutcome::kCompleted,
                          .call = kNone,
                          .kernel = tie.kernel});
      continue;
    }
    const CollectiveKind kind = facts.kind();
    const std::tuple key{comm, static_cast<std::uint8_t>(kind)};
    std::uint64_t seq = 0;
    if (facts.event != nullptr) {
      seq = facts.event->seq + (facts.event->kind == NcclEvent::kCopyEngine ? kCopyEngineSeq : 0);
    } else {
      seq = facts.call != nullptr ? facts.call->seq : next_collective[key]++;
      if (numbered.contains(key)) seq += kCountedSeq;
    }
    const bool rooted = RootSends(kind) || RootReceives(kind) || kind == CollectiveKind::kReduce;
    std::uint64_t count = elements, bytes = Product(elements, item);
    if (CountsPerRank(kind)) {
      count = Product(count, size);  // 0, unknown, where the size is.
      bytes = Product(bytes, size);
    }
    tables_.collectives.Append(
        {.comm = comm,
         .seq = seq,
         .start = op.replay,
         .kind = static_cast<std::uint8_t>(kind),
         .mode = kGpu,
         .uneven = 0,
         .thread = facts.thread(),
         .begin_ns = begin,
         .post_end_ns = facts.returned(),
         .last_incomplete_ns = kNoTime,
         .wait_begin_ns = end != kNoTime ? begin : kNoTime,
         .end_ns = end,
         .bytes = bytes,
         .count = count,
         .dtype = dtype,
         .root = rooted ? std::max(facts.peer(), -1) : -1,
         .call = kNone,
         .kernel = tie.kernel,
         .kernel_operations = tie.kernel == kNone ? 0 : shared[tie.kernel],
         .enqueue_begin_ns = op.replay != 0 ? kNoTime : enqueued,
         .reduction = facts.call != nullptr ? facts.call->reduction : std::uint8_t{0},
         .algorithm = facts.event != nullptr ? facts.event->algorithm : kNone,
         .protocol = facts.event != nullptr ? facts.event->protocol : kNone,
         .channels = static_cast<std::uint16_t>(facts.event != nullptr ? facts.event->channels : 0),
         .buffer = facts.event != nullptr && facts.event->buffer != 0 ? facts.event->buffer
                   : facts.call != nullptr                            ? facts.call->buffer
                                                                      : 0});
  }

  orphans_ += found.orphans;
}

void NcclRecords::CountLosses() {
  // The GPU is behind the host: what was enqueued last before recording went off ran, and was left out, afterwards.
  constexpr auto kRunEnd = static_cast<std::uint8_t>(WindowCause::kRunEnd);
  const schema::Windows& windows = tables_.windows;
  for (auto& [comm, times] : tied_ns_) std::sort(times.begin(), times.end());
  Span lost, later, replayed, kernels, one_sided, device_side;
  for (const Untied& one : untied_) {
    const auto after = std::upper_bound(windows.begin_ns.begin(), windows.begin_ns.end(), one.enqueued_ns);
    const auto window = static_cast<std::size_t>(after - windows.begin_ns.begin());
    bool last = window > 0 && windows.end_cause[window - 1] != kRunEnd;
    if (const auto tied = tied_ns_.find(one.comm); last && tied != tied_ns_.end()) {
      const auto next = std::upper_bound(tied->second.begin(), tied->second.end(), one.enqueued_ns);
      last = next == tied->second.end() || *next > windows.end_ns[window - 1];
    }
    (last ? later : lost).Add(one.enqueued_ns);
  }
  for (const std::int64_t ns : replayed_ns_) replayed.Add(ns);
  for (const std::int64_t ns : kernels_untied_ns_) kernels.Add(ns);
  for (const std::int64_t ns : one_sided_ns_) one_sided.Add(ns);
  for (const std::int64_t ns : device_side_ns_) device_side.Add(ns);
  decoder_.AddLoss(Loss::kNcclUntied, lost.count, lost.first_ns, lost.last_ns);
  decoder_.AddLoss(Loss::kNcclUntied, replayed.count, replayed.first_ns, replayed.last_ns, kNone,
                   "replayed by CUDA graphs: their kernels are there, but nothing says which is whose");
  decoder_.AddLoss(Loss::kNcclUntied, one_sided.count, one_sided.first_ns, one_sided.last_ns, kNone,
                   "one-sided (ncclPutSignal, ncclSignal, ncclWaitSignal): they are no rows of collectives or p2p");
  decoder_.AddLoss(Loss::kNcclUntied, device_side.count, device_side.first_ns, device_side.last_ns, kNone,
                   "device communicators (ncclDevCommCreate): what the program's own kernels send is not known");
  decoder_.AddLoss(Loss::kGpuOutOfWindow, later.count, later.first_ns, later.last_ns, kNone,
                   "NCCL operations whose kernels began after recording went off");
  decoder_.AddLoss(Loss::kNcclKernelUntied, kernels.count, kernels.first_ns, kernels.last_ns);
  decoder_.AddLoss(Loss::kNcclEventOrphan, orphans_);
}

}  // namespace lockstep::trace
