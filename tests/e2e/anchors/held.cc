// A rank that comes late to one of the calls that Lockstep's probe makes inside MPI_Init, as a rank does that has no
// core. Preloaded into the program behind the probe, which finds MPI's and PMIx's functions by dlsym.
//
//   HELD=RANK:FUNCTION[:MILLISECONDS]   that rank sleeps (3 s) in front of its first call of that function
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>
#include <cstdint>

namespace {

long Hold(const char* function) {
  const char* held = getenv("HELD");
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  if (held == nullptr || rank == nullptr) return 0;
  char* at = nullptr;
  if (strtol(held, &at, 10) != strtol(rank, nullptr, 10) || *at != ':') return 0;
  const std::size_t length = strlen(function);
  if (strncmp(++at, function, length) != 0) return 0;
  at += length;
  return *at == '\0' ? 3000 : *at == ':' ? strtol(at + 1, nullptr, 10) : 0;
}

// Kept by name: the function that it stands for, and whether the rank was held there.
template <typename Function, int kNumber>
struct Late;
template <typename... Args, int kNumber>
struct Late<int (*)(Args...), kNumber> {
  static inline int (*real)(Args...) = nullptr;
  static inline long hold_ms = 0;
  static inline std::atomic<bool> was_held{false};
  static int Call(Args... args) {
    if (hold_ms > 0 && !was_held.exchange(true)) {
      timespec left{hold_ms / 1000, hold_ms % 1000 * 1'000'000};
      while (nanosleep(&left, &left) != 0) {
      }
    }
    return real(args...);
  }
  static void* Instead(void* found, const char* name) {
    if (found == nullptr || (hold_ms = Hold(name)) <= 0) return found;
    real = reinterpret_cast<int (*)(Args...)>(found);
    return reinterpret_cast<void*>(&Call);
  }
};

#if defined(__x86_64__)
constexpr const char* kDlsymVersion = "GLIBC_2.2.5";
#else
constexpr const char* kDlsymVersion = "GLIBC_2.17";
#endif

using PmixCommit = int (*)();
using PmixGetNb = int (*)(const void*, const char*, const void*, std::size_t, void*, void*);

}  // namespace

// What it does not know is a jump, so that RTLD_NEXT means what it means to the caller.
extern "C" __attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) {
  static const auto real =
      reinterpret_cast<void* (*)(void*, const char*)>(dlvsym(RTLD_DEFAULT, "dlsym", kDlsymVersion));
  if (handle != RTLD_NEXT && handle != RTLD_DEFAULT) {
#define LS_LATE(function, type, number) \
  if (strcmp(name, #function) == 0) return Late<type, number>::Instead(real(handle, name), name);
    LS_LATE(PMPI_Comm_idup, decltype(&PMPI_Comm_idup), 0)
    LS_LATE(PMPI_Iallgather, decltype(&PMPI_Iallgather), 1)
    LS_LATE(PMPI_Ibcast, decltype(&PMPI_Ibcast), 2)
    LS_LATE(PMPI_Iprobe, decltype(&PMPI_Iprobe), 3)
    LS_LATE(PMIx_Commit, PmixCommit, 4)
    LS_LATE(PMIx_Get_nb, PmixGetNb, 5)
#undef LS_LATE
  }
  return real(handle, name);
}
