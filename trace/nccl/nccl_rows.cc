// Operations -> rows of collectives and p2p.

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/collective.h"
#include "core/comm_kernels.h"
#include "core/data_type_name.h"
#include "core/window.h"
#include "trace/decode/process_decoder.h"
#include "trace/nccl/decode_nccl.h"
#include "trace/nccl/nccl_channels.h"
#include "trace/nccl/nccl_operations.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

// Offset of numbers that we counted, to keep them apart from NCCL's own of the same communicator and function.
constexpr std::uint64_t kCountedSeq = std::uint64_t{1} << 40;
// Collectives of copy engines have numbers of the communicator's own: how often its ranks have met in such
// collectives so far (2.29.2, ce_coll.cc), not how often the function was called. They are no kernel's numbers.
constexpr std::uint64_t kCopyEngineSeq = std::uint64_t{1} << 41;
// Captured operations have the number of their call: NCCL's own does not advance at capture.
constexpr std::uint64_t kCapturedSeq = std::uint64_t{1} << 42;
constexpr std::uint8_t kGpu = static_cast<std::uint8_t>(CollectiveMode::kGpu);

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

// The facts about one operation; the caller's are preferred to NCCL's.
struct Facts {
  const NcclEventRow *event, *api;
  const NcclCallRow* call;
  std::int64_t launched_ns;  // Of its CUDA graph, kNoTime in none.

  const NcclEventRow* told() const { return event != nullptr ? event : api; }
  std::uint32_t comm() const {
    const std::uint32_t comm = told() != nullptr ? told()->comm : kNone;
    return comm == kNone && call != nullptr ? call->comm : comm;
  }
  std::uint32_t thread() const { return call != nullptr ? call->thread : api != nullptr ? api->thread : event->thread; }
  std::int64_t enqueued() const {
    if (launched_ns != kNoTime) return launched_ns;
    return call != nullptr ? call->begin_ns : api != nullptr ? api->begin_ns : event->begin_ns;
  }
  std::int64_t returned() const {
    if (launched_ns != kNoTime) return launched_ns;
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
  std::uint64_t user_tag() const { return api != nullptr ? api->seq : 0; }
  std::int32_t peer() const { return event == nullptr && call != nullptr ? call->peer : told()->peer; }
  // Elements and their type. NVTX contains bytes only.
  std::pair<std::uint64_t, std::uint8_t> elements() const {
    if (call != nullptr && call->source != NcclSource::kNvtx) return {call->count, call->dtype};
    if (api != nullptr && TextOfDataType(api->dtype).bytes != 0) return {api->count, api->dtype};
    if (event != nullptr) return {event->count, event->dtype};
    if (call != nullptr) return {call->count, call->dtype};
    return {api->count, api->dtype};
  }
};

std::int64_t KernelEnd(const schema::Kernels& kernels, std::uint32_t row) {
  const std::int64_t begin = kernels.begin_ns[row], duration = kernels.duration_ns[row];
  return begin > INT64_MAX - duration ? INT64_MAX : begin + duration;
}

// Operations' numbers: NCCL's own if it reported them, else counted in the order in which they were enqueued.
class Numbers {
 public:
  Numbers(const std::vector<NcclOperation>& operations, const std::vector<NcclEventRow>& events) {
    for (const NcclOperation& op : operations)
      if (op.event != kNone && events[op.event].kind == NcclEvent::kCollective)
        numbered_.emplace(events[op.event].comm, events[op.event].function);
  }
  std::uint64_t OfCollective(const Facts& facts, const NcclOperation& op) {
    if (op.replay != 0) return kCapturedSeq + (facts.call != nullptr ? facts.call->seq : op.captured);
    if (facts.event != nullptr)
      return facts.event->seq + (facts.event->kind == NcclEvent::kCopyEngine ? kCopyEngineSeq : 0);
    const std::pair key{facts.comm(), static_cast<std::uint8_t>(facts.kind())};
    const std::uint64_t seq = facts.call != nullptr ? facts.call->seq : next_collective_[key]++;
    return seq + (numbered_.contains(key) ? kCountedSeq : 0);
  }
  std::uint64_t OfMessage(const Facts& facts, std::int32_t peer) {
    return next_message_[{facts.comm(), peer, facts.receives()}]++;
  }

