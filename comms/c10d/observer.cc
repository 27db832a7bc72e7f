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
std::atomic<std::uint64_t> g_seen{0};       // Functions of any name.
thread_local std::uint64_t t_from_any = 0;  // The last receive from any source that this thread posted.

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

// Of the others what a call names as root is that of a call around them: gather_object() begins with an all-gather.
bool HasRoot(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kScatter;
}

std::unique_ptr<ObserverContext> OnStart(const RecordFunction& function) {
  g_seen.fetch_add(1, std::memory_order_relaxed);
  const Operation* operation = OperationOf(NameOf(function));
  if (operation == nullptr || lockstep_probe.segment == nullptr) return nullptr;
  const ErrnoKeeper errno_keeper;
  const std::uint64_t ticks = ring::Ticks();
  std::int32_t tag = -1;
  ExecutedWork* executing = Executing();
  QueuedWork queued = executing == nullptr ? QueuedWork{} : executing->queued;
  if (queued.group == nullptr) {
    // A message; or a PyTorch whose queue is not seen, where works begin about in the order of the calls.
    Current call;
    const bool lost = operation->message == kTorchCollective && SeesQueues();
    // Within a call that is no message: PyTorch's own messages for it, as of monitored_barrier().
    if (operation->message != kTorchCollective && InCollective()) return nullptr;
    queued.group = lost ? UnknownGroup() : GroupOfCall(&call);
    queued.peer = call.peer;
    tag = call.tag;
    if (operation->message == kTorchCollective) queued.seq = queued.group->collectives.fetch_add(1);
  }
  const Group& group = *queued.group;
  if (!ring::Recording()) return nullptr;
  // A message is begun by who calls for it.
  if (executing == nullptr) queued.stack = ring::CallStack();
  const Inputs inputs = InputsOf(function);
  TorchBeginRecord record{};
  record.peer = -1;
  record.head = {RecordKind::kTorchBegin, static_cast<std::uint8_t>(operation->kind), 2};
  record.comm = group.number;
  record.ticks = ticks;
  record.work = g_works.fetch_add(1, std::memory_order_relaxed) + 1;
  record.seq = queued.seq;
  record.queued_ticks = queued.ticks;
  if (inputs.known) record.count = WholeOf(operation->kind, inputs.elements, group);
  record.dtype = inputs.dtype;
  if (operation->message != kTorchCollective || HasRoot(operation->kind)) record.peer = group.RankOf(queued.peer);
  record.tag = tag;
  record.message = operation->message;
  record.stack = queued.stack;
  if (!lockstep_emit_slow(&record, 2, 1)) return nullptr;
  if (record.message == kTorchReceive && record.peer < 0) t_from_any = record.work;
  if (executing != nullptr && executing->recorded_as == 0) executing->recorded_as = record.work;
  std::unique_ptr<ObserverContext> context(new ObserverContext);
  if (context != nullptr) context->work = record.work;
  return context;
}

void EmitEnd(std::uint64_t work, std::uint64_t ticks, std::uint32_t source = 0) {
  const TorchEndRecord record{{RecordKind::kTorchEnd, 0, 1}, source, ticks, work, 0};
  lockstep_emit_slow(&record, 1, 1);
}

void OnEnd(const RecordFunction&, ObserverContext* context) {
  // Written although recording may be off by now: the work began while it was on.
  if (context == nullptr || lockstep_probe.segment == nullptr) return;
  const ErrnoKeeper errno_keeper;
  const ExecutedWork* executing = Executing();
  const bool done = executing != nullptr && executing->recorded_as == context->work && executing->done_ticks != 0;
  EmitEnd(context->work, done ? executing->done_ticks : ring::Ticks());
}

}  // namespace

extern "C" {

// Once PyTorch is loaded; again is the same. 1: works of gloo are observed from now on. Thread: one at a time.
__attribute__((visibility("default"))) int lockstep_hook_torch_observe(void) {
  static int observed = -1;
  if (observed < 0) observed = lockstep_probe.segment != nullptr && Observe(OnStart, OnEnd) ? 1 : 0;
  return observed;
}

// A barrier that PyTorch makes of messages begins on the calling thread (monitored_barrier), on the group of this
// number: the work's number, 0 none.
__attribute__((visibility("default"))) unsigned long long lockstep_hook_torch_barrier(unsigned number) {
  if (lockstep_probe.segment == nullptr) return 0;
  const ErrnoKeeper errno_keeper;
  Group* group = GroupOf(number);
  const std::uint64_t seq = group->collectives.fetch_add(1);
  if (!ring::Recording()) return 0;
  TorchBeginRecord record{};
  record.head = {RecordKind::kTorchBegin, static_cast<std::uint8_t>(CollectiveKind::kBarrier), 2};
  record.comm = group->number;
  record.ticks = record.queued_ticks = ring::Ticks();
  record.work = g_works.fetch_add(1, std::memory_order_relaxed) + 1;
  record.seq = seq;
  record.peer = record.tag = -1;
  record.message = kTorchCollective;
  record.stack = ring::CallStack();
  return lockstep_emit_slow(&record, 2, 1) ? record.work : 0;
}

// It has ended. 0: none.
__attribute__((visibility("default"))) void lockstep_hook_torch_barrier_end(unsigned long long work) {
  if (work == 0 || lockstep_probe.segment == nullptr) return;
  const ErrnoKeeper errno_keeper;
  EmitEnd(work, ring::Ticks());
}

// The calling thread's last receive from any source, once; 0 none.
__attribute__((visibility("default"))) unsigned long long lockstep_hook_torch_from_any(void) {
  const std::uint64_t work = t_from_any;
  t_from_any = 0;
  return work;
}

// Who sent it: a rank of the world, or (the other being -1) of the group of this number.
__attribute__((visibility("default"))) void lockstep_hook_torch_source(unsigned long long work, unsigned number,
                                                                       int world_rank, int rank) {
  if (work == 0 || lockstep_probe.segment == nullptr) return;
  const ErrnoKeeper errno_keeper;
  if (rank < 0) rank = GroupOf(number)->RankOf(world_rank);
  if (rank >= 0) EmitEnd(work, ring::Ticks(), static_cast<std::uint32_t>(rank) + 1);
}

// How many functions of its scope the observer was told of: whether it is called at all.
__attribute__((visibility("default"))) unsigned long long lockstep_hook_torch_seen(void) { return g_seen.load(); }
}

}  // namespace lockstep::c10d
