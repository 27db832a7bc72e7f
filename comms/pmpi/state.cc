#include "comms/pmpi/state.h"

#include <dlfcn.h>
#include <pthread.h>

namespace lockstep::pmpi {

void StartComms();
bool StartCommsOfSessions(MPI_Group world, int world_size);
void StartTypes();

std::atomic<Mode> g_mode{Mode::kUnknown};

namespace {

// Mprobe's messages that were not received yet. If the table is full, only the communicator of a receive is lost.
struct Pending {
  std::atomic<std::uint64_t> message{0};  // 0 free, 1 being changed.
  MatchedMessage matched{};
};
constexpr std::uint32_t kPendingSlots = 1024;
constinit Pending g_pending[kPendingSlots];

std::uint32_t SlotOf(std::uint64_t message) {
  return static_cast<std::uint32_t>((message * 0x9e3779b97f4a7c15u) >> 54);
}

}  // namespace

const void* g_entry = nullptr;

// The application's calls reach the wrappers only if their entry point is the first definition in its scope.
bool CallsReachUs() { return dlsym(RTLD_DEFAULT, "MPI_Allreduce") == g_entry; }

namespace {

// What of MPI is open. The world and any number of sessions may be, and sessions open and close on any thread.
pthread_mutex_t g_open_lock = PTHREAD_MUTEX_INITIALIZER;
bool g_world = false;
bool g_types = false;
constexpr int kSessions = 64;  // Those beyond it give no world when the others are gone.
struct {
  bool open;
  MPI_Session session;
} g_sessions[kSessions];
int g_sessions_open = 0;
int g_gives_world = -1;  // The session whose group names ranks.

class OpenLock {
 public:
  OpenLock() { pthread_mutex_lock(&g_open_lock); }
  ~OpenLock() { pthread_mutex_unlock(&g_open_lock); }
  OpenLock(const OpenLock&) = delete;
  OpenLock& operator=(const OpenLock&) = delete;
};

// This process's entry; null if nothing can be recorded.
ProcessEntry* Recorded() { return Pmpi().complete && lockstep_probe.segment != nullptr ? lockstep_process() : nullptr; }

void Join(ProcessEntry& process, int rank, int size) {
  if (!Spawned()) {
    process.world_rank.store(rank, std::memory_order_relaxed);
    process.world_size.store(size, std::memory_order_relaxed);
    process.rank_source.store(1, std::memory_order_relaxed);
  }
  process.self_test.store(CallsReachUs() ? 1 : 2, std::memory_order_relaxed);
  process.mpi_used.store(1, std::memory_order_relaxed);
  process.mpi_finalized.store(0, std::memory_order_relaxed);
  process.mpi_initialized.store(1, std::memory_order_release);
}

void KnowTypes() {
  if (!g_types) StartTypes();
  g_types = true;
}

// A session that is open names the ranks; none does without one.
MPI_Group WorldOfSession() {
  g_gives_world = -1;
  for (int i = 0; i < kSessions; ++i) {
    MPI_Group world{};
    if (!g_sessions[i].open ||
        Pmpi().Group_from_session_pset(g_sessions[i].session, "mpi://WORLD", &world) != MPI_SUCCESS)
      continue;
    g_gives_world = i;
    return world;
  }
  return MPI_Group{};
}

void NothingIsLeft() {
  ChangeWorldGroup(MPI_Group{});
  g_gives_world = -1;
  g_mode.store(Mode::kPass, std::memory_order_release);
}

}  // namespace

void Activate(int thread_level) {
  const OpenLock lock;
  const PmpiTable& mpi = Pmpi();
  ProcessEntry* process = Recorded();
  if (process == nullptr) {
    g_mode.store(Mode::kPass, std::memory_order_relaxed);
    return;
  }
  KnowTypes();
  StartComms();
  g_world = true;
  g_gives_world = -1;
  int rank = 0, size = 0;
  mpi.Comm_rank(mpi.comm_world, &rank);
  mpi.Comm_size(mpi.comm_world, &size);
  const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
  for (std::uint8_t i = 0; i < 4; ++i)
    if (levels[i] == thread_level) process->mpi_thread_level.store(i, std::memory_order_relaxed);
  Join(*process, rank, size);
  g_mode.store(Mode::kActive, std::memory_order_release);
}

bool Deactivate() {
  const OpenLock lock;
  g_world = false;
  if (g_sessions_open == 0)
    NothingIsLeft();
  else
    ChangeWorldGroup(WorldOfSession());
  return g_sessions_open == 0;
}

void SessionOpened(MPI_Session session) {
  const OpenLock lock;
  ProcessEntry* process = Recorded();
  if (process == nullptr) return;
  ++g_sessions_open;
  for (auto& entry : g_sessions) {
    if (entry.open) continue;
    entry = {true, session};
    break;
  }
  if (g_world || Active()) return;
  KnowTypes();
  const MPI_Group world = WorldOfSession();
  int rank = -1, size = 0;
  if (world != MPI_Group{}) {
    Pmpi().Group_rank(world, &rank);
    Pmpi().Group_size(world, &size);
  }
  if (!StartCommsOfSessions(world, size)) return;
  if (rank >= 0) Join(*process, rank, size);
  g_mode.store(Mode::kActive, std::memory_order_release);
}

bool SessionCloses(MPI_Session session) {
  const OpenLock lock;
  for (int i = 0; i < kSessions; ++i) {
    if (!g_sessions[i].open || HandleOf(g_sessions[i].session) != HandleOf(session)) continue;
    g_sessions[i].open = false;
    // A group must not outlive its session.
    if (i == g_gives_world) ChangeWorldGroup(WorldOfSession());
    break;
  }
  if (--g_sessions_open == 0 && !g_world) NothingIsLeft();
  return g_sessions_open == 0 && !g_world;
}

void RememberMessage(MPI_Message message, const MatchedMessage& matched) {
  const std::uint64_t key = HandleOf(message);
  if (key <= 1) return;
  std::uint32_t slot = SlotOf(key);
  for (std::uint32_t i = 0; i < kPendingSlots; ++i, slot = (slot + 1) % kPendingSlots) {
    std::uint64_t expected = 0;
    if (!g_pending[slot].message.compare_exchange_strong(expected, 1)) continue;
    g_pending[slot].matched = matched;
    g_pending[slot].message.store(key, std::memory_order_release);
    return;
  }
}

MatchedMessage TakeMessage(MPI_Message message) {
  const std::uint64_t key = HandleOf(message);
  std::uint32_t slot = SlotOf(key);
  // Removal leaves holes, so a miss searches the whole table; a hit is near.
  for (std::uint32_t i = 0; key > 1 && i < kPendingSlots; ++i, slot = (slot + 1) % kPendingSlots) {
    std::uint64_t expected = key;
    if (g_pending[slot].message.load(std::memory_order_relaxed) != key) continue;
    const MatchedMessage matched = g_pending[slot].matched;
    if (g_pending[slot].message.compare_exchange_strong(expected, 0, std::memory_order_acq_rel)) return matched;
  }
  return {kNoComm, -2, -2, 0};
}

}  // namespace lockstep::pmpi
