// The steps of decoding that need all rows of a process: steps, message numbers, partners, order, losses.

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "core/collective.h"
#include "core/hash.h"
#include "core/mpi_ops.h"
#include "core/refused.h"
#include "trace/decode/process_decoder.h"
#include "trace/decode/sort_rows.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

constexpr std::uint64_t kNoSeq = UINT64_MAX;
constexpr std::uint8_t kCancelled = schema::RequestOutcome::kCancelled, kFreed = schema::RequestOutcome::kFreed,
                       kNeverCompleted = schema::RequestOutcome::kNeverCompleted;

struct MessageKey {
  std::uint32_t comm;
  std::int32_t peer, tag;
  std::uint8_t direction;
  friend bool operator==(const MessageKey&, const MessageKey&) = default;
};
struct MessageKeyHash {
  std::size_t operator()(const MessageKey& key) const {
    Hash64 hash;
    hash.Add(std::uint64_t{key.comm} << 32 | static_cast<std::uint32_t>(key.peer));
    hash.Add(std::uint64_t{static_cast<std::uint32_t>(key.tag)} << 8 | key.direction);
    return hash.value();
  }
};

constexpr std::uint8_t kHookStep = schema::StepSource::kTorch;

// The hook opens a step when an optimizer has returned, whether or not another step follows. If it contains neither
// forward nor backward, training was over.
bool TrainedSince(const schema::Ranges& ranges, std::int64_t ns) {
  constexpr std::uint8_t kTorch = schema::RangeSource::kTorch, kForward = schema::Category::kForward,
                         kBackward = schema::Category::kBackward;
  for (std::size_t i = ranges.rows(); i-- > 0;)
    if (ranges.source[i] == kTorch && (ranges.category[i] == kForward || ranges.category[i] == kBackward) &&
        ranges.begin_ns[i] >= ns)
      return true;
  return false;
}

}  // namespace

// A mark ends the open step and begins the next. Sources are not mixed: explicit
// calls win over step ranges, those over ProfilerStep ranges and torch hooks.
void ProcessDecoder::MakeSteps() {
  if (marks_.empty()) return;
  constexpr auto kPreference = [](std::uint8_t source) {
    using schema::StepSource;
    return source == StepSource::kTorch ? 3 : source == StepSource::kProfilerStep ? 2 : int{source};
  };
  const std::uint8_t source = std::min_element(marks_.begin(), marks_.end(), [&](const StepMark& a, const StepMark& b) {
                                return kPreference(a.source) < kPreference(b.source);
                              })->source;
  schema::Steps& steps = tables_.steps;
  const StepMark* open = nullptr;
  const auto close = [&](std::int64_t end_ns, const StepMark* end) {
    if (open == nullptr) return;
    const bool same = end != nullptr && end->thread == open->thread;
    const bool cpu_known = same && open->cpu_ns >= 0 && end->cpu_ns >= open->cpu_ns;
    const bool others_known = cpu_known && open->others_cpu_us != 0 && end->others_cpu_us != 0;
    // Readings a tick of the kernel apart may fall by that.
    const auto others_us = others_known ? static_cast<std::int32_t>(end->others_cpu_us - open->others_cpu_us) : 0;
    steps.Append({.index = open->index,
                  .begin_ns = open->ns,
                  .end_ns = std::max(end_ns, open->ns),
                  .source = source,
                  .complete = end != nullptr,
                  .warmup = 0,
                  .thread = open->thread,
                  .cpu_ns = cpu_known ? end->cpu_ns - open->cpu_ns : -1,
                  .others_cpu_ns = others_known ? std::int64_t{1000} * std::max(0, others_us) : -1});
    open = nullptr;
  };
  for (const StepMark& mark : marks_) {
    if (mark.source != source) continue;
    // Several threads that announce the same step make one step.
    if (!mark.ends && open != nullptr && open->index == mark.index && open->thread != mark.thread) continue;
    close(mark.ns, &mark);
    if (!mark.ends) open = &mark;
  }
  if (source == kHookStep && open != nullptr && !TrainedSince(tables_.ranges, open->ns)) open = nullptr;
  close(life_.last_ns, nullptr);
  // DDP's first two steps differ from the others, and most jobs' first one does.
  const std::size_t rows = steps.rows();
  const std::size_t warmup = rows >= 5 ? 2 : rows >= 2 ? 1 : 0;
  for (std::size_t i = 0; i < warmup; ++i) steps.warmup[i] = 1;
}

// k-th send, and k-th matched receive in the order of posting, of (comm, source,
// destination, tag). p2p is sorted.
void ProcessDecoder::NumberMessages() {
  schema::P2p& p2p = tables_.p2p;
  std::unordered_map<MessageKey, std::uint64_t, MessageKeyHash> next;
  std::vector<std::uint32_t> order(p2p.rows());
  std::iota(order.begin(), order.end(), 0u);
  if (!probed_ns_.empty()) {
    // A matched probe takes its message when it returns, no matter when that is received.
    const auto matched_ns = [&](std::uint32_t row) {
      const auto probed = probed_ns_.find(row);
      return probed != probed_ns_.end() ? probed->second : p2p.begin_ns[row];
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return matched_ns(a) < matched_ns(b); });
  }
  for (const std::uint32_t i : order) {
    if (p2p.mode[i] == static_cast<std::uint8_t>(CollectiveMode::kGpu)) continue;  // Numbered in order of calls.
    if (p2p.seq[i] >= schema::kPartitionedSeq) continue;                           // Numbered when it was made.
    const bool matched = p2p.outcome[i] != kCancelled && !IsRefused(p2p, i) && p2p.peer[i] >= 0 && p2p.tag[i] >= 0;
    p2p.seq[i] = matched ? next[{p2p.comm[i], p2p.peer[i], p2p.tag[i], p2p.direction[i]}]++ : kNoSeq;
    if (p2p.peer[i] < 0) p2p.peer[i] = -1;
    if (p2p.tag[i] < 0) p2p.tag[i] = -1;
  }
}

