#include "comms/pmpi/choose.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "comms/pmpi/loaded.h"
#include "comms/pmpi/names.h"
#include "comms/pmpi/wrapper_library.h"
#include "core/errno_keeper.h"
#include "core/plain_line.h"
#include "core/ring_writer.h"
#include "runtime/probe/hooks.h"

// Where this library begins and ends, by the linker.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start, _end;

namespace lockstep::pmpi {
namespace {

// The names of the slots, each ended by a zero.
constexpr char kNames[] =
#define LS_STANDARD(name) "MPI_" #name "\0PMPI_" #name "\0"
#define LS_EXPERIMENTAL(name) "MPIX_" #name "\0PMPIX_" #name "\0"
    LS_MPI_ENTRY_POINTS(LS_STANDARD, LS_STANDARD, LS_EXPERIMENTAL, LS_STANDARD);

// Threads may choose at the same time, and come to the same result; one of them publishes it. No lock is held while
// ld.so is asked: a constructor that calls MPI runs under ld.so's own.
enum Progress : int { kOpen, kPublishing, kChosen };
std::atomic<int> g_progress{kOpen};
// Equal to its own address once ld.so has relocated this library.
const void* volatile g_relocated = const_cast<const void**>(&g_relocated);

constexpr unsigned CountNames() {
  unsigned n = 0;
  for (const char* at = kNames; at != kNames + sizeof kNames - 1; ++at) n += *at == '\0' ? 1 : 0;
  return n;
}
constexpr unsigned kSlots = CountNames();

// f(number of the slot, name) for each slot.
template <typename F>
void ForEachSlot(F&& f) {
  const char* name = kNames;
  for (unsigned i = 0; i < kSlots; ++i, name += strlen(name) + 1) f(i, name);
}

// Where the slots will lead. `init` to `session_init`: what ours are put in front of.
struct Plan {
  const void* targets[kSlots];
  const void *init, *init_thread, *session_init;
  char unknown[4400];  // "path (version)" of a library without wrappers, or whose wrappers are not used.
  bool unreliable;     // It loses messages (LosesMessages).
  OtherTool tools[kMostTools];
  unsigned tool_count;
  char passed_by[4096];  // A tool whose calls come to the library without us; "" there is none.

