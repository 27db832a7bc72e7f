#pragma once
// The functions behind the interposed ones.

#include <atomic>

namespace lockstep::nccl {

// Address of NCCL's function of that name that comes after `ours`: the next in the program's
// scope, else that of a libnccl which was loaded for its user alone (PyTorch's is), else of any
// object that has it. Null if this process has none. Cold: a linker's look-up. Thread: any.
void* FindReal(const char* name, const void* ours);

// One function; looked up when first called, for libnccl may come late. F: pointer to function.
template <typename F>
class Real {
 public:
  constexpr explicit Real(const char* name) : name_(name) {}
  F Get(F ours) {
    void* found = found_.load(std::memory_order_acquire);
    if (found == nullptr) [[unlikely]] {
      found = FindReal(name_, reinterpret_cast<void*>(ours));
      found_.store(found, std::memory_order_release);
    }
    return reinterpret_cast<F>(found);
  }

 private:
  const char* name_;
  std::atomic<void*> found_{nullptr};
};

}  // namespace lockstep::nccl
