#include "comms/c10d/backends.h"

#include <atomic>

#include "comms/c10d/groups.h"
#include "comms/c10d/real.h"
#include "core/errno_keeper.h"
#include "core/ring_writer.h"

namespace lockstep::c10d {
namespace {

struct MadeBackend {
  const void* address;
  std::int32_t rank, size;
};

thread_local MadeBackend t_made[Backends::kMost];
thread_local std::size_t t_made_count = 0;

#define LS_CONSTRUCT                                                                                                \
  "_ZN4c10d16ProcessGroupGlooC1ERKN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_target_default_null_typeIS" \
  "3_EEEEiiNS2_INS0_7OptionsENS5_ISA_EEEE"

}  // namespace

Backends TakeBackends(std::int32_t rank, std::int32_t size) {
  Backends taken;
  for (std::size_t i = 0; i < t_made_count; ++i)
    if (t_made[i].rank == rank && t_made[i].size == size) taken.address[taken.count++] = t_made[i].address;
  t_made_count = 0;
  return taken;
}

extern "C" {

// The calling thread makes a group from now on.
__attribute__((visibility("default"))) void lockstep_hook_torch_making(void) { t_made_count = 0; }

// (this, store, rank, size, options): the last is passed by value, so the caller gives an address.
__attribute__((visibility("default"))) void LockstepGlooConstruct(void* group, const void* store, int rank, int size,
                                                                  void* options) __asm__(LS_CONSTRUCT);
void LockstepGlooConstruct(void* group, const void* store, int rank, int size, void* options) {
  static std::atomic<void*> real{nullptr};
  void* found = Real(real, LS_CONSTRUCT, __builtin_return_address(0));
  reinterpret_cast<void (*)(void*, const void*, int, int, void*)>(found)(group, store, rank, size, options);
  if (lockstep_probe.segment == nullptr) return;
  const ErrnoKeeper errno_keeper;
  Forget(group);
  if (t_made_count < Backends::kMost) t_made[t_made_count++] = {group, rank, size};
}
}

}  // namespace lockstep::c10d