void ProcessDecoder::FindPeers() {
  constexpr std::uint8_t kInterComm = schema::CommKind::kInter;
  const schema::Comms& comms = tables_.comms;
  const schema::CommMembers& members = tables_.comm_members;
  std::vector<std::size_t> first(comms.rows(), SIZE_MAX);  // Rows of a comm are consecutive.
  std::vector<std::uint32_t> count(comms.rows(), 0);
  for (std::size_t i = 0; i < members.rows(); ++i) {
    first[members.comm[i]] = std::min(first[members.comm[i]], i);
    ++count[members.comm[i]];
  }
  schema::P2p& p2p = tables_.p2p;
  for (std::size_t i = 0; i < p2p.rows(); ++i) {
    const std::uint32_t comm = p2p.comm[i];
    const std::int32_t peer = p2p.peer[i];
    if (comm >= comms.rows() || peer < 0 || comms.kind[comm] == kInterComm) continue;
    if (comms.stride[comm] != 0) {
      if (static_cast<std::uint32_t>(peer) < comms.size[comm] && comms.first_world_rank[comm] >= 0)
        p2p.peer_world_rank[i] = static_cast<std::int32_t>(std::int64_t{comms.first_world_rank[comm]} +
                                                           std::int64_t{peer} * comms.stride[comm]);
    } else if (static_cast<std::uint32_t>(peer) < count[comm]) {
      p2p.peer_world_rank[i] = members.world_rank[first[comm] + static_cast<std::size_t>(peer)];
    }
  }
}

void ProcessDecoder::SortTables() {
  const std::vector<std::uint32_t> calls = SortRows(tables_.mpi_calls, tables_.mpi_calls.begin_ns);
  if (!calls.empty()) {
    const auto follow = [&](std::vector<std::uint32_t>& column) {
      for (std::uint32_t& call : column)
        if (call < calls.size()) call = calls[call];
    };
    follow(tables_.collectives.call);
    follow(tables_.p2p.call);
  }
  SortRows(tables_.collectives, tables_.collectives.begin_ns);
  if (const std::vector<std::uint32_t> moved = SortRows(tables_.p2p, tables_.p2p.begin_ns); !moved.empty()) {
    std::unordered_map<std::uint32_t, std::int64_t> probed;
    for (const auto& [row, ns] : probed_ns_) probed[moved[row]] = ns;
    probed_ns_ = std::move(probed);
  }
  SortRows(tables_.mpi_requests, tables_.mpi_requests.begin_ns);
  SortRows(tables_.steps, tables_.steps.begin_ns);
  SortRows(tables_.cpu_samples, tables_.cpu_samples.time_ns);
  // Ranges are written when they end, so inner ones come first: of those with the same begin, the outer one must come
  // first.
  const schema::Ranges& ranges = tables_.ranges;
  SortRowsBy(tables_.ranges, [&](std::uint32_t a, std::uint32_t b) {
    return std::tie(ranges.begin_ns[a], ranges.thread[a], ranges.depth[a]) <
           std::tie(ranges.begin_ns[b], ranges.thread[b], ranges.depth[b]);
  });
}

void ProcessDecoder::CountLosses() {
  AddToldLosses();
  nccl_.CountLosses();
  AddLoss(Loss::kUnknownRecord, unknown_records_);
  AddLoss(Loss::kRequestUnknown, unknown_requests_);
  AddLoss(Loss::kRangeOpen, open_ranges_);
  std::uint64_t never = 0;
  // NcclUntied counts GPU collectives without an end.
  constexpr auto kGpu = static_cast<std::uint8_t>(CollectiveMode::kGpu);
  for (std::size_t i = 0; i < tables_.collectives.rows(); ++i)
    never += tables_.collectives.end_ns[i] == kNoTime && tables_.collectives.mode[i] != kGpu;
  for (std::size_t i = 0; i < tables_.p2p.rows(); ++i) never += tables_.p2p.outcome[i] == kNeverCompleted;
  for (const std::uint8_t outcome : tables_.mpi_requests.outcome) never += outcome == kNeverCompleted;
  AddLoss(Loss::kRequestNeverCompleted, never);
  std::map<std::uint16_t, std::uint64_t> failed;
  std::uint64_t spawned = 0;
  const schema::MpiCalls& calls = tables_.mpi_calls;
  for (std::size_t i = 0; i < calls.rows(); ++i) {
    if (calls.outcome[i] == schema::CallOutcome::kError) ++failed[calls.op[i]];
    const auto op = static_cast<MpiOp>(calls.op[i]);
    if (op == MpiOp::kComm_spawn || op == MpiOp::kComm_spawn_multiple) spawned += calls.bytes[i];
  }
  for (const auto& [op, count] : failed) {
    const MpiOpInfo* info = FindMpiOp(op);
    AddLoss(Loss::kMpiCallFailed, count, info != nullptr ? info->name : "");
  }
  AddLoss(Loss::kSpawnedUnrecorded, spawned);
  std::uint64_t unidentified = 0;
  for (const std::uint8_t flag : tables_.comms.unidentified) unidentified += flag;
  AddLoss(Loss::kCommUnidentified, unidentified);
  std::uint64_t cut = 0;
  for (const std::uint8_t complete : tables_.steps.complete) cut += complete == 0;
  AddLoss(Loss::kStepIncomplete, cut);
}

}  // namespace lockstep::trace