 private:
  using CommAndFunction = std::pair<std::uint32_t, std::uint8_t>;
  std::set<CommAndFunction> numbered_;  // By NCCL itself.
  std::map<CommAndFunction, std::uint64_t> next_collective_;
  std::map<std::tuple<std::uint32_t, std::int32_t, bool>, std::uint64_t> next_message_;
};

schema::P2p::Row MessageRow(const Facts& facts, const NcclOperation& op, Interval times, Numbers& numbers) {
  const std::int32_t peer = std::max(facts.peer(), -1);
  const auto [elements, dtype] = facts.elements();
  return {.comm = facts.comm(),
          .direction = facts.receives(),
          .mode = kGpu,
          .peer = peer,
          .peer_world_rank = -1,
          .tag = 0,
          .seq = numbers.OfMessage(facts, peer),
          .thread = facts.thread(),
          .begin_ns = times.begin,
          .post_end_ns = facts.returned(),
          .last_incomplete_ns = kNoTime,
          .wait_begin_ns = times.end != kNoTime ? times.begin : kNoTime,
          .end_ns = times.end,
          .bytes = Product(elements, TextOfDataType(dtype).bytes),
          .outcome = schema::RequestOutcome::kCompleted,
          .call = kNone,
          .kernel = op.tie.kernel,
          .user_tag = facts.user_tag()};
}

// `size`: the communicator's, 0 unknown; `together`: operations that share its kernel, 0 without one.
schema::Collectives::Row CollectiveRow(const Facts& facts, const NcclOperation& op, Interval times, std::uint32_t size,
                                       std::uint32_t together, Numbers& numbers) {
  const CollectiveKind kind = facts.kind();
  const bool rooted = RootSends(kind) || RootReceives(kind) || kind == CollectiveKind::kReduce;
  const auto [elements, dtype] = facts.elements();
  const std::uint64_t parts = CountsPerRank(kind) ? size : 1;
  schema::Collectives::Row row{.comm = facts.comm(),
                               .seq = numbers.OfCollective(facts, op),
                               .start = op.replay,
                               .kind = static_cast<std::uint8_t>(kind),
                               .mode = kGpu,
                               .uneven = 0,
                               .thread = facts.thread(),
                               .begin_ns = times.begin,
                               .post_end_ns = facts.returned(),
                               .last_incomplete_ns = kNoTime,
                               .wait_begin_ns = times.end != kNoTime ? times.begin : kNoTime,
                               .end_ns = times.end,
                               .bytes = Product(Product(elements, TextOfDataType(dtype).bytes), parts),
                               .count = Product(elements, parts),
                               .dtype = dtype,
                               .root = rooted ? std::max(facts.peer(), -1) : -1,
                               .call = kNone,
                               .kernel = op.tie.kernel,
                               .kernel_operations = together,
                               .enqueue_begin_ns = facts.enqueued(),
                               .algorithm = kNone,
                               .protocol = kNone,
                               .user_tag = facts.user_tag()};
  if (facts.call != nullptr) {
    row.reduction = facts.call->reduction;
    row.buffer = facts.call->buffer;
  }
  if (facts.event != nullptr) {
    row.algorithm = facts.event->algorithm;
    row.protocol = facts.event->protocol;
    row.channels = facts.event->channels;
    if (facts.event->buffer != 0) row.buffer = facts.event->buffer;
  }
  return row;
}

}  // namespace

void NcclRecords::MakeRows(std::int64_t whole_until_ns) {
  PairEnds();
  NoteOthers();
  MakeOperations(whole_until_ns);
  const schema::Kernels& kernels = tables_.kernels;
  std::vector<std::uint8_t> nccl_named(kernels.rows() == 0 ? 0 : tables_.strings.rows());
  for (std::uint32_t i = 0; i < nccl_named.size(); ++i) nccl_named[i] = IsNcclKernelName(TextOf(tables_, i));
  for (std::uint32_t row = 0; row < kernels.rows(); ++row)
    if (kernels.work_rule[row] != schema::WorkRule::kLaunched && kernels.name[row] < nccl_named.size() &&
        nccl_named[kernels.name[row]] != 0)
      kernels_untied_.Add(kernels.begin_ns[row]);
  events_ = {};
  calls_ = {};
}

