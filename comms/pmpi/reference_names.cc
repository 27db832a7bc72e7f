#include "comms/pmpi/reference_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>

#include "comms/pmpi/pmpi_table.h"
#include "core/event_clock.h"

namespace lockstep::pmpi {
namespace {

// A name's text is shorter than MPI_MAX_PORT_NAME, 256 in MPICH's ABI, and has no blanks, where its launcher would cut
// it. So what is told is in several: "COUNT:PART", of which the first is written last. COUNT 0: there is nothing.
// The number in the name is the version of the text.
constexpr std::size_t kPartBytes = 200, kMostParts = 9;
constexpr std::int64_t kFirstNapNs = 1'000'000, kLongestNapNs = 20'000'000;

struct Name {
  char text[64];
  Name(std::uint64_t run_hash, std::size_t part) {
    snprintf(text, sizeof text, "lockstep.1.%016" PRIx64 ".%zu", run_hash, part);
  }
};

// Parts that this process has published.
constinit std::size_t published = 0;
constinit std::uint64_t published_hash = 0;

// What is not found is an error of MPI, which by default ends the program.
class ErrorsReturned {
 public:
  ErrorsReturned() {
    for (Saved& saved : saved_)
      saved.known = Pmpi().Comm_get_errhandler(saved.comm, &saved.handler) == MPI_SUCCESS &&
                    Pmpi().Comm_set_errhandler(saved.comm, Pmpi().errors_return) == MPI_SUCCESS;
  }
  ~ErrorsReturned() {
    for (Saved& saved : saved_) {
      if (!saved.known) continue;
      Pmpi().Comm_set_errhandler(saved.comm, saved.handler);
      Pmpi().Errhandler_free(&saved.handler);
    }
  }
  ErrorsReturned(const ErrorsReturned&) = delete;
  ErrorsReturned& operator=(const ErrorsReturned&) = delete;
  bool set() const { return saved_[0].known && saved_[1].known; }

 private:
  struct Saved {
    MPI_Comm comm;
    MPI_Errhandler handler{};
    bool known = false;
  };
  // MPI says of which an error is that is of no communicator: MPI_COMM_SELF since 4.0, MPI_COMM_WORLD before.
  Saved saved_[2] = {{Pmpi().comm_world}, {Pmpi().comm_self}};
};

bool HasNames() {
  return Pmpi().Publish_name != nullptr && Pmpi().Lookup_name != nullptr && Pmpi().Unpublish_name != nullptr;
}

bool Publish(std::uint64_t run_hash, std::size_t part, const char* text) {
  return Pmpi().Publish_name(Name(run_hash, part).text, Pmpi().info_null, text) == MPI_SUCCESS;
}

void Unpublish(std::size_t parts) {
  // The text is not looked at.
  for (std::size_t part = 0; part < parts; ++part)
    Pmpi().Unpublish_name(Name(published_hash, part).text, Pmpi().info_null, "-");
}

// The text of one name after "COUNT:"; -1 if it is not there, else COUNT. `text` has room for MPI_MAX_PORT_NAME.
int LookUp(std::uint64_t run_hash, std::size_t part, char* text) {
  static char found[MPI_MAX_PORT_NAME + 1];
  memset(found, 0, sizeof found);
  if (Pmpi().Lookup_name(Name(run_hash, part).text, Pmpi().info_null, found) != MPI_SUCCESS) return -1;
  if (found[0] < '0' || found[0] > '9' || found[1] != ':') return -1;
  strcpy(text, found + 2);
  return found[0] - '0';
}

}  // namespace

void TellReference(std::uint64_t run_hash, const Reference& own) {
  if (!HasNames() || published != 0) return;
  const ErrorsReturned quiet;
  if (!quiet.set()) return;
  char text[kReferenceTextBytes];
  const std::size_t parts = (WriteReference(own, text) + kPartBytes - 1) / kPartBytes;
  published_hash = run_hash;
  if (!own.complete() || parts > kMostParts) {
    published = Publish(run_hash, 0, "0:") ? 1 : 0;
    return;
  }
  for (std::size_t part = parts; part-- > 0;) {
    char one[2 + kPartBytes + 1];
    snprintf(one, sizeof one, "%zu:%.*s", parts, static_cast<int>(kPartBytes), text + part * kPartBytes);
    // What is left of an earlier attempt is of no use to anybody without the first part.
    if (!Publish(run_hash, part, one)) return;
  }
  published = parts;
}

bool AskForReference(std::uint64_t run_hash, std::int64_t deadline_ns, Reference& reference) {
  if (!HasNames()) return false;
  const ErrorsReturned quiet;
  if (!quiet.set()) return false;
  static char text[kMostParts * (MPI_MAX_PORT_NAME + 1)];
  int parts = 0;
  for (std::int64_t nap_ns = kFirstNapNs; (parts = LookUp(run_hash, 0, text)) < 0;
       nap_ns = std::min(2 * nap_ns, kLongestNapNs)) {
    if (RawNs() > deadline_ns) return false;
    const timespec nap{0, static_cast<long>(nap_ns)};
    nanosleep(&nap, nullptr);
  }
  for (int part = 1; part < parts; ++part)
    if (LookUp(run_hash, static_cast<std::size_t>(part), text + strlen(text)) != parts) return false;
  return parts > 0 && ReadReference(text, reference);
}

void TakeReferenceBack() {
  if (published == 0) return;
  const ErrorsReturned quiet;
  if (quiet.set()) Unpublish(published);
  published = 0;
}

}  // namespace lockstep::pmpi
