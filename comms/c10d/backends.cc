#include "comms/c10d/backends.h"

#include <pthread.h>

#include <atomic>

#include "comms/c10d/groups.h"
#include "comms/c10d/real.h"
#include "comms/c10d/spin_hold.h"
#include "core/errno_keeper.h"
#include "core/ring_writer.h"

namespace lockstep::c10d {
namespace {

// Objects of all threads that are not taken yet, in their order: groups are made by one thread at a time as a rule, and
// thread-local memory of a preloaded library is scarce.
class MadeBackends {
 public:
  // Takes the place of the oldest if there are too many: a program may make objects that belong to no group.
  void Add(const void* address, std::int32_t rank, std::int32_t size) {
    const SpinHold hold(lock_);
    std::size_t left = 0;
    for (std::size_t i = count_ == kMost ? 1 : 0; i < count_; ++i)
      if (made_[i].address != address) made_[left++] = made_[i];
    made_[left] = {pthread_self(), address, rank, size};
    count_ = left + 1;
  }
  // Removes all of the calling thread's.
  Backends Take(std::int32_t rank, std::int32_t size) {
    const SpinHold hold(lock_);
    Backends taken;
    std::size_t left = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const Made& made = made_[i];
      if (pthread_equal(made.thread, pthread_self()) == 0) {
        made_[left++] = made;
      } else if (made.rank == rank && made.size == size && taken.count < Backends::kMost) {
        taken.address[taken.count++] = made.address;
      }
    }
    count_ = left;
    return taken;
  }

 private:
  struct Made {
    pthread_t thread;
    const void* address;
    std::int32_t rank, size;
  };
  static constexpr std::size_t kMost = 4 * Backends::kMost;
  std::atomic_flag lock_ = ATOMIC_FLAG_INIT;
  std::size_t count_ = 0;
  Made made_[kMost] = {};
};

constinit MadeBackends g_made_backends;

#define LS_CONSTRUCT                                                                                                \
  "_ZN4c10d16ProcessGroupGlooC1ERKN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_target_default_null_typeIS" \
  "3_EEEEiiNS2_INS0_7OptionsENS5_ISA_EEEE"

}  // namespace

Backends TakeBackends(std::int32_t rank, std::int32_t size) { return g_made_backends.Take(rank, size); }

extern "C" {

// The calling thread makes a group from now on: what it constructed before is none of that group's.
__attribute__((visibility("default"))) void lockstep_hook_torch_making(void) { g_made_backends.Take(-1, -1); }

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
  g_made_backends.Add(group, rank, size);
}
}

}  // namespace lockstep::c10d
