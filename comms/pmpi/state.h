#pragma once
// State of the wrappers: whether they record at all, communicators and their identities, sizes of
// datatypes. Thread-safe under MPI_THREAD_MULTIPLE; looking up is lock-free, creating a communicator takes
// a lock.

#include <atomic>
#include <cstdint>

#include "comms/pmpi/pmpi_table.h"
#include "core/collective.h"
#include "core/ring_writer.h"

namespace lockstep::pmpi {

enum class Mode : int {
  kUnknown = 0,  // MPI has not started yet.
  kPass = 1,     // Functions are missing, not profiled, or finalised: calls are passed on unchanged.
  kActive = 2,
};
extern std::atomic<Mode> g_mode;

// True between MPI_Init and MPI_Finalize of a profiled process.
inline bool Active() { return g_mode.load(std::memory_order_relaxed) == Mode::kActive; }

// The data behind a predefined handle of Open MPI, as libmpi sees it.
void* FindHandle(void* library, const char* symbol);

// MPI has started: fills in everything below. `thread_level` as MPI reported it.
void Activate(int thread_level);
// MPI_Finalize begins. Returns whether nothing of MPI is left: no session is open.
bool Deactivate();
// A session was opened: a process without MPI_Init records from now on, too.
void SessionOpened(MPI_Session session);
// It will be closed: call this before the PMPI function that closes it. Returns whether nothing of MPI is left then.
bool SessionCloses(MPI_Session session);
// The application is about to finalise MPI, by whatever name it calls it: makes the last exchanges. Later calls do
// nothing.
void FinalizeBegins();
// The self-test: whether the application's calls reach these wrappers. `g_entry`: the entry point of MPI_Allreduce.
extern const void* g_entry;
bool CallsReachUs();
// This process was started by MPI_Comm_spawn. After Activate.
bool Spawned();
// The identity of the world of all ranks, for communicators that are made without a parent.
std::uint64_t WorldId();
// comm_table.cc: by which ranks are named, of MPI_COMM_WORLD or of a session; MPI_Group{}: none is known. Frees the one
// before.
void ChangeWorldGroup(MPI_Group world);

struct Comm {
  std::uint64_t global_id, parent_id;
  std::uint32_t number;                             // Process-wide, of the records.
  std::atomic<std::uint32_t> collectives;           // Sequence: collectives called on it so far, recorded or not.
  std::atomic<std::uint32_t> creations;             // Communicators made from it so far.
  std::atomic<std::uint32_t> announced;             // 1: its CommRecord is in a ring.
  std::int32_t rank, size, remote_size;             // remote_size 0: an intra-communicator.
  std::int32_t lowest_world_rank;                   // Of both groups.
  std::int32_t first_world_rank, stride;            // stride 0: `members`.
  std::int32_t* members;                            // World ranks, -1 unknown; null if there is a stride.
  std::atomic<std::int32_t> in_degree, out_degree;  // Topology's, -1 not asked yet.
  std::uint8_t kind;                                // comms.kind
  bool unidentified;

  // Members whose data a collective concerns.
  std::uint32_t peers() const { return static_cast<std::uint32_t>(remote_size != 0 ? remote_size : size); }
  bool inter() const { return remote_size != 0; }
};

// Null for communicators that were made where the wrappers do not see it (Fortran) and for invalid
// handles.
Comm* FindComm(MPI_Comm comm);
// The same, but an unknown communicator is added as unidentified.
Comm* KnownComm(MPI_Comm comm);

// The next sequence number. Collectives on one communicator are ordered by the
// application, so load and store are enough.
inline std::uint32_t NextSeq(Comm* comm) {
  if (comm == nullptr) return 0;
  const std::uint32_t seq = comm->collectives.load(std::memory_order_relaxed);
  comm->collectives.store(seq + 1, std::memory_order_relaxed);
  return seq;
}

// The number used in records; the CommRecord is written first if it is not in a ring yet.
void Announce(Comm& comm);
inline std::uint32_t NumberOf(Comm* comm) {
  if (comm == nullptr) return kNoComm;
  if (comm->announced.load(std::memory_order_relaxed) == 0) [[unlikely]]
    Announce(*comm);
  return comm->number;
}

// How a new communicator gets its identity: by one rule for each kind of creation, without a message.
struct Origin {
  Comm* parent = nullptr;
  std::uint64_t key = 0;  // create_group, intercomm_create: the key by which creations are counted. 0: by the parent.
  std::uint32_t nth = 0;  // n-th creation on the parent, or with this key.
  bool unidentified = false;  // spawn, accept, join.
};
// Takes the number of the creation that begins now on `parent`.
Origin NextCreation(MPI_Comm parent);
// Numbers of creations that are counted by a key of their own.
std::uint32_t NextOfKey(std::uint64_t key);

// A communicator was created. MPI_COMM_NULL is ignored. Idempotent per handle.
void CommCreated(MPI_Comm created, const Origin& origin);
// Comm_idup: the result cannot be used yet, so everything is taken from the parent.
void CommDuplicating(MPI_Comm created, const Origin& origin);
// The handle will be freed: call this before the PMPI function that frees it.
Comm* ForgetComm(MPI_Comm comm);
// Records the end after it was freed.
void CommFreed(Comm* comm);
void CommRenamed(Comm* comm, const char* name);
// Sorted world ranks of a group as a hash.
std::uint64_t GroupHash(MPI_Group group);
std::int32_t LowestWorldRank(MPI_Group group);
// In and out neighbours of a communicator with a topology.
std::uint32_t InDegree(MPI_Comm handle, Comm* comm);
std::uint32_t OutDegree(MPI_Comm handle, Comm* comm);

// A window was created: it has the members of its communicator, and counts its own fences.
void WindowCreated(MPI_Win window, const Origin& origin);

// Files: the communicator on which they were opened. Windows: their own. A handle is forgotten before the call that
// frees it.
void RememberOwner(std::uint64_t handle, Comm* comm);
Comm* OwnerOf(std::uint64_t handle);
Comm* ForgetOwner(std::uint64_t handle);

struct TypeInfo {
  std::uint32_t size_bytes;
  DataType type;
};
TypeInfo TypeOf(MPI_Datatype type);

// Messages between Mprobe and Mrecv.
struct MatchedMessage {
  std::uint32_t comm;
  std::int32_t source, tag;
  std::uint64_t ticks;  // Return of the probe: the order of matching.
};
void RememberMessage(MPI_Message message, const MatchedMessage& matched);
MatchedMessage TakeMessage(MPI_Message message);

}  // namespace lockstep::pmpi
