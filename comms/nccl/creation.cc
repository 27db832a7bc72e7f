// Interposes the functions that make communicators. A communicator that the plugin knows has NCCL's own id; the
// identity of any other is a hash that all its ranks compute alike: of the unique id, or of the parent's identity, the
// number of communicators made of it before, and the colour.

#include <unistd.h>

#include "comms/nccl/traced.h"
#include "core/hash.h"

namespace lockstep::nccl {
namespace {

struct Made {
  CommFacts facts{NcclSource::kInterposed};
  std::uint64_t since = 0;       // Ticks before the call.
  const void* caller = nullptr;  // For a split: the caller whose NCCL is asked.
};

// The number under which the plugin knows the communicator; 0: it does not, or several communicators are possible.
CommRef PluginsOf(const CallFrame& frame, const Made& made) {
  if (frame.inits == 1) return frame.seen;
  return made.facts.size == 0 ? 0 : OnlyUnjoined(NcclSource::kPlugin, made.facts.size, made.facts.rank, made.since);
}

void Adopt(CommHandle handle, const CallFrame& frame, const Made& made) {
  if (handle == nullptr) return;
  MarkUsed(kUsedInterposed);
  CommRef ref = PluginsOf(frame, made);
  if (Comm* comm = FindComm(ref); comm != nullptr)
    comm->joined.store(1, std::memory_order_relaxed);
  else
    ref = AddComm(made.facts);
  BindHandle(handle, ref);
}

// Rank and size of a communicator that is ready. NCCL is asked if no plugin has them.
void AskNccl(CommHandle handle, const void* caller, CommFacts& facts) {
  using Query = Result (*)(CommHandle, int*);
  const auto count = reinterpret_cast<Query>(FindReal("ncclCommCount", nullptr, caller));
  const auto rank = reinterpret_cast<Query>(FindReal("ncclCommUserRank", nullptr, caller));
  int value = 0;
  if (count != nullptr && count(handle, &value) == kSuccess && value > 0)
    facts.size = static_cast<std::uint32_t>(value);
  if (rank != nullptr && rank(handle, &value) == kSuccess && value >= 0) facts.rank = value;
}

std::uint64_t HashOf(const UniqueId* ids, int count) {
  Hash64 hash;
  for (int i = 0; i < count; ++i) hash.Add(std::string_view(ids[i].internal, sizeof ids[i].internal));
  return hash.value();
}

// A call that makes one communicator from a parent (null: from none).
template <typename Call>
Result Create(const char* name, CommHandle* out, Made made, CommHandle parent, Call&& call) {
  if (g_frame != nullptr || Inert()) return call();
  CallFrame frame;
  frame.creating = true;
  frame.parent = made.facts.parent;
  frame.name = made.facts.name;
  made.since = ring::Ticks();
  const bool recording = ring::Recording();
  const Result result = Framed(frame, call);
  const std::uint64_t end = ring::Ticks();
  const ErrnoKeeper errno_keeper;
  CommHandle handle = out != nullptr && (result == kSuccess || result == kInProgress) ? *out : nullptr;
  if (handle != nullptr) {
    if ((made.facts.size == 0 || made.facts.rank < 0) && frame.inits == 0 && result == kSuccess && g_groups == 0)
      AskNccl(handle, made.caller, made.facts);
    Adopt(handle, frame, made);
  }
  // A communicator that is not ready yet is not recorded, because the plugin may still report its id.
  const bool ready = handle != nullptr && g_groups == 0 && result == kSuccess;
  if (recording)
    WriteCall({name}, ready ? RefOf(handle) : parent != nullptr ? RefOf(parent) : 0, 0, made.since, end, result);
  else if (ready)
    NumberOf(FindComm(RefOf(handle)));  // Recorded although recording is off, because later records refer to it.
  return result;
}

// Describes the n-th communicator made from `parent` with that colour.
Made ChildOf(CommHandle parent, std::int64_t color, const Config* config, const void* caller) {
  Made made;
  made.caller = caller;
  Comm* comm = FindComm(RefOf(parent));
  if (comm == nullptr) return made;
  Hash64 hash;
  hash.Add(comm->id);
  hash.Add(comm->splits.fetch_add(1, std::memory_order_relaxed));
  hash.Add(static_cast<std::uint64_t>(color));
  made.facts.id = hash.value();
  made.facts.parent = comm->id;
  made.facts.name = NameIn(config);
  return made;
}

template <typename Call>
Result End(const char* name, CommHandle handle, bool dies, Call&& call) {
  if (g_frame != nullptr || Inert()) return call();
  const CommRef ref = RefOf(handle);
  // Another communicator may get the address as soon as it is free.
  if (dies) UnbindHandle(handle);
  CallFrame frame;
  const bool recording = ring::Recording();
  const std::uint64_t begin = ring::Ticks();
  const Result result = Framed(frame, call);
  const std::uint64_t end = ring::Ticks();
  const ErrnoKeeper errno_keeper;
  if (recording) WriteCall({name}, ref, 0, begin, end, result);
  if (dies) EndComm(ref);
  return result;
}

Made OfId(const UniqueId* ids, int id_count, int ranks, int rank, const Config* config) {
  Made made;
  made.facts.id = HashOf(ids, id_count);
  made.facts.size = static_cast<std::uint32_t>(ranks);
  made.facts.rank = rank;
  made.facts.name = NameIn(config);
  return made;
}

}  // namespace
}  // namespace lockstep::nccl

