#include "comms/pmpi/state.h"

#include <dlfcn.h>

namespace lockstep::pmpi {

void StartComms();
void StopComms();
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

void Activate(int thread_level) {
  const PmpiTable& mpi = Pmpi();
  ProcessEntry* process = mpi.complete && lockstep_probe.segment != nullptr ? lockstep_process() : nullptr;
  if (process == nullptr) {
    g_mode.store(Mode::kPass, std::memory_order_relaxed);
    return;
  }
  StartTypes();
  StartComms();
  int rank = 0, size = 0;
  mpi.Comm_rank(mpi.comm_world, &rank);
  mpi.Comm_size(mpi.comm_world, &size);
  if (!Spawned()) {
    process->world_rank.store(rank, std::memory_order_relaxed);
    process->world_size.store(size, std::memory_order_relaxed);
    process->rank_source.store(1, std::memory_order_relaxed);
  }
  const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
  for (std::uint8_t i = 0; i < 4; ++i)
    if (levels[i] == thread_level) process->mpi_thread_level.store(i, std::memory_order_relaxed);
  process->self_test.store(CallsReachUs() ? 1 : 2, std::memory_order_relaxed);
  process->mpi_used.store(1, std::memory_order_relaxed);
  process->mpi_initialized.store(1, std::memory_order_release);
  g_mode.store(Mode::kActive, std::memory_order_release);
}

void Deactivate() {
  StopComms();
  g_mode.store(Mode::kPass, std::memory_order_release);
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
