#pragma once
// The functions in whose place this library puts its own.

#include <cstddef>
#include <cstdint>

#include "core/blocked_calls.h"

namespace lockstep::probe {

// Beside those of core/blocked_calls.def: what the probe only looks at, or calls itself.
enum class OtherCall : std::uint16_t {
  pthread_cond_signal = 200,
  pthread_cond_broadcast,
  sem_post,
  pthread_mutex_trylock,
  pthread_rwlock_tryrdlock,
  pthread_rwlock_trywrlock,
  sem_trywait,
  kEnd
};
inline constexpr std::size_t kRealCalls = static_cast<std::size_t>(OtherCall::kEnd);

// By number; null before the first call of ResolveReal.
extern void* g_real[kRealCalls];
// It is no function of libc, and is only passed on to.
extern bool g_foreign[kRealCalls];

// Finds all of them. No function of libc that locks or allocates is called but dladdr1, of this library, once: before
// the constructors, where an allocator may come here while it makes itself.
void ResolveReal();

template <typename Function>
[[gnu::always_inline]] inline Function* Real(std::size_t call) {
  void* at = __atomic_load_n(&g_real[call], __ATOMIC_RELAXED);
  if (at == nullptr) [[unlikely]] {
    ResolveReal();
    at = g_real[call];
  }
  return reinterpret_cast<Function*>(at);
}
template <typename Function, typename Call>
[[gnu::always_inline]] inline Function* Real(Call call) {
  return Real<Function>(static_cast<std::size_t>(call));
}

template <typename Call>
bool IsForeign(Call call) {
  return g_foreign[static_cast<std::size_t>(call)];
}

// Whether both functions are of one library: then the one that tries can stand before the other.
bool OfOneLibrary(const char* name, const char* other);

// A symbol of what the program was started with; null: there is none. Only while the process has one thread.
void* StartedWith(const char* name);

// Whether a sanitizer or valgrind watches the program's calls.
bool OtherWatcher();

}  // namespace lockstep::probe