using namespace lockstep;
using namespace lockstep::nccl;

LS_EXPORT Result ncclCommInitRank(CommHandle* comm, int ranks, UniqueId id, int rank) {
  return Create("ncclCommInitRank", comm, OfId(&id, 1, ranks, rank, nullptr), nullptr,
                LS_REAL(ncclCommInitRank, comm, ranks, id, rank));
}

LS_EXPORT Result ncclCommInitRankConfig(CommHandle* comm, int ranks, UniqueId id, int rank, Config* config) {
  return Create("ncclCommInitRankConfig", comm, OfId(&id, 1, ranks, rank, config), nullptr,
                LS_REAL(ncclCommInitRankConfig, comm, ranks, id, rank, config));
}

LS_EXPORT Result ncclCommInitRankScalable(CommHandle* comm, int ranks, int rank, int id_count, UniqueId* ids,
                                          Config* config) {
  return Create("ncclCommInitRankScalable", comm, OfId(ids, ids != nullptr ? id_count : 0, ranks, rank, config),
                nullptr, LS_REAL(ncclCommInitRankScalable, comm, ranks, rank, id_count, ids, config));
}

// All ranks of a communicator are in this process, so no other process needs its identity.
LS_EXPORT Result ncclCommInitAll(CommHandle* comms, int devices, const int* list) {
  const auto inner = LS_REAL(ncclCommInitAll, comms, devices, list);
  if (g_frame != nullptr || Inert()) return inner();
  CallFrame frame;
  frame.creating = true;
  const std::uint64_t begin = ring::Ticks();
  const bool recording = ring::Recording();
  const Result result = Framed(frame, inner);
  const std::uint64_t end = ring::Ticks();
  const ErrnoKeeper errno_keeper;
  Hash64 hash;
  hash.Add(lockstep_probe.segment->run_hash);
  hash.Add(static_cast<std::uint64_t>(getpid()));
  hash.Add(begin);
  for (int rank = 0; rank < devices && comms != nullptr && result == kSuccess; ++rank) {
    Made made;
    made.facts.id = hash.value();
    made.facts.size = static_cast<std::uint32_t>(devices);
    made.facts.rank = rank;
    made.facts.device = list != nullptr ? list[rank] : rank;
    made.since = begin;
    CallFrame none;
    if (devices == 1) none = frame;
    Adopt(comms[rank], none, made);
  }
  if (recording) WriteCall({"ncclCommInitAll"}, 0, 0, begin, end, result);
  return result;
}

LS_EXPORT Result ncclCommSplit(CommHandle comm, int color, int key, CommHandle* made, Config* config) {
  return Create("ncclCommSplit", made, ChildOf(comm, color, config, __builtin_return_address(0)), comm,
                LS_REAL(ncclCommSplit, comm, color, key, made, config));
}

LS_EXPORT Result ncclCommShrink(CommHandle comm, int* excluded, int excluded_count, CommHandle* made, Config* config,
                                int flags) {
  return Create("ncclCommShrink", made, ChildOf(comm, -2, config, __builtin_return_address(0)), comm,
                LS_REAL(ncclCommShrink, comm, excluded, excluded_count, made, config, flags));
}

// From one that exists (ranks that were in it), or into one (`parent` null, with the id that its root made). All ranks
// must come to one identity, so it is of what all of them are told: of the id, if it were; but those who were in it are
// not. Without a plugin nobody but NCCL knows it then, and ranks that join go without an identity.
LS_EXPORT Result ncclCommGrow(CommHandle parent, int ranks, const UniqueId* id, int rank, CommHandle* made,
                              Config* config) {
  Made grown = ChildOf(parent, -3, config, __builtin_return_address(0));
  grown.facts.name = NameIn(config);
  grown.facts.size = ranks > 0 ? static_cast<std::uint32_t>(ranks) : 0;
  if (parent == nullptr) grown.facts.rank = rank;
  grown.facts.id = 0;
  return Create("ncclCommGrow", made, grown, parent, LS_REAL(ncclCommGrow, parent, ranks, id, rank, made, config));
}

// What is in flight stops; the communicator is there until it is destroyed, and may be split or shrunk.
LS_EXPORT Result ncclCommRevoke(CommHandle comm, int flags) {
  return End("ncclCommRevoke", comm, false, LS_REAL(ncclCommRevoke, comm, flags));
}
// Its memory is given back, and taken again (2.30).
LS_EXPORT Result ncclCommSuspend(CommHandle comm, int flags) {
  return End("ncclCommSuspend", comm, false, LS_REAL(ncclCommSuspend, comm, flags));
}
LS_EXPORT Result ncclCommResume(CommHandle comm) {
  return End("ncclCommResume", comm, false, LS_REAL(ncclCommResume, comm));
}

LS_EXPORT Result ncclCommFinalize(CommHandle comm) {
  return End("ncclCommFinalize", comm, false, LS_REAL(ncclCommFinalize, comm));
}
LS_EXPORT Result ncclCommDestroy(CommHandle comm) {
  return End("ncclCommDestroy", comm, true, LS_REAL(ncclCommDestroy, comm));
}
LS_EXPORT Result ncclCommAbort(CommHandle comm) {
  return End("ncclCommAbort", comm, true, LS_REAL(ncclCommAbort, comm));
}
