// Communicators by handle, with their identity. MPI libraries reuse handles after a free, so an entry is removed before
// the handle is freed.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "comms/pmpi/state.h"
#include "core/hash.h"
#include "core/schema_enums.h"

namespace lockstep::pmpi {
namespace {

// More communicators than MPI libraries have context ids; untouched pages cost nothing.
constexpr std::uint32_t kTableSlots = 1 << 16;
constexpr std::uint64_t kDead = 1;  // A freed entry; searches continue after it.

struct Slot {
  std::atomic<std::uint64_t> handle;
  std::atomic<Comm*> comm;
};
std::atomic<Slot*> g_slots{nullptr};
pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;  // For changes; look-ups take no lock.
std::atomic<std::uint32_t> g_next_number{0};
MPI_Group g_world_group{};  // MPI_COMM_WORLD's, or that of a session's process set of all ranks.
std::uint64_t g_world_id = 0;
bool g_spawned = false;  // This process's MPI_COMM_WORLD is not the job's.

struct Lock {
  Lock() { pthread_mutex_lock(&g_lock); }
  ~Lock() { pthread_mutex_unlock(&g_lock); }
};

std::uint32_t SlotOf(std::uint64_t handle) { return static_cast<std::uint32_t>((handle * 0x9e3779b97f4a7c15u) >> 48); }

// Files and windows are in the same table: handles are addresses of live objects, or name their kind.
void Insert(std::uint64_t handle, Comm* comm) {
  Slot* slots = g_slots.load(std::memory_order_acquire);
  if (slots == nullptr) return;
  const Lock lock;
  std::uint32_t at = SlotOf(handle), place = kTableSlots;
  for (std::uint32_t i = 0; i < kTableSlots - 1; ++i, at = (at + 1) % kTableSlots) {
    const std::uint64_t there = slots[at].handle.load(std::memory_order_relaxed);
    if (there == handle) {
      place = at;
      break;
    }
    if (there == kDead && place == kTableSlots) place = at;
    if (there != 0) continue;
    if (place == kTableSlots) place = at;
    break;
  }
  if (place == kTableSlots) return;  // The table is full: that communicator stays unknown.
  slots[place].comm.store(comm, std::memory_order_relaxed);
  slots[place].handle.store(handle, std::memory_order_release);
}

Comm* NewComm() {
  auto* comm = static_cast<Comm*>(calloc(1, sizeof(Comm)));
  if (comm == nullptr) return nullptr;
  comm->number = g_next_number.fetch_add(1, std::memory_order_relaxed);
  comm->in_degree.store(-1, std::memory_order_relaxed);
  comm->out_degree.store(-1, std::memory_order_relaxed);
  comm->first_world_rank = -1;
  comm->lowest_world_rank = -1;
  return comm;
}

// World ranks of a group's members, malloc'ed; null if it is empty or memory is short.
std::int32_t* WorldRanks(MPI_Group group, int* size) {
  const PmpiTable& mpi = Pmpi();
  *size = 0;
  if (mpi.Group_size(group, size) != MPI_SUCCESS || *size <= 0) return nullptr;
  const auto n = static_cast<std::size_t>(*size);
  auto* ranks = static_cast<std::int32_t*>(malloc(2 * n * sizeof(std::int32_t)));
  if (ranks == nullptr) return nullptr;
  std::int32_t* own = ranks + n;
  for (std::size_t i = 0; i < n; ++i) own[i] = static_cast<std::int32_t>(i);
  const bool known =
      g_world_group != MPI_Group{} && mpi.Group_translate_ranks(group, *size, own, g_world_group, ranks) == MPI_SUCCESS;
  for (std::size_t i = 0; i < n; ++i)
    if (!known || ranks[i] < 0) ranks[i] = -1;  // MPI_UNDEFINED: another job's.
  return ranks;
}

std::int32_t Lowest(const std::int32_t* ranks, int size) {
  std::int32_t lowest = -1;
  for (int i = 0; i < size; ++i)
    if (ranks[i] >= 0 && (lowest < 0 || ranks[i] < lowest)) lowest = ranks[i];
  return lowest;
}

// Takes ownership of `ranks`.
void SetMembers(Comm* comm, std::int32_t* ranks, int size) {
  comm->first_world_rank = size > 0 ? ranks[0] : -1;
  comm->stride = size > 1 ? ranks[1] - ranks[0] : 1;
  bool regular = comm->first_world_rank >= 0 && comm->stride != 0;
  for (int i = 1; i < size && regular; ++i) regular = ranks[i] >= 0 && ranks[i] == ranks[0] + i * comm->stride;
  if (regular) {
    free(ranks);
    return;
  }
  comm->stride = 0;
  comm->members = ranks;
}

void ReadGroups(MPI_Comm handle, Comm* comm) {
  const PmpiTable& mpi = Pmpi();
  int inter = 0, size = 0;
  mpi.Comm_test_inter(handle, &inter);
  mpi.Comm_rank(handle, &comm->rank);
  MPI_Group group{};
  if (mpi.Comm_group(handle, &group) == MPI_SUCCESS) {
    if (std::int32_t* ranks = WorldRanks(group, &size); ranks != nullptr) {
      comm->lowest_world_rank = Lowest(ranks, size);
      SetMembers(comm, ranks, size);
    }
    mpi.Group_free(&group);
  }
  comm->size = size;
  if (inter == 0) return;
  comm->kind = schema::CommKind::kInter;
  if (mpi.Comm_remote_group(handle, &group) != MPI_SUCCESS) return;
  if (std::int32_t* ranks = WorldRanks(group, &size); ranks != nullptr) {
    const std::int32_t lowest = Lowest(ranks, size);
    if (lowest >= 0 && (comm->lowest_world_rank < 0 || lowest < comm->lowest_world_rank))
      comm->lowest_world_rank = lowest;
    free(ranks);
  }
  comm->remote_size = size;
  mpi.Group_free(&group);
}

void Identify(Comm* comm, const Origin& origin) {
  comm->parent_id = origin.parent != nullptr ? origin.parent->global_id : 0;
  comm->unidentified = origin.unidentified || g_spawned || (origin.parent != nullptr && origin.parent->unidentified);
  if (comm->unidentified) return;
  Hash64 hash;
  hash.Add(origin.key != 0 ? origin.key : comm->parent_id);
  hash.Add(origin.nth);
  hash.Add(static_cast<std::uint64_t>(comm->lowest_world_rank));
  comm->global_id = hash.value();
}

// Without members. `flags`: 0x80 unidentified, 0x40 freed, 0x20 renamed.
CommRecord RecordOf(const Comm& comm, std::uint8_t flags) {
  return {{RecordKind::kComm, static_cast<std::uint8_t>(comm.kind | flags), 2},
          comm.number,
          comm.global_id,
          comm.parent_id,
          ring::Ticks(),
          static_cast<std::uint32_t>(comm.size),
          comm.rank,
          comm.first_world_rank,
          comm.stride,
          0,
          0,
          0};
}

// Where the handle is in the table; null if it is not.
Slot* Find(std::uint64_t handle) {
  Slot* slots = g_slots.load(std::memory_order_acquire);
  if (slots == nullptr || handle == 0) return nullptr;
  std::uint32_t at = SlotOf(handle);
  for (std::uint32_t i = 0; i < kTableSlots; ++i, at = (at + 1) % kTableSlots) {
    const std::uint64_t there = slots[at].handle.load(std::memory_order_acquire);
    if (there == handle) return &slots[at];
    if (there == 0) return nullptr;
  }
  return nullptr;
}

// Counts per key. There are few keys, so the search is linear.
struct KeyCount {
  std::uint64_t key;
  std::uint32_t count;
  KeyCount* next;
};
KeyCount* g_keys = nullptr;

void TakeIn(MPI_Comm handle, std::uint64_t id, std::uint8_t kind) {
  Comm* comm = NewComm();
  if (comm == nullptr) return;
  ReadGroups(handle, comm);
  comm->kind = kind;
  comm->unidentified = g_spawned;
  if (!g_spawned) comm->global_id = id;
  Insert(HandleOf(handle), comm);
  Announce(*comm);
}

std::uint64_t IdOf(std::string_view identity, std::int32_t own_rank, int world_size) {
  Hash64 hash;
  hash.Add(identity);
  if (own_rank >= 0) hash.Add(static_cast<std::uint64_t>(own_rank));
  // A process that no MPI launcher started is rank 0 of a world of its own. Several of one job (torchrun, and a
  // program that imports mpi4py) are not members of one communicator.
  if (world_size == 1) {
    hash.Add(static_cast<std::uint64_t>(getpid()));
    hash.Add(ring::Ticks());
  }
  return hash.value();
}

bool MakeTable() {
  if (g_slots.load(std::memory_order_acquire) != nullptr) return true;
  void* memory = mmap(nullptr, kTableSlots * sizeof(Slot), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  g_slots.store(static_cast<Slot*>(memory), std::memory_order_release);
  return true;
}

// Of the session that gives the process its world, until MPI_Init: MPI_COMM_WORLD is the same world.
void NameWorld(int world_size) {
  if (g_world_id == 0) g_world_id = IdOf("MPI_COMM_WORLD", -1, world_size);
}

}  // namespace

void StartComms() {
  const PmpiTable& mpi = Pmpi();
  if (!MakeTable()) return;
  MPI_Comm parent = mpi.comm_null;
  g_spawned = mpi.Comm_get_parent(&parent) == MPI_SUCCESS && parent != mpi.comm_null;
  MPI_Group world{};
  mpi.Comm_group(mpi.comm_world, &world);
  ChangeWorldGroup(world);
  int rank = 0, size = 0;
  mpi.Comm_rank(mpi.comm_world, &rank);
  mpi.Comm_size(mpi.comm_world, &size);
  NameWorld(size);
  TakeIn(mpi.comm_world, g_world_id, 0);
  TakeIn(mpi.comm_self, IdOf("MPI_COMM_SELF", rank, size), 2);
}

bool StartCommsOfSessions(MPI_Group world, int world_size) {
  if (!MakeTable()) return false;
  NameWorld(world_size);
  ChangeWorldGroup(world);
  return true;
}

void ChangeWorldGroup(MPI_Group world) {
  if (g_world_group != MPI_Group{}) Pmpi().Group_free(&g_world_group);
  g_world_group = world;
}

std::uint64_t WorldId() { return g_world_id; }
bool Spawned() { return g_spawned; }

Comm* OwnerOf(std::uint64_t handle) {
  const Slot* slot = Find(handle);
  return slot != nullptr ? slot->comm.load(std::memory_order_relaxed) : nullptr;
}

Comm* FindComm(MPI_Comm handle) { return OwnerOf(HandleOf(handle)); }

void RememberOwner(std::uint64_t handle, Comm* comm) {
  if (handle != 0 && comm != nullptr) Insert(handle, comm);
}

Comm* KnownComm(MPI_Comm handle) {
  Comm* comm = FindComm(handle);
  if (comm != nullptr || handle == MPI_Comm{} || handle == Pmpi().comm_null) return comm;
  Origin origin;
  origin.unidentified = true;
  CommCreated(handle, origin);
  return FindComm(handle);
}

void Announce(Comm& comm) {
  struct {
    CommRecord record;
    std::int32_t members[512 * 8];
  } batch;
  const bool listed = comm.members != nullptr;
  const auto explicit_members = static_cast<std::uint32_t>(listed ? comm.size : 0);
  const std::uint32_t slots = 2 + (explicit_members * 4 + kSlotBytes - 1) / kSlotBytes;
  const std::uint8_t flags = comm.unidentified ? 0x80 : 0;
  CommRecord record = RecordOf(comm, flags);
  record.head.slots = static_cast<std::uint16_t>(slots);
  record.explicit_members = explicit_members;
  if (slots > 0xffff) return;
  const std::uint64_t bytes = std::uint64_t{slots} * kSlotBytes;
  void* memory = bytes <= sizeof batch ? static_cast<void*>(&batch) : malloc(bytes);
  if (memory == nullptr) return;
  memset(memory, 0, bytes);
  memcpy(memory, &record, sizeof record);
  if (listed) memcpy(static_cast<std::byte*>(memory) + sizeof record, comm.members, explicit_members * 4u);
  if (ring::Emit(memory, slots)) comm.announced.store(1, std::memory_order_relaxed);
  if (memory != &batch) free(memory);
}

Origin NextCreation(MPI_Comm parent) {
  Origin origin;
  origin.parent = KnownComm(parent);
  if (origin.parent != nullptr) origin.nth = origin.parent->creations.fetch_add(1, std::memory_order_relaxed);
  return origin;
}

std::uint32_t NextOfKey(std::uint64_t key) {
  const Lock lock;
  for (KeyCount* each = g_keys; each != nullptr; each = each->next)
    if (each->key == key) return each->count++;
  auto* made = static_cast<KeyCount*>(malloc(sizeof(KeyCount)));
  if (made == nullptr) return 0;
  *made = {key, 1, g_keys};
  g_keys = made;
  return 0;
}

void CommCreated(MPI_Comm created, const Origin& origin) {
  if (created == MPI_Comm{} || created == Pmpi().comm_null) return;
  Comm* comm = NewComm();
  if (comm == nullptr) return;
  ReadGroups(created, comm);
  Identify(comm, origin);
  Insert(HandleOf(created), comm);
  Announce(*comm);
}

namespace {

// With the members of its parent.
void MakeLike(std::uint64_t handle, const Origin& origin, std::uint8_t kind) {
  const Comm& parent = *origin.parent;
  Comm* comm = NewComm();
  if (comm == nullptr) return;
  comm->rank = parent.rank;
  comm->size = parent.size;
  comm->remote_size = parent.remote_size;
  comm->lowest_world_rank = parent.lowest_world_rank;
  comm->first_world_rank = parent.first_world_rank;
  comm->stride = parent.stride;
  comm->kind = kind;
  if (parent.members != nullptr) {
    const std::size_t bytes = static_cast<std::size_t>(parent.size) * sizeof(std::int32_t);
    comm->members = static_cast<std::int32_t*>(malloc(bytes));
    if (comm->members != nullptr) memcpy(comm->members, parent.members, bytes);
  }
  Identify(comm, origin);
  Insert(handle, comm);
  Announce(*comm);
}

Comm* Forget(std::uint64_t handle) {
  const Lock lock;
  Slot* slot = Find(handle);
  if (slot == nullptr) return nullptr;
  Comm* comm = slot->comm.load(std::memory_order_relaxed);
  slot->handle.store(kDead, std::memory_order_release);
  return comm;
}

}  // namespace

void CommDuplicating(MPI_Comm created, const Origin& origin) {
  if (created == MPI_Comm{} || created == Pmpi().comm_null || origin.parent == nullptr) return;
  MakeLike(HandleOf(created), origin, origin.parent->inter() ? schema::CommKind::kInter : schema::CommKind::kIntra);
}

void WindowCreated(MPI_Win window, const Origin& origin) {
  if (HandleOf(window) != 0 && origin.parent != nullptr) MakeLike(HandleOf(window), origin, schema::CommKind::kWindow);
}

Comm* ForgetComm(MPI_Comm handle) { return Forget(HandleOf(handle)); }
Comm* ForgetOwner(std::uint64_t handle) { return Forget(handle); }

void CommFreed(Comm* comm) {
  if (comm == nullptr) return;
  const CommRecord record = RecordOf(*comm, 0x40);
  ring::Emit(&record, 2);
  // The Comm itself is kept, because another thread may still use it and jobs free few communicators.
}

void CommRenamed(Comm* comm, const char* name) {
  if (comm == nullptr || name == nullptr) return;
  const std::uint32_t id = lockstep_intern(name);
  if (id == 0) return;
  NumberOf(comm);  // Announces it first.
  CommRecord record = RecordOf(*comm, 0x20);
  record.name = id;
  ring::Emit(&record, 2);
}

std::uint64_t GroupHash(MPI_Group group) {
  int size = 0;
  std::int32_t* ranks = WorldRanks(group, &size);
  Hash64 hash;
  hash.Add(static_cast<std::uint64_t>(size));
  if (ranks != nullptr) {
    std::sort(ranks, ranks + size);
    for (int i = 0; i < size; ++i) hash.Add(static_cast<std::uint64_t>(ranks[i]));
    free(ranks);
  }
  return hash.value();
}

std::int32_t LowestWorldRank(MPI_Group group) {
  int size = 0;
  std::int32_t* ranks = WorldRanks(group, &size);
  const std::int32_t lowest = ranks != nullptr ? Lowest(ranks, size) : -1;
  free(ranks);
  return lowest;
}

namespace {

void AskDegrees(MPI_Comm handle, Comm* comm) {
  const PmpiTable& mpi = Pmpi();
  int topology = MPI_UNDEFINED, in = 0, out = 0, weighted = 0;
  mpi.Topo_test(handle, &topology);
  if (topology == MPI_CART) {
    mpi.Cartdim_get(handle, &in);
    in = out = 2 * in;
  } else if (topology == MPI_GRAPH) {
    mpi.Graph_neighbors_count(handle, comm->rank, &in);
    out = in;
  } else if (topology == MPI_DIST_GRAPH) {
    mpi.Dist_graph_neighbors_count(handle, &in, &out, &weighted);
  }
  comm->out_degree.store(out, std::memory_order_relaxed);
  comm->in_degree.store(in, std::memory_order_relaxed);
}

}  // namespace

std::uint32_t InDegree(MPI_Comm handle, Comm* comm) {
  if (comm == nullptr) return 0;
  if (comm->in_degree.load(std::memory_order_relaxed) < 0) AskDegrees(handle, comm);
  return static_cast<std::uint32_t>(comm->in_degree.load(std::memory_order_relaxed));
}

std::uint32_t OutDegree(MPI_Comm handle, Comm* comm) {
  if (comm == nullptr) return 0;
  if (comm->in_degree.load(std::memory_order_relaxed) < 0) AskDegrees(handle, comm);
  return static_cast<std::uint32_t>(comm->out_degree.load(std::memory_order_relaxed));
}

}  // namespace lockstep::pmpi
