#include "comms/pmpi/pmix_board.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>

#include "comms/pmpi/pmix_abi.h"
#include "core/event_clock.h"

namespace lockstep::pmpi {
namespace {

// The number is the version of what a yes commits to: raise it whenever the calls that follow an agreement change.
constexpr const char* kKeys[] = {"lockstep.1.here", "lockstep.1.vote", "lockstep.1.decision"};
constexpr std::int64_t kFirstNapNs = 1'000'000, kLongestNapNs = 20'000'000;

struct Library {
  pmix::Initialized initialized = nullptr;
  pmix::Put put = nullptr;
  pmix::Commit commit = nullptr;
  pmix::Get get = nullptr;
};
Library g_pmix;

// An Open MPI that was built with an internal copy has it in libopen-pal, under the same names (4.1.8).
constexpr const char* kHolders[] = {"libpmix.so.2", "libopen-pal.so.40"};

bool Find() {
  for (const char* name : kHolders) {
    // Open MPI has opened the library already; this reference is never given back.
    void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    g_pmix.initialized = reinterpret_cast<pmix::Initialized>(dlsym(library, "PMIx_Initialized"));
    g_pmix.put = reinterpret_cast<pmix::Put>(dlsym(library, "PMIx_Put"));
    g_pmix.commit = reinterpret_cast<pmix::Commit>(dlsym(library, "PMIx_Commit"));
    g_pmix.get = reinterpret_cast<pmix::Get>(dlsym(library, "PMIx_Get"));
    // If there are two copies, take the one that MPI uses.
    if (g_pmix.initialized != nullptr && g_pmix.put != nullptr && g_pmix.commit != nullptr && g_pmix.get != nullptr &&
        g_pmix.initialized() != 0)
      return true;
  }
  return false;
}

// The store and the job have ended.
bool Lost(int status) {
  return status == pmix::kErrUnreach || status == pmix::kErrInit || status == pmix::kErrCommFailure ||
         status == pmix::kErrLostConnection;
}

}  // namespace

PmixBoard::PmixBoard(int world_rank) {
  const char* space = getenv("PMIX_NAMESPACE");
  const char* rank = getenv("PMIX_RANK");
  if (space == nullptr || rank == nullptr || strlen(space) >= sizeof pmix::Proc::nspace) return;
  char* end = nullptr;
  if (const long number = strtol(rank, &end, 10); end == rank || *end != '\0' || number != world_rank) return;
  if (Find()) namespace_ = space;
}

bool PmixBoard::Post(Note note, bool yes) {
  char text[] = "n";
  if (yes) text[0] = 'y';
  pmix::Value value{};
  value.type = pmix::kString;
  value.data.string = text;  // PMIx copies the text.
  return g_pmix.put(pmix::kGlobal, kKeys[static_cast<int>(note)], &value) == pmix::kSuccess;
}

bool PmixBoard::Publish() { return g_pmix.commit() == pmix::kSuccess; }

// A server answers for its own node when the key comes, or after the time limit; for other nodes at once, with
// "not found" if it is not there yet (OpenPMIx 4.2.2 with Open MPI 4.1.4). So there is a nap between two questions.
// PMIX_IMMEDIATE must not be asked for: it never looks at another node again.
Reply PmixBoard::Await(int peer, Note note, std::int64_t deadline_ns) {
  pmix::Proc process{};
  strcpy(process.nspace, namespace_);
  process.rank = static_cast<std::uint32_t>(peer);
  pmix::Info limit{};
  strcpy(limit.key, pmix::kTimeout);
  limit.value.type = pmix::kInt;
  limit.value.data.integer = 1;
  for (std::int64_t nap_ns = kFirstNapNs;; nap_ns = std::min(2 * nap_ns, kLongestNapNs)) {
    pmix::Value* value = nullptr;
    const int status = g_pmix.get(&process, kKeys[static_cast<int>(note)], &limit, 1, &value);
    if (status == pmix::kSuccess && value != nullptr) {
      Reply reply = Reply::kNo;
      if (value->type == pmix::kString && value->data.string != nullptr) {
        if (strcmp(value->data.string, "y") == 0) reply = Reply::kYes;
        free(value->data.string);
      }
      free(value);
      return reply;
    }
    if (Lost(status) || RawNs() > deadline_ns) return Reply::kAbsent;
    const timespec nap{0, static_cast<long>(nap_ns)};
    nanosleep(&nap, nullptr);
  }
}

}  // namespace lockstep::pmpi
