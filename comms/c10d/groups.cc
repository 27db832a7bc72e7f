#include "comms/c10d/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <new>

#include "comms/c10d/backends.h"
#include "core/errno_keeper.h"
#include "core/hash.h"
#include "core/ring_writer.h"
#include "core/schema_enums.h"

namespace lockstep::c10d {
namespace {

// Above the numbers of MPI's communicators, which are counted from 0 in the same process.
constexpr std::uint32_t kFirstNumber = 0xc1000000u;
constexpr std::uint32_t kMaxGroups = 4096;
constexpr std::uint8_t kUnidentified = 0x80, kFreed = 0x40;

// The last one stands for all groups that are not known.
Group g_groups[kMaxGroups + 1];
std::atomic<std::uint32_t> g_made{0};
std::atomic<bool> g_unknown_announced{false};
struct Call {
  Current current;
  // The hooks' open ranges that show waits. Here it takes no more of the little memory that a preloaded library has.
  std::int32_t showing = 0;
};
thread_local Call t_call;

void WriteGroup(const Group& group, std::uint64_t id, std::int32_t rank, std::uint32_t name, std::uint8_t flags) {
  const std::uint32_t listed = group.members == nullptr ? 0 : static_cast<std::uint32_t>(group.size);
  const std::uint32_t member_slots = (4 * listed + kSlotBytes - 1) / kSlotBytes;
  auto* memory = static_cast<std::byte*>(calloc(2 + member_slots, kSlotBytes));
  if (memory == nullptr) return;
  const CommRecord record{{RecordKind::kComm, static_cast<std::uint8_t>(schema::CommKind::kTorchGroup | flags),
                           static_cast<std::uint16_t>(2 + member_slots)},
                          group.number,
                          id,
                          0,
                          ring::Ticks(),
                          static_cast<std::uint32_t>(group.size),
                          rank,
                          group.first,
                          group.stride,
                          listed,
                          name,
                          0};
  memcpy(memory, &record, sizeof record);
  if (listed != 0) memcpy(memory + sizeof record, group.members, listed * sizeof group.members[0]);
  lockstep_emit_slow(memory, 2 + member_slots, 1);
  free(memory);
}

Group* Unknown() {
  Group& group = g_groups[kMaxGroups];
  if (!g_unknown_announced.exchange(true)) {
    group.number = kFirstNumber + kMaxGroups;
    WriteGroup(group, 0, -1, 0, kUnidentified);
  }
  return &group;
}

Group* ByNumber(std::uint32_t number) {
  const std::uint32_t index = number - kFirstNumber;
  return index < std::min(g_made.load(std::memory_order_acquire), kMaxGroups) ? &g_groups[index] : Unknown();
}

template <typename Fits>
Group* OnlyOne(Fits&& fits) {
  Group* only = nullptr;
  for (std::uint32_t i = 0; i < std::min(g_made.load(std::memory_order_acquire), kMaxGroups); ++i) {
    Group& group = g_groups[i];
    if (!group.live.load(std::memory_order_relaxed) || !fits(group)) continue;
    if (only != nullptr) return Unknown();
    only = &group;
  }
  return only == nullptr ? Unknown() : only;
}

// Null: none.
Group* LiveAt(const void* backend) {
  for (std::uint32_t i = 0; i < std::min(g_made.load(std::memory_order_acquire), kMaxGroups); ++i)
    if (g_groups[i].live.load(std::memory_order_relaxed) &&
        g_groups[i].backend.load(std::memory_order_relaxed) == backend)
      return &g_groups[i];
  return nullptr;
}

void End(Group& group) {
  if (group.live.exchange(false)) WriteGroup(group, 0, -1, 0, kFreed);
}

// `name` and `ranks` are equal on all members. Null: there are too many. Thread: one at a time.
Group* Add(const char* name, const int* ranks, int size, int rank, const void* backend) {
  const std::uint32_t index = g_made.load(std::memory_order_relaxed);
  if (index >= kMaxGroups) return nullptr;
  Group& group = g_groups[index];
  group.number = kFirstNumber + index;
  group.size = size;
  group.first = ranks[0];
  group.stride = size > 1 ? ranks[1] - ranks[0] : 1;
  for (int i = 1; i < size; ++i)
    if (ranks[i] - ranks[i - 1] != group.stride) group.stride = 0;
  Hash64 hash;
  hash.Add(std::string_view(name));
  for (int i = 0; i < size; ++i) hash.Add(static_cast<std::uint64_t>(ranks[i]));
  group.named = hash.value();
  // A program that ends its groups and makes them again gives them the names of before. All members make them in one
  // order, so that the number of earlier ones tells them apart, on all alike.
  std::uint64_t earlier = 0;
  for (std::uint32_t i = 0; i < index; ++i) earlier += g_groups[i].named == group.named;
  if (earlier > 0) hash.Add(earlier);
  // A record's length is a number of 16 bits: of larger groups the members are not listed.
  constexpr int kMaxListed = 500'000;
  if (group.stride == 0 && size <= kMaxListed) {
    auto* members = new (std::nothrow) std::int32_t[static_cast<std::size_t>(size)];
    if (members != nullptr) std::copy(ranks, ranks + size, members);
    group.members = members;
  }
  group.backend.store(backend, std::memory_order_relaxed);
  group.collectives.store(0, std::memory_order_relaxed);
  WriteGroup(group, hash.value(), rank, lockstep_intern(name), 0);
  group.live.store(true, std::memory_order_relaxed);
  g_made.store(index + 1, std::memory_order_release);
  return &group;
}

}  // namespace

std::int32_t Group::RankOf(std::int32_t world_rank) const {
  if (world_rank < 0) return -1;
  if (members != nullptr) {
    const std::int32_t* at = std::find(members, members + size, world_rank);
    return at == members + size ? -1 : static_cast<std::int32_t>(at - members);
  }
  const std::int32_t distance = world_rank - first;
  if (stride == 0 || distance % stride != 0 || distance / stride < 0 || distance / stride >= size) return -1;
  return distance / stride;
}

Current Exchange(const Current& current) {
  const Current before = t_call.current;
  t_call.current = current;
  return before;
}

Group* UnknownGroup() { return Unknown(); }

Group* GroupOf(std::uint32_t number) { return ByNumber(number); }

bool WaitIsShown() { return t_call.current.number != 0 || t_call.showing != 0; }

bool InCollective() { return t_call.current.number != 0 && t_call.current.tag < 0; }

Group* GroupOfCall(Current* current) {
  *current = t_call.current;
  if (t_call.current.number != 0) return ByNumber(t_call.current.number);
  return OnlyOne([](const Group& group) { return group.size > 1; });
}

Group* GroupAt(const void* backend, Current* current) {
  *current = t_call.current;
  Group* group = LiveAt(backend);
  if (group == nullptr) {
    group = t_call.current.number != 0 ? ByNumber(t_call.current.number)
                                       : OnlyOne([](const Group& one) { return one.backend.load() == nullptr; });
    // A group has one; the call may be of another group than the one that something within it works on.
    const void* nothing = nullptr;
    if (!group->live.load(std::memory_order_relaxed) || !group->backend.compare_exchange_strong(nothing, backend))
      group = Unknown();
  }
  if (group->number != current->number) current->peer = current->tag = -1;
  return group;
}

void Forget(const void* backend) {
  if (Group* group = LiveAt(backend); group != nullptr) End(*group);
}

extern "C" {

// A group of a backend whose works are observed, of which this process is a member: its number, 0 if there are too
// many. `name` and `ranks` are equal on all members; world ranks in order of the group's ranks. Groups are made by one
// thread at a time: PyTorch requires the same order on all ranks.
__attribute__((visibility("default"))) unsigned lockstep_hook_torch_group(const char* name, const int* ranks, int size,
                                                                          int rank) {
  if (lockstep_probe.segment == nullptr || size <= 0 || rank < 0) return 0;
  const ErrnoKeeper errno_keeper;
  const Backends backends = TakeBackends(rank, size);
  Group* group = Add(name, ranks, size, rank, backends.count == 0 ? nullptr : backends.address[0]);
  if (group == nullptr) return 0;
  for (std::size_t i = 1; i < backends.count; ++i) {
    char other[256];
    snprintf(other, sizeof other, "checks %zu of %s", i, name);
    if (Add(other, ranks, size, rank, backends.address[i]) != nullptr) ++group->others;
  }
  return group->number;
}

// The calling thread's call from now on; the number that was there before. 0: none.
__attribute__((visibility("default"))) unsigned lockstep_hook_torch_enter(unsigned number, int peer, int tag) {
  return Exchange({number, peer, tag}).number;
}

// The calling thread opens (1) or closes (-1) a range that shows waits within it.
__attribute__((visibility("default"))) void lockstep_hook_torch_shown(int more) { t_call.showing += more; }

// It is about to be destroyed.
__attribute__((visibility("default"))) void lockstep_hook_torch_group_gone(unsigned number) {
  if (lockstep_probe.segment == nullptr) return;
  const ErrnoKeeper errno_keeper;
  const std::uint32_t index = number - kFirstNumber;
  if (index >= std::min(g_made.load(std::memory_order_acquire), kMaxGroups)) return;
  for (std::uint32_t i = index; i <= index + g_groups[index].others; ++i) End(g_groups[i]);
}
}

}  // namespace lockstep::c10d
