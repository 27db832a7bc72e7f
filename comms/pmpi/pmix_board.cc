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
constexpr const char* kToldKey = "lockstep.1.reference";
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

bool Put(const char* key, const char* text) {
  pmix::Value value{};
  value.type = pmix::kString;
  value.data.string = const_cast<char*>(text);  // PMIx copies the text.
  return g_pmix.put(pmix::kGlobal, key, &value) == pmix::kSuccess;
}

// What a rank has put under a key; "" if it is no text, or too long. False: it was not there in time, or the store is
// gone. A server answers for its own node when the key comes, or after the time limit; for other nodes at once, with
// "not found" if it is not there yet (OpenPMIx 4.2.2 with Open MPI 4.1.4). So there is a nap between two questions.
// PMIX_IMMEDIATE must not be asked for: it never looks at another node again.
bool Get(const char* space, int peer, const char* key, char* text, std::size_t bytes, std::int64_t deadline_ns) {
  pmix::Proc process{};
  strcpy(process.nspace, space);
  process.rank = static_cast<std::uint32_t>(peer);
  pmix::Info limit{};
  strcpy(limit.key, pmix::kTimeout);
  limit.value.type = pmix::kInt;
  limit.value.data.integer = 1;
  for (std::int64_t nap_ns = kFirstNapNs;; nap_ns = std::min(2 * nap_ns, kLongestNapNs)) {
    pmix::Value* value = nullptr;
    const int status = g_pmix.get(&process, key, &limit, 1, &value);
    if (status == pmix::kSuccess && value != nullptr) {
      text[0] = 0;
      if (value->type == pmix::kString && value->data.string != nullptr) {
        if (strlen(value->data.string) < bytes) strcpy(text, value->data.string);
        free(value->data.string);
      }
      free(value);
      return true;
    }
    if (Lost(status) || RawNs() > deadline_ns) return false;
    const timespec nap{0, static_cast<long>(nap_ns)};
    nanosleep(&nap, nullptr);
  }
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

bool PmixBoard::Post(Note note, bool yes) { return Put(kKeys[static_cast<int>(note)], yes ? "y" : "n"); }

bool PmixBoard::Tell(const char* text) { return Put(kToldKey, text); }

bool PmixBoard::Publish() { return g_pmix.commit() == pmix::kSuccess; }

Reply PmixBoard::Await(int peer, Note note, std::int64_t deadline_ns) {
  char text[2];
  if (!Get(namespace_, peer, kKeys[static_cast<int>(note)], text, sizeof text, deadline_ns)) return Reply::kAbsent;
  return strcmp(text, "y") == 0 ? Reply::kYes : Reply::kNo;
}

bool PmixBoard::Ask(int peer, char* text, std::size_t bytes, std::int64_t deadline_ns) {
  return Get(namespace_, peer, kToldKey, text, bytes, deadline_ns) && text[0] != 0;
}

}  // namespace lockstep::pmpi