// Adds communication that belongs to no operation.
void NcclRecords::NoteOthers() {
  for (const NcclCallRow& call : calls_) {
    if (call.function != static_cast<std::uint8_t>(CollectiveKind::kNone) || call.result != 0) continue;
    const std::string_view name = TextOf(tables_, call.name);
    if (name == "ncclPutSignal" || name == "ncclSignal" || name == "ncclWaitSignal")
      one_sided_.Add(call.begin_ns);
    else if (name == "ncclDevCommCreate")
      device_side_.Add(call.begin_ns);
  }
}

void NcclRecords::MakeOperations(std::int64_t whole_until_ns) {
  if (events_.empty() && calls_.empty()) return;
  const NcclChannels channels(events_);
  const NcclFound found = FindNcclOperations(tables_, events_, calls_, whole_until_ns);
  std::unordered_map<std::uint32_t, std::uint32_t> shared;  // Kernel -> operations.
  for (const NcclOperation& op : found.operations)
    if (op.tie.kernel != kNone) ++shared[op.tie.kernel];
  for (const auto& [kernel, operations] : shared) {
    tables_.kernels.work[kernel] = schema::Work::kCommunication;
    tables_.kernels.work_rule[kernel] = schema::WorkRule::kLaunched;
  }
  Numbers numbers(found.operations, events_);
  for (const NcclOperation& op : found.operations) {
    const Facts facts{op.event == kNone ? nullptr : &events_[op.event], op.api == kNone ? nullptr : &events_[op.api],
                      op.call == kNone ? nullptr : &calls_[op.call], op.launched_ns};
    const std::uint32_t comm = facts.comm();
    const std::uint32_t size = comm < tables_.comms.rows() ? tables_.comms.size[comm] : 0;
    const std::int64_t enqueued = facts.enqueued();
    Interval times{enqueued, kNoTime};
    if (op.tie.copy_begin_ns != kNoTime) {
      times = {op.tie.copy_begin_ns, op.tie.copy_end_ns};
    } else if (op.tie.kernel != kNone) {
      times = {tables_.kernels.begin_ns[op.tie.kernel], KernelEnd(tables_.kernels, op.tie.kernel)};
    } else if (facts.event != nullptr && channels.TimesOf(facts.event->id, times.begin, times.end) &&
               times.end >= enqueued) {  // Else they are an earlier kernel's (NVIDIA/nccl issue 2368).
      // NCCL's own times of the kernel if CUPTI has none: less exact by the delay of its polling.
    } else if (size != 1) {  // A collective of one rank in place launches nothing.
      untied_.push_back({comm, enqueued});
    }
    if (op.tie.tied()) tied_ns_[comm].push_back(enqueued);
    if (!facts.p2p()) {
      const std::uint32_t together = op.tie.kernel == kNone ? 0 : shared[op.tie.kernel];
      tables_.collectives.Append(CollectiveRow(facts, op, times, size, together, numbers));
    } else if (facts.told() != nullptr && facts.told()->function > 1 && facts.call == nullptr) {
      ++orphans_;  // Part of a collective that NCCL builds from messages, without its direction.
    } else {
      tables_.p2p.Append(MessageRow(facts, op, times, numbers));
    }
  }
  orphans_ += found.orphans;
  replays_untied_ = found.replays_untied;
}

void NcclRecords::CountLosses() {
  // The GPU runs behind the host: what was enqueued last before recording went off ran later, and was not recorded.
  constexpr auto kRunEnd = static_cast<std::uint8_t>(WindowCause::kRunEnd);
  const schema::Windows& windows = tables_.windows;
  for (auto& [comm, times] : tied_ns_) std::sort(times.begin(), times.end());
  Seen lost, later;
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
  decoder_.AddLoss(Loss::kNcclUntied, lost);
  decoder_.AddLoss(Loss::kNcclUntied, replays_untied_, "replayed by CUDA graphs: nothing says which kernel is whose");
  decoder_.AddLoss(Loss::kNcclUntied, one_sided_,
                   "one-sided (ncclPutSignal, ncclSignal, ncclWaitSignal): they are no rows of collectives or p2p");
  decoder_.AddLoss(Loss::kNcclUntied, device_side_,
                   "device communicators (ncclDevCommCreate): what the program's own kernels send is not known");
  decoder_.AddLoss(Loss::kGpuOutOfWindow, later, "NCCL operations whose kernels began after recording went off");
  decoder_.AddLoss(Loss::kNcclKernelUntied, kernels_untied_);
  decoder_.AddLoss(Loss::kNcclEventOrphan, orphans_);
}

}  // namespace lockstep::trace
