#include "comms/nccl/state.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "comms/nccl/handles.h"

namespace lockstep::nccl {

__thread CallFrame* g_frame __attribute__((tls_model("initial-exec"))) = nullptr;
__thread int g_groups __attribute__((tls_model("initial-exec"))) = 0;

namespace {

constinit Comm g_comms[kMaxComms] = {};
constinit std::atomic<std::uint32_t> g_next_place{0}, g_next_number{0};
constinit CountedLoss g_full("NcclTableFull", "communicators");

constexpr CommRef RefAt(std::uint32_t place, std::uint32_t generation) {
  return std::uint64_t{generation} << 16 | (place + 1);
}

constinit HandleTable<std::atomic, 8192, 64> g_handles;

void WriteComm(Comm& comm, std::uint8_t flags) {
  // A text is written before the record that refers to it, so the ring must exist.
  if (ring::Page() == nullptr) return;
  NcclCommRecord record{};
  record.head = {RecordKind::kNcclComm, static_cast<std::uint8_t>(static_cast<std::uint8_t>(comm.source) | flags), 2};
  record.comm = comm.number;
  record.id = comm.id;
  record.parent = comm.parent;
  record.ticks = flags != 0 ? ring::Ticks() : comm.begin_ticks;
  record.size = comm.size;
  record.rank = comm.rank;
  record.nodes = comm.nodes;
  record.name = comm.name[0] != 0 ? lockstep_intern(comm.name) : 0;
  record.device = comm.device;
  if (ring::Emit(&record, 2) && flags == 0) comm.announced.store(1, std::memory_order_relaxed);
}

// A child's rank file contains none of the parent's communicators.
void InChild() {
  for (Comm& comm : g_comms) comm.announced.store(0, std::memory_order_relaxed);
}

__attribute__((constructor)) void OnLoad() {
  const ErrnoKeeper errno_keeper;
  if (!Inert()) pthread_atfork(nullptr, nullptr, InChild);
}

}  // namespace

void MarkUsed(std::uint32_t source) {
  ProcessEntry* process = lockstep_process();
  if (process != nullptr && (process->nccl_used.load(std::memory_order_relaxed) & source) == 0)
    process->nccl_used.fetch_or(source, std::memory_order_relaxed);
}

Comm* FindComm(CommRef ref) {
  const std::uint64_t place = (ref & 0xffff) - 1;
  if (place >= kMaxComms) return nullptr;
  Comm& comm = g_comms[place];
  return comm.generation.load(std::memory_order_acquire) == ref >> 16 &&
                 comm.state.load(std::memory_order_relaxed) >= Comm::kLive
             ? &comm
             : nullptr;
}

void LearnComm(Comm& comm, const CommFacts& facts) {
  comm.source = facts.source;
  comm.id = facts.id;
  if (facts.parent != 0) comm.parent = facts.parent;
  if (facts.size != 0) comm.size = facts.size;
  if (facts.rank >= 0) comm.rank = facts.rank;
  if (facts.nodes != 0) comm.nodes = facts.nodes;
  if (facts.device >= 0) comm.device = facts.device;
  if (facts.name != nullptr && facts.name[0] != 0) {
    strncpy(comm.name, facts.name, sizeof comm.name - 1);
    comm.name[sizeof comm.name - 1] = 0;
  }
}

CommRef AddComm(const CommFacts& facts) {
  // Entries are used in turn, so that late events of an ended communicator are understood for long: first entries that
  // were never used or were dropped, then ended ones.
  for (const std::uint32_t wanted : {Comm::kFree, Comm::kEnded}) {
    for (std::uint32_t i = 0; i < kMaxComms; ++i) {
      const std::uint32_t place = g_next_place.fetch_add(1, std::memory_order_relaxed) % kMaxComms;
      Comm& comm = g_comms[place];
      std::uint32_t expected = wanted;
      if (!comm.state.compare_exchange_strong(expected, Comm::kFilling, std::memory_order_acquire)) continue;
      const std::uint32_t generation = (comm.generation.load(std::memory_order_relaxed) + 1) | 1;
      comm.generation.store(generation, std::memory_order_release);
      comm.number = kNcclCommBit | (g_next_number.fetch_add(1, std::memory_order_relaxed) + 1);
      comm.size = comm.nodes = 0;
      comm.rank = comm.device = -1;
      comm.parent = 0;
      comm.begin_ticks = ring::Ticks();
      comm.mask = 0xff;
      comm.theirs = nullptr;
      comm.name[0] = 0;
      comm.announced.store(0, std::memory_order_relaxed);
      comm.joined.store(0, std::memory_order_relaxed);
      comm.splits.store(0, std::memory_order_relaxed);
      for (auto& calls : comm.calls) calls.store(0, std::memory_order_relaxed);
      LearnComm(comm, facts);
      comm.state.store(Comm::kLive, std::memory_order_release);
      return RefAt(place, generation);
    }
  }
  if (!Inert()) g_full.Note();
  return 0;
}

void EndComm(CommRef ref) {
  Comm* comm = FindComm(ref);
  std::uint32_t live = Comm::kLive;
  if (comm == nullptr || !comm->state.compare_exchange_strong(live, Comm::kEnded)) return;
  if (!Inert() && comm->announced.load(std::memory_order_relaxed) != 0) WriteComm(*comm, 64);
}

void DropComm(CommRef ref) {
  Comm* comm = FindComm(ref);
  if (comm != nullptr) comm->state.store(Comm::kFree, std::memory_order_release);
}

CommRef OnlyUnjoined(NcclSource source, std::uint32_t size, std::int32_t rank, std::uint64_t since) {
  CommRef found = 0;
  for (std::uint32_t place = 0; place < kMaxComms; ++place) {
    const Comm& comm = g_comms[place];
    if (comm.state.load(std::memory_order_acquire) != Comm::kLive || comm.source != source || comm.size != size ||
        comm.rank != rank || comm.joined.load(std::memory_order_relaxed) != 0 || comm.begin_ticks < since)
      continue;
    if (found != 0) return 0;
    found = RefAt(place, comm.generation.load(std::memory_order_relaxed));
  }
  return found;
}

void Announce(Comm& comm) {
  if (!Inert()) WriteComm(comm, 0);
}

CommRef RefOf(const void* handle) { return g_handles.Find(handle); }

void BindHandle(const void* handle, CommRef ref) {
  if (!g_handles.Bind(handle, ref)) g_full.Note();
}

CommRef UnbindHandle(const void* handle) { return g_handles.Unbind(handle); }

bool WriteLoss(const char* name, const char* detail, std::uint64_t count) {
  if (Inert() || ring::Page() == nullptr) return false;
  LossRecord record{};
  record.head = {RecordKind::kLoss, 0, 2};
  record.name = lockstep_intern(name);
  record.detail = detail != nullptr ? lockstep_intern(detail) : 0;
  record.count = count;
  record.first_ticks = record.last_ticks = ring::Ticks();
  return record.name != 0 && ring::Emit(&record, 2);
}

void WriteFact(const char* format, ...) {
  if (Inert()) return;
  struct {
    StringRecord head;
    char text[480];
  } record{};
  va_list arguments;
  va_start(arguments, format);
  const int n = vsnprintf(record.text, sizeof record.text, format, arguments);
  va_end(arguments);
  if (n <= 0) return;
  const bool cut = static_cast<std::size_t>(n) >= sizeof record.text;
  record.head.bytes = cut ? sizeof record.text - 1 : static_cast<std::uint32_t>(n);
  const auto slots = static_cast<std::uint16_t>(1 + (record.head.bytes + kSlotBytes - 1) / kSlotBytes);
  record.head.head = {RecordKind::kFact, static_cast<std::uint8_t>(cut ? 1 : 0), slots};
  ring::Emit(&record, slots);
}

void CountedLoss::Note() {
  const std::uint64_t seen = seen_.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((seen & (seen - 1)) == 0) Flush();
}

void CountedLoss::Flush() {
  const std::uint64_t seen = seen_.load(std::memory_order_relaxed);
  const std::uint64_t reported = reported_.exchange(seen, std::memory_order_relaxed);
  // The ring may be full, and this record represents several losses, so its count is added to the next one.
  if (seen > reported && !WriteLoss(name_, detail_, seen - reported))
    reported_.fetch_sub(seen - reported, std::memory_order_relaxed);
}

}  // namespace lockstep::nccl
