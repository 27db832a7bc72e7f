// Puts functions in the place of libc's. They are compiled without exceptions and have nothing that unwinding would
// have to clean up, so that a thread may be cancelled in them, and a handler may throw or jump out.

#include "runtime/probe/blocked/calls.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <type_traits>

#include "core/errno_keeper.h"
#include "runtime/probe/blocked/real.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // Their runtimes put theirs there.

namespace lockstep::probe {
namespace {

using Kind = schema::BlockedKind;
constexpr std::uint8_t kOther = Kind::kOther, kSleep = Kind::kSleep, kLock = Kind::kLock, kCondition = Kind::kCondition,
                       kSemaphore = Kind::kSemaphore, kJoin = Kind::kJoin, kChild = Kind::kChild, kFile = Kind::kFile,
                       kSocket = Kind::kSocket;

// Descriptors of poll may be negative: those are none.
const pollfd* FirstDescriptor(const pollfd* files, nfds_t count) {
  const pollfd* end = files + count;
  const pollfd* first = std::find_if(files, end, [](const pollfd& each) { return each.fd >= 0; });
  return first == end ? nullptr : first;
}
std::int64_t FirstOfPoll(const pollfd* files, nfds_t count) {
  const pollfd* first = FirstDescriptor(files, count);
  return first == nullptr ? -1 : first->fd;
}
// Of several, mostly sockets and pipes.
std::uint8_t KindOfPoll(const pollfd* files, nfds_t count) {
  if (FirstDescriptor(files, count) == nullptr) return kSleep;
  return count == 1 ? kByDescriptor : kSocket;
}
std::uint8_t KindOfSelect(int count, const fd_set* read, const fd_set* write, const fd_set* except) {
  return count <= 0 || (read == nullptr && write == nullptr && except == nullptr) ? kSleep : kSocket;
}

template <typename T>
std::uint64_t ObjectOf(T object) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<std::uint64_t>(object);
  else
    return static_cast<std::uint64_t>(object);
}

// EBUSY: it is not free. Any other answer of a try is the lock's own: it is held now, or it tells what is wrong with
// it.
#define LS_TRY_(name, type) \
  int Try_##name(type* lock) { return Real<int(type*)>(OtherCall::name)(lock); }
LS_TRY_(pthread_mutex_trylock, pthread_mutex_t)
LS_TRY_(pthread_rwlock_tryrdlock, pthread_rwlock_t)
LS_TRY_(pthread_rwlock_trywrlock, pthread_rwlock_t)
// sem_wait lets the thread be cancelled before all else; sem_trywait does not.
int Try_sem_trywait(sem_t* semaphore) {
  pthread_testcancel();
  const int before = errno;
  if (Real<int(sem_t*)>(OtherCall::sem_trywait)(semaphore) == 0) return 0;
  errno = before;
  return EBUSY;
}

}  // namespace

// What threads that are not watched run changes no register that carries an argument, whatever the function is.
#define LS_IN_PLACE_OF_(name, result_type, parameters)                                                                 \
  extern "C" __attribute__((visibility("default"))) result_type lockstep_in_place_of_##name parameters __asm__(#name); \
  extern "C" result_type lockstep_in_place_of_##name parameters

// The watched part is entered by a jump, so that its return address is the program's.
#define LS_CHOOSE_(name, result_type, parameters, arguments)            \
  LS_IN_PLACE_OF_(name, result_type, parameters) {                      \
    if (t_watch == nullptr || IsForeign(BlockedCall::name)) [[likely]]  \
      return Real<result_type parameters>(BlockedCall::name) arguments; \
    return Watched_##name arguments;                                    \
  }

#define LS_PLAIN_CALL(number, name, result_type, parameters, arguments, kind, object, timed_out) \
  [[gnu::noinline]] static result_type Watched_##name parameters {                               \
    const std::uint64_t begin_ticks = ring::Ticks();                                             \
    const result_type result = Real<result_type parameters>(BlockedCall::name) arguments;        \
    const std::uint64_t end_ticks = ring::Ticks();                                               \
    if (end_ticks - begin_ticks >= g_least_ticks.load(std::memory_order_relaxed)) [[unlikely]] { \
      const ErrnoKeeper errno_keeper;                                                            \
      WriteBlocked({BlockedCall::name,                                                           \
                    kind,                                                                        \
                    timed_out,                                                                   \
                    __builtin_return_address(0),                                                 \
                    {ObjectOf(object), begin_ticks, end_ticks, -1, 0, 0, nullptr}});             \
    }                                                                                            \
    return result;                                                                               \
  }                                                                                              \
  LS_CHOOSE_(name, result_type, parameters, arguments)

#define LS_WAIT_(name, result_type, parameters, arguments, kind, object, timed_out)             \
  const auto real = Real<result_type parameters>(BlockedCall::name);                            \
  Watch& watch = *t_watch;                                                                      \
  Wait wait;                                                                                    \
  if (!Began(watch, ObjectOf(object), __builtin_frame_address(0), wait)) return real arguments; \
  const result_type result = real arguments;                                                    \
  if (Ended(watch, wait)) [[unlikely]] {                                                        \
    const ErrnoKeeper errno_keeper;                                                             \
    WriteBlocked({BlockedCall::name, kind, timed_out, __builtin_return_address(0), wait});      \
  }                                                                                             \
  return result;

#define LS_WAITING_CALL(number, name, result_type, parameters, arguments, kind, object, timed_out)               \
  [[gnu::noinline]] static result_type Watched_##name parameters{                                                \
      LS_WAIT_(name, result_type, parameters, arguments, kind, object, timed_out)} LS_CHOOSE_(name, result_type, \
                                                                                              parameters, arguments)

#define LS_LOCKING_CALL(number, name, result_type, parameters, arguments, kind, object, timed_out, try_name) \
  constinit bool g_tries_##name = false;                                                                     \
  [[gnu::noinline]] static result_type Waits_##name parameters {                                             \
    LS_WAIT_(name, result_type, parameters, arguments, kind, object, timed_out)                              \
  }                                                                                                          \
  [[gnu::noinline]] static result_type Watched_##name parameters {                                           \
    if (g_tries_##name) [[likely]] {                                                                         \
      const int tried = Try_##try_name arguments;                                                            \
      if (tried != EBUSY) [[likely]]                                                                         \
        return tried;                                                                                        \
    }                                                                                                        \
    return Waits_##name arguments;                                                                           \
  }                                                                                                          \
  LS_CHOOSE_(name, result_type, parameters, arguments)

#include "core/blocked_calls.def"

void ChooseTries() {
#define LS_LOCKING_CALL(number, name, result_type, parameters, arguments, kind, object, timed_out, try_name) \
  g_tries_##name = OfOneLibrary(#name, #try_name);
#include "core/blocked_calls.def"
}

// Who ends waits.
#define LS_SIGNAL_(name, type, for_all)                              \
  LS_IN_PLACE_OF_(name, int, (type * object)) {                      \
    if (g_waiting.load(std::memory_order_relaxed) != 0) [[unlikely]] \
      NoteSignal(ObjectOf(object), for_all);                         \
    return Real<int(type*)>(OtherCall::name)(object);                \
  }
LS_SIGNAL_(pthread_cond_signal, pthread_cond_t, false)
LS_SIGNAL_(pthread_cond_broadcast, pthread_cond_t, true)
LS_SIGNAL_(sem_post, sem_t, false)

}  // namespace lockstep::probe

#else

void lockstep::probe::ChooseTries() {}

#endif
