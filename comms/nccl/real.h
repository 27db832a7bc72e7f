#pragma once
// Finds the functions that the interposed ones call.

#include <atomic>
#include <cstdint>

namespace lockstep::nccl {

// Address of NCCL's function of that name that a call from `caller` would reach without `ours`: the
// next in the program's scope, else in the caller's own (PyTorch's libnccl is loaded for it alone, and
// two libraries may each bring one), else in any object that has it. Null if this process has none.
// `caller` null: any caller's. Cold: a linker's look-up. Thread: any.
void* FindReal(const char* name, const void* ours, const void* caller);

// The address range of the object that contains `address`; false if there is none.
struct AddressSpan {
  std::uintptr_t begin = 0, end = 0;
};
bool ObjectAround(const void* address, AddressSpan& span);

// One function, by the object that calls it; looked up at its first call, for libnccl may come late. F: pointer to
// function.
template <typename F>
class Real {
 public:
  constexpr explicit Real(const char* name) : name_(name) {}
  F Get(F ours, const void* caller) {
    const auto at = reinterpret_cast<std::uintptr_t>(caller);
    for (const Known& known : known_) {
      void* found = known.found.load(std::memory_order_acquire);
      if (found == nullptr) break;
      if (at >= known.caller.begin && at < known.caller.end) [[likely]]
        return reinterpret_cast<F>(found);
    }
    return Look(ours, caller);
  }

 private:
  struct Known {
    std::atomic<void*> found{nullptr};
    std::atomic<bool> taken{false};
    AddressSpan caller;
  };

  __attribute__((noinline)) F Look(F ours, const void* caller) {
    void* found = FindReal(name_, reinterpret_cast<void*>(ours), caller);
    AddressSpan span;
    if (found == nullptr || !ObjectAround(caller, span)) return reinterpret_cast<F>(found);
    for (Known& known : known_) {
      bool free = false;
      if (!known.taken.compare_exchange_strong(free, true)) continue;
      known.caller = span;
      known.found.store(found, std::memory_order_release);
      break;
    }
    return reinterpret_cast<F>(found);
  }

  const char* name_;
  Known known_[4];
};

}  // namespace lockstep::nccl