  const OtherTool* ToolAt(const void* address) const {
    for (unsigned i = 0; i < tool_count; ++i)
      if (tools[i].Contains(address)) return &tools[i];
    return nullptr;
  }
};

// Without MPI in the process: a program that looks for MPI by name finds these names, and must hear "no".
int NotHere(int* flag) {
  *flag = 0;
  return 0;
}
// A function that the library lacks: nobody could have called it. Not 0 (MPI_SUCCESS in every ABI).
int Missing() { return 1; }

const void* WithoutMpi(const void** slot) {
  const void* target = nullptr;
  ForEachSlot([&](unsigned i, const char* name) {
    if (&__start_lockstep_slots[i] != slot) return;
    // What stands in for MPI in programs of one process (MUMPS's libmpiseq) has no PMPI_ functions.
    target = dlsym(RTLD_NEXT, name);
    if (target != nullptr) return;
    const bool asks = strstr(name, "MPI_Initialized") != nullptr || strstr(name, "MPI_Finalized") != nullptr;
    target = asks ? reinterpret_cast<const void*>(&NotHere) : reinterpret_cast<const void*>(&Missing);
  });
  return target;
}

// ---- Which library ----

// The object that contains `address`, opened; null if that fails. Never closed: it is loaded anyway.
void* Reopen(const void* address) {
  Dl_info info;
  if (address == nullptr || dladdr(address, &info) == 0) return nullptr;
  if (void* library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD); library != nullptr) return library;
  return dlopen(nullptr, RTLD_LAZY | RTLD_NOLOAD);  // The program itself, whose name may be relative.
}

bool IsOurs(const void* address) { return address >= &__ehdr_start && address < &_end; }

// What the caller would reach by this name without us: what comes behind us in the global scope, else what the caller's
// own dependencies have (mpi4py: its libmpi is RTLD_LOCAL). `object`: the caller's, may be null.
const void* Behind(void* object, const char* name) {
  const void* found = dlsym(RTLD_NEXT, name);
  if (found != nullptr || object == nullptr) return found;
  found = dlsym(object, name);
  // Not through us, who are in the global scope that comes first for the program.
  return found != nullptr && !IsOurs(found) ? found : nullptr;
}

// The library that the caller's calls would reach without us, else any.
void* MpiOf(void* object) {
  if (const void* init = Behind(object, "PMPI_Init"); init != nullptr) return Reopen(init);
  char path[4096];
  if (!LoadedObjectDefines("PMPI_Init", kNames, path, sizeof path)) return nullptr;
  return dlopen(path[0] != '\0' ? path : nullptr, RTLD_LAZY | RTLD_NOLOAD);
}

using GetVersion = int (*)(char*, int*);
using GetAbi = int (*)(int*, int*);

// What the library says about itself, one plain line. Both functions may be called before MPI_Init.
void VersionOf(void* library, char (&line)[128]) {
  char text[16384];  // MPI_MAX_LIBRARY_VERSION_STRING is 8192 in MPICH and in the standard's ABI.
  line[0] = text[0] = '\0';
  const auto get = reinterpret_cast<GetVersion>(dlsym(library, "PMPI_Get_library_version"));
  int length = 0;
  if (get == nullptr || get(text, &length) != 0) return;
  std::size_t n = 0;
  bool space = false;
  for (const char* at = text; *at != '\0' && *at != '\n' && *at != ',' && n + 2 < sizeof line; ++at) {
    const bool blank = *at == ' ' || *at == '\t';
    if (blank && !space) line[n++] = ' ';
    if (!blank) line[n++] = *at;
    space = blank;
  }
  line[n] = '\0';
}

// The ABI's name in liblockstep-mpi-NAME.so; null if it is none of those.
const char* AbiOf(void* library, const char* version) {
  if (dlsym(library, "ompi_mpi_comm_world") != nullptr) return "ompi40";
  int major = -1, minor = -1;
  const auto abi = reinterpret_cast<GetAbi>(dlsym(library, "PMPI_Abi_get_version"));
  if (abi != nullptr && abi(&major, &minor) == 0 && major >= 1) return major == 1 ? "abi1" : nullptr;
  // One ABI since MPICH 3.1 (2013): https://www.mpich.org/abi
  if (const char* mpich = strstr(version, "MPICH Version:"); mpich != nullptr)
    return atoi(mpich + strlen("MPICH Version:")) >= 3 ? "mpich12" : nullptr;
  for (const char* relative : {"Intel(R) MPI Library", "MVAPICH", "CRAY MPICH"})
    if (strstr(version, relative) != nullptr) return "mpich12";
  return nullptr;
}

// MPICH 4.0.2 over UCX 1.13 (Debian 12) loses messages now and then: a program of neighbourhood collectives hung in 2
// of 6 runs over shared memory and in 3 of 6 over TCP without Lockstep, in none of 24 as UCX chooses its transports,
// and in 2 of 6 of those when recorded. MPICH 5.0.2 did not hang in 24 recorded runs. What makes a job hang more often
// is not done to it unasked.
bool LosesMessages(const char* version) {
  const char* mpich = strstr(version, "MPICH Version:");
  int major = 0, minor = 0;
  if (mpich == nullptr || sscanf(mpich + strlen("MPICH Version:"), "%d.%d", &major, &minor) != 2) return false;
  const char* asked = getenv("LOCKSTEP_MPICH_UCX");
  return major * 100 + minor < 401 && (asked == nullptr || strcmp(asked, "1") != 0) &&
         LoadedObjectDefines("ucp_worker_progress", kNames, nullptr, 0);
}

// ---- Where the slots lead ----

// The library's function, or another tool's wrapper that comes before it.
const void* Real(void* object, void* library, const char* name) {
  const void* target = Behind(object, name);
  if (target == nullptr) target = dlsym(library, name);
  return target != nullptr ? target : reinterpret_cast<const void*>(&Missing);
}

void PassOn(void* object, void* library, Plan& plan) {
  ForEachSlot([&](unsigned i, const char* name) { plan.targets[i] = Real(object, library, name); });
}

// ---- What is not recorded ----

char g_unknown[sizeof Plan::unknown];
char g_passed_by[sizeof Plan::passed_by];
bool g_unreliable = false, g_said = false;
int (*g_init)(int*, char***) = nullptr;
int (*g_init_thread)(int*, char***, int, int*) = nullptr;
int (*g_session_init)(void*, void*, void*) = nullptr;

// A line of one rank, and a fact for the verdict. No `reason`: there are no wrappers for the library.
void SayUnrecorded(const char* library, const char* sentence, const char* reason) {
  const ErrnoKeeper errno_keeper;
  g_said = true;
  char line[sizeof g_unknown + 512];
  snprintf(line, sizeof line, "mpi_unrecorded\tlibrary=%s%s%s", library, reason[0] != '\0' ? "\twhy=" : "", reason);
  lockstep_hook_fact(line);
  const SegmentHeader* header = lockstep_probe.segment;
  if (header == nullptr || header->slot_rank > 0) return;
  snprintf(line, sizeof line - 1, "lockstep: %s MPI calls are recorded: %s; ranges, steps and GPU work are recorded",
           g_passed_by[0] != '\0' ? "not all" : "0", sentence);
  MakePlainLine(line);  // The path and the version are others' words.
  strcat(line, "\n");   // The buffer is large enough.
  if (write(STDERR_FILENO, line, strlen(line)) < 0) return;
}

// Said when MPI starts: a library that is only asked whether it has been initialised records nothing either way.
void SayUnknown() {
  char sentence[sizeof g_unknown + 128];
  snprintf(sentence, sizeof sentence,
           g_unreliable
               ? "%s over UCX loses messages, those of recorded jobs more often; LOCKSTEP_MPICH_UCX=1 records it"
               : "this Lockstep has no wrappers for %s (lockstep doctor lists those that it has)",
           g_unknown);
  SayUnrecorded(g_unknown, sentence, "");
}
int InitUnknown(int* argc, char*** argv) {
  SayUnknown();
  return g_init(argc, argv);
}
int InitThreadUnknown(int* argc, char*** argv, int required, int* provided) {
  SayUnknown();
  return g_init_thread(argc, argv, required, provided);
}

// Handles are ints or addresses, and the registers that hold them are passed on whole.
int SessionInitUnknown(void* info, void* errhandler, void* session) {
  SayUnknown();
  return g_session_init(info, errhandler, session);
}

// Puts a function of ours in front of where a slot leads.
template <typename Function>
void InFront(const void*& target, Function ours, const void*& behind) {
  behind = target;
  target = reinterpret_cast<const void*>(ours);
}

bool Attach(void* object, void* library, const char* abi, Plan& plan) {
  Dl_info ours;
  if (dladdr(kNames, &ours) == 0) return false;
  char path[4096];
  const char* end = strrchr(ours.dli_fname, '/');
  const int directory = end != nullptr ? static_cast<int>(end - ours.dli_fname) + 1 : 0;
  const int n = snprintf(path, sizeof path, "%.*sliblockstep-mpi-%s.so", directory, ours.dli_fname, abi);
  if (n <= 0 || static_cast<std::size_t>(n) >= sizeof path) return false;
  void* wrappers = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (wrappers == nullptr) return false;
  const auto attach = reinterpret_cast<AttachWrappers>(dlsym(wrappers, "lockstep_mpi_attach"));
  plan.tool_count = FindTools(kNames, kSlots, plan.tools);
  if (attach == nullptr ||
      !attach({library, dlsym(RTLD_DEFAULT, "MPI_Allreduce"), plan.targets, kSlots, plan.tool_count != 0}))
    return false;
  ForEachSlot([&](unsigned i, const char* name) {
    if (plan.targets[i] == nullptr) plan.targets[i] = Real(object, library, name);
    if (plan.tool_count == 0 || name[0] == 'P') return;
    // A tool's wrapper has the call first, as without us, from the same place of the program, and hands it on to us.
    const void* behind = Behind(object, name);
    const OtherTool* tool = plan.ToolAt(behind);
    if (tool == nullptr) return;
    plan.targets[i] = behind;
    if (!tool->calls_pmpi) snprintf(plan.passed_by, sizeof plan.passed_by, "%s", tool->path);
  });
  return true;
}

void PassOnAndSay(void* object, void* library, const char* version, Plan& plan) {
  const void* init = dlsym(library, "PMPI_Init");
  Dl_info info;
  const char* path = init != nullptr && dladdr(init, &info) != 0 ? info.dli_fname : "an MPI library";
  snprintf(plan.unknown, sizeof plan.unknown, version[0] != '\0' ? "%s (%s)" : "%s", path, version);
  PassOn(object, library, plan);
  ForEachSlot([&](unsigned i, const char* name) {
    if (strcmp(name, "MPI_Init") == 0) InFront(plan.targets[i], &InitUnknown, plan.init);
    if (strcmp(name, "MPI_Init_thread") == 0) InFront(plan.targets[i], &InitThreadUnknown, plan.init_thread);
    if (strcmp(name, "MPI_Session_init") == 0) InFront(plan.targets[i], &SessionInitUnknown, plan.session_init);
  });
}

template <typename Function>
void Take(Function& function, const void* address) {
  function = reinterpret_cast<Function>(const_cast<void*>(address));
}

void Publish(const Plan& plan) {
  memcpy(g_unknown, plan.unknown, sizeof g_unknown);
  memcpy(g_passed_by, plan.passed_by, sizeof g_passed_by);
  g_unreliable = plan.unreliable;
  Take(g_init, plan.init);
  Take(g_init_thread, plan.init_thread);
  Take(g_session_init, plan.session_init);
  for (unsigned i = 0; i < kSlots; ++i) __atomic_store_n(&__start_lockstep_slots[i], plan.targets[i], __ATOMIC_RELEASE);
}

// Returns false if the process has no MPI library yet.
bool Choose(const void* caller) {
  if (g_progress.load(std::memory_order_acquire) == kChosen) return true;
  void* object = Reopen(caller);
  void* library = MpiOf(object);
  auto* plan = library != nullptr ? static_cast<Plan*>(calloc(1, sizeof(Plan))) : nullptr;
  if (plan == nullptr) {
    if (object != nullptr) dlclose(object);
    return false;
  }
  lockstep_hook_loaded();
  if (lockstep_probe.segment == nullptr) {  // Not profiled.
    PassOn(object, library, *plan);
  } else {
    char version[128];
    VersionOf(library, version);
    const char* abi = AbiOf(library, version);
    plan->unreliable = LosesMessages(version);
    if (abi == nullptr || plan->unreliable || !Attach(object, library, abi, *plan))
      PassOnAndSay(object, library, version, *plan);
  }
  int open = kOpen;
  if (g_progress.compare_exchange_strong(open, kPublishing)) {
    Publish(*plan);
    g_progress.store(kChosen, std::memory_order_release);
  }
  while (g_progress.load(std::memory_order_acquire) != kChosen) {
  }
  free(plan);
  return true;
}

// Calls that reach no entry point are made by dlsym in the library itself: by the program, or by a tool. Whether there
// were any is known at the end. A forked child has its parent's MPI, and no calls.
constinit pid_t g_pid = 0;
__attribute__((constructor)) void OnLoad() { g_pid = getpid(); }

bool Started(void* library) {
  const auto ask = library != nullptr ? reinterpret_cast<int (*)(int*)>(dlsym(library, "PMPI_Initialized")) : nullptr;
  int started = 0;
  return ask != nullptr && !IsOurs(reinterpret_cast<const void*>(ask)) && ask(&started) == 0 && started != 0;
}

__attribute__((destructor)) void OnExit() {
  const ErrnoKeeper errno_keeper;
  if (lockstep_probe.segment == nullptr || g_said || getpid() != g_pid) return;
  if (g_progress.load(std::memory_order_acquire) == kChosen) {
    const ProcessEntry* process = lockstep_process();
    if (process == nullptr) return;
    if (process->mpi_used.load(std::memory_order_relaxed) != 0) {
      if (g_passed_by[0] == '\0') return;
      char sentence[sizeof g_passed_by + 64];
      snprintf(sentence, sizeof sentence, "%s has wrappers that call no PMPI_ function", g_passed_by);
      SayUnrecorded(g_passed_by, sentence, "its wrappers call no PMPI_ function, so that what they take is not seen");
      return;
    }
  }
  char path[4096];
  if (!LoadedObjectDefines("PMPI_Init", kNames, path, sizeof path)) return;
  if (!Started(dlopen(path[0] != '\0' ? path : nullptr, RTLD_LAZY | RTLD_NOLOAD))) return;
  const char* library = path[0] != '\0' ? path : "the program";
  char sentence[sizeof path + 128];
  g_passed_by[0] = '\0';
  snprintf(sentence, sizeof sentence, "%s was called past Lockstep's wrappers, as by addresses of dlsym", library);
  SayUnrecorded(library, sentence, "it was called past Lockstep's wrappers, as by addresses of dlsym");
}

}  // namespace

const void* lockstep_first_target(const void** slot, const void* caller) {
  const ErrnoKeeper errno_keeper;
  return Choose(caller) ? __atomic_load_n(slot, __ATOMIC_ACQUIRE) : WithoutMpi(slot);
}

const void* lockstep_where_it_is(const char* name, const void* entry_point) {
  // Too early to look: what is loaded with the program needs the function, or it would not have been started.
  if (g_relocated != const_cast<const void**>(&g_relocated)) return entry_point;
  return LoadedObjectDefines(name, kNames, nullptr, 0) ? entry_point : nullptr;
}

}  // namespace lockstep::pmpi
