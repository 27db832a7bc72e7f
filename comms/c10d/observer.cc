// Works of c10d's backends that move data in threads of their own (gloo): begin and end of each, from PyTorch's own
// observers. Backends that have a source of their own (MPI, NCCL) are left to it; the ends of others' works are not
// known to be ends of what they move, so these are not recorded.

#include <string.h>

#include <atomic>

#include "comms/c10d/gloo_queue.h"
#include "comms/c10d/groups.h"
#include "comms/c10d/torch_abi.h"
#include "core/collective.h"
#include "core/errno_keeper.h"
#include "core/ring_writer.h"
#include "core/torch_records.h"

namespace lockstep::c10d {
namespace {

constexpr char kBackend[] = "gloo:";

struct Operation {
  const char* name;  // Behind the backend's.
  CollectiveKind kind;
  std::uint8_t message;
};
// torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, profilingTitle (1.13 to 2.15).
constexpr Operation kOperations[] = {
    {"all_reduce", CollectiveKind::kAllReduce, kTorchCollective},
    {"sparse_all_reduce", CollectiveKind::kAllReduce, kTorchCollective},
    {"broadcast", CollectiveKind::kBroadcast, kTorchCollective},
    {"reduce", CollectiveKind::kReduce, kTorchCollective},
    {"all_gather", CollectiveKind::kAllGather, kTorchCollective},
    {"gather", CollectiveKind::kGather, kTorchCollective},
    {"scatter", CollectiveKind::kScatter, kTorchCollective},
    {"reduce_scatter", CollectiveKind::kReduceScatter, kTorchCollective},
    {"all_to_all", CollectiveKind::kAllToAll, kTorchCollective},
    {"barrier", CollectiveKind::kBarrier, kTorchCollective},
    {"send", CollectiveKind::kNone, kTorchSend},
    {"recv", CollectiveKind::kNone, kTorchReceive},
    {"recvAnySource", CollectiveKind::kNone, kTorchReceive},
};

std::atomic<std::uint64_t> g_works{0};
std::atomic<std::uint64_t> g_seen{0};  // Functions of any name.

const Operation* OperationOf(const char* name) {
  if (strncmp(name, kBackend, sizeof kBackend - 1) != 0) return nullptr;
  for (const Operation& operation : kOperations)
    if (strcmp(operation.name, name + sizeof kBackend - 1) == 0) return &operation;
  return nullptr;
}

// The whole array, of what one member's inputs are.
std::uint64_t WholeOf(CollectiveKind kind, std::uint64_t elements, const Group& group) {
  const bool gathers = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kGather;
  return gathers ? elements * static_cast<std::uint64_t>(group.size) : elements;
}

std::unique_ptr<ObserverContext> OnStart(const RecordFunction& function) {
  g_seen.fetch_add(1, std::memory_order_relaxed);
  const Operation* operation = OperationOf(NameOf(function));
  if (operation == nullptr || lockstep_probe.segment == nullptr) return nullptr;
  const ErrnoKeeper errno_keeper;
  const std::uint64_t ticks = ring::Ticks();
  std::int32_t tag = -1;
  const QueuedWork* executing = Executing();
  QueuedWork queued = executing == nullptr ? QueuedWork{} : *executing;
  if (queued.group == nullptr) {
    // A message; or a PyTorch whose queue is not seen, where works begin about in the order of the calls.
    Current call;
    const bool lost = operation->message == kTorchCollective && SeesQueues();
    queued.group = lost ? UnknownGroup() : GroupOfCall(&call);
    queued.peer = call.peer;
    tag = call.tag;
    if (operation->message == kTorchCollective) queued.seq = queued.group->collectives.fetch_add(1);
  }
  const Group& group = *queued.group;
  if (!ring::Recording()) return nullptr;
  const Inputs inputs = InputsOf(function);
  TorchBeginRecord record{};
  record.head = {RecordKind::kTorchBegin, static_cast<std::uint8_t>(operation->kind), 2};
  record.comm = group.number;
  record.ticks = ticks;
  record.work = g_works.fetch_add(1, std::memory_order_relaxed) + 1;
  record.seq = queued.seq;
  record.queued_ticks = queued.ticks;
  if (inputs.known) record.count = WholeOf(operation->kind, inputs.elements, group);
  record.dtype = inputs.dtype;
  record.peer = group.RankOf(queued.peer);
  record.tag = tag;
  record.message = operation->message;
  if (!lockstep_emit_slow(&record, 2, 1)) return nullptr;
  std::unique_ptr<ObserverContext> context(new ObserverContext);
  if (context != nullptr) context->work = record.work;
  return context;
}

void OnEnd(const RecordFunction&, ObserverContext* context) {
  // Written although recording may be off by now: the work began while it was on.
  if (context == nullptr || lockstep_probe.segment == nullptr) return;
  const ErrnoKeeper errno_keeper;
  const TorchEndRecord record{{RecordKind::kTorchEnd, 0, 1}, 0, ring::Ticks(), context->work, 0};
  lockstep_emit_slow(&record, 1, 1);
}

}  // namespace

extern "C" {

// Once PyTorch is loaded; again is the same. 1: works of gloo are observed from now on. Thread: one at a time.
__attribute__((visibility("default"))) int lockstep_hook_torch_observe(void) {
  static int observed = -1;
  if (observed < 0) observed = lockstep_probe.segment != nullptr && Observe(OnStart, OnEnd) ? 1 : 0;
  return observed;
}

// How many functions of its scope the observer was told of: whether it is called at all.
__attribute__((visibility("default"))) unsigned long long lockstep_hook_torch_seen(void) { return g_seen.load(); }
}

}  // namespace lockstep::c10d
