#include "comms/pmpi/pmix_board.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "comms/pmpi/pmix_abi.h"
#include "core/event_clock.h"

namespace lockstep::pmpi {
namespace {

// The number is the version of what a yes commits to: raise it whenever the calls that follow an agreement change.
constexpr const char* kKeys[] = {"lockstep.1.here", "lockstep.1.vote", "lockstep.1.decision"};
constexpr const char* kToldKey = "lockstep.1.reference";
constexpr std::int64_t kFirstNapNs = 1'000'000, kLongestNapNs = 20'000'000;
// So long for the answer to what is known already: a way to the server on this node and back.
constexpr std::int64_t kLeastWaitNs = 20'000'000;

struct Library {
  pmix::Initialized initialized = nullptr;
  pmix::Put put = nullptr;
  pmix::Commit commit = nullptr;
  pmix::GetNb get = nullptr;
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
    g_pmix.get = reinterpret_cast<pmix::GetNb>(dlsym(library, "PMIx_Get_nb"));
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

// A question that is answered on a thread of the library's, perhaps after nobody waits for it any more: whoever is
// second frees it.
struct Question {
  pmix::Proc process{};
  pmix::Info limit{};
  int status = pmix::kErrInit;
  std::atomic<std::uint32_t> answered{kAsked};
  char text[2048] = {};  // Longer ones are as if they were not there.

  static constexpr std::uint32_t kAsked = 0, kAnswered = 1, kLeft = 2;
};

void Answered(int status, pmix::Value* value, void* data) {
  auto* question = static_cast<Question*>(data);
  question->status = status;
  if (status == pmix::kSuccess && value != nullptr && value->type == pmix::kString && value->data.string != nullptr &&
      strlen(value->data.string) < sizeof question->text)
    strcpy(question->text, value->data.string);
  if (question->answered.exchange(Question::kAnswered) == Question::kLeft)
    free(question);
  else
    syscall(SYS_futex, &question->answered, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// Whether it was answered by then.
bool Wait(Question& question, std::int64_t deadline_ns) {
  while (question.answered.load(std::memory_order_acquire) == Question::kAsked) {
    const std::int64_t left_ns = std::clamp<std::int64_t>(deadline_ns - RawNs(), 0, 1'000'000'000);
    if (left_ns == 0) return false;
    const timespec left{left_ns / 1'000'000'000, left_ns % 1'000'000'000};
    syscall(SYS_futex, &question.answered, FUTEX_WAIT_PRIVATE, Question::kAsked, &left, nullptr, 0);
  }
  return true;
}

// What a rank has put under a key; "" if it is no text, or too long. False: it was not there in time, or the store is
// gone. A server answers for its own node when the key comes, or after the time limit, which is in whole seconds; for
// other nodes at once, with "not found" if it is not there yet (OpenPMIx 4.2.2 with Open MPI 4.1.4). So there is a nap
// between two questions. PMIX_IMMEDIATE must not be asked for: it never looks at another node again.
bool Get(const char* space, int peer, const char* key, char* text, std::size_t bytes, std::int64_t deadline_ns) {
  text[0] = 0;
  for (std::int64_t nap_ns = kFirstNapNs;; nap_ns = std::min(2 * nap_ns, kLongestNapNs)) {
    void* memory = malloc(sizeof(Question));
    if (memory == nullptr) return false;
    auto* question = new (memory) Question;
    strcpy(question->process.nspace, space);
    question->process.rank = static_cast<std::uint32_t>(peer);
    strcpy(question->limit.key, pmix::kTimeout);
    question->limit.value.type = pmix::kInt;
    question->limit.value.data.integer = 1;
    int status = g_pmix.get(&question->process, key, &question->limit, 1, Answered, question);
    const bool asked = status == pmix::kSuccess;
    if (asked) {
      // The answer to a question that is not to wait (deadline passed) is on its way, if this node has it.
      if (!Wait(*question, std::max(deadline_ns, RawNs() + kLeastWaitNs)) &&
          question->answered.exchange(Question::kLeft) == Question::kAsked)
        return false;
      status = question->status;
      if (status == pmix::kSuccess && strlen(question->text) < bytes) strcpy(text, question->text);
    }
    free(question);
    if (asked && status == pmix::kSuccess) return true;
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
