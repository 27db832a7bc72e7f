#include "comms/pmpi/anchors.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comms/pmpi/agreement.h"
#include "comms/pmpi/pmix_board.h"
#include "comms/pmpi/pmpi_table.h"
#include "comms/pmpi/reference_names.h"
#include "comms/pmpi/state.h"
#include "core/event_clock.h"

namespace lockstep::pmpi {
namespace {

constexpr int kTagPing = 11, kTagReply = 12, kTagNote = 13;  // And the two after it.
constexpr int kPings = 30, kLeastPings = 5;
// All leaders are answered one after the other: 256 of them with 30 pings of 10 us
// are 77 ms; more share that time.
constexpr int kPingBudget = 256 * kPings;
constexpr int kCheckPings = 5, kCheckedPerDomain = 3;
constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kSpinNs = 2 * kMs;
constexpr std::int64_t kSoonNs = 100 * kMs;
// Ranks reach MPI_Finalize further apart than they leave MPI_Init, and wait for each other in it anyway.
constexpr std::int64_t kFinalizePatienceNs = 10'000 * kMs;

struct Message {
  std::uint64_t number;
  std::int64_t received, sent;
  std::uint64_t padding;
};

struct Member {
  std::uint64_t domain;
  std::int32_t rank, reserved;
};

struct Anchor {
  // kReady: `comm` can be used. kGone: given up, but messages of the others can still be read.
  enum class State { kNone, kReady, kGone } state = State::kNone;
  bool tried = false, finished = false;
  bool unmet = false;  // It asked alone where rank 0's agent is, and was not told.
  MPI_Comm comm{};
  int rank = 0, size = 0;
  int leader = 0, place = 0;  // Of this rank's domain; position among its ranks.
  int domains = 1;
  std::uint64_t number = 0;
  std::uint32_t burst = 0;
  // Leaders of the other domains (rank 0 answers them), and the first ranks of this rank's domain.
  int* leaders = nullptr;
  int leader_count = 0;
  int checked[kCheckedPerDomain] = {};
  int checked_count = 0;
};
// One per process: MPI is initialised once, by one thread.
constinit Anchor anchor;

void Nap(std::int64_t waited_ns) {
  // A peer that takes long to reach MPI_Init must not cost a spinning core.
  if (waited_ns < kSpinNs) return;
  const timespec time{0, waited_ns < 100 * kMs ? 50'000 : 500'000};
  nanosleep(&time, nullptr);
}

constexpr std::int64_t kForGood = INT64_MAX;

// Returns true when done, false at the deadline; the request is left behind then.
bool Finish(MPI_Request* request, std::int64_t deadline_ns) {
  const std::int64_t begin = RawNs();
  for (;;) {
    int done = 0;
    if (Pmpi().Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done != 0) return true;
    const std::int64_t now = RawNs();
    if (now > deadline_ns) return false;
    Nap(now - begin);
  }
}

void Store(const SegmentView& segment, const BurstRow& row) {
  SegmentHeader& header = segment.header();
  // Single producer (core/ring_layout.h); the agent reads up to the count.
  const std::uint32_t at = header.burst_rows.load(std::memory_order_relaxed);
  if (at >= kMaxProbeBursts) return;
  segment.bursts()[at] = row;
  header.burst_rows.store(at + 1, std::memory_order_release);
}

EventClock ClockOf(const SegmentView& segment) { return {segment.header().clock_mode, segment.header().distortion}; }

bool SendMessage(const Message& message, int peer, int tag, std::int64_t deadline_ns) {
  MPI_Request request;
  // The buffer must outlive an abandoned request: 32 bytes go eagerly, so it is complete on return.
  static Message buffer;
  buffer = message;
  if (Pmpi().Isend(&buffer, sizeof buffer, Pmpi().type_byte, peer, tag, anchor.comm, &request) != MPI_SUCCESS)
    return false;
  return Finish(&request, deadline_ns);
}

// Polls with Iprobe, so that no receive is left behind if the peer sends nothing.
bool Receive(int peer, int tag, std::int64_t deadline_ns, const EventClock& clock, Message* message,
             std::int64_t* when_ns) {
  const std::int64_t begin = RawNs();
  for (;;) {
    int there = 0;
    if (Pmpi().Iprobe(peer, tag, anchor.comm, &there, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (there != 0) break;
    const std::int64_t now = RawNs();
    if (now > deadline_ns) return false;
    Nap(now - begin);
  }
  if (Pmpi().Recv(message, sizeof *message, Pmpi().type_byte, peer, tag, anchor.comm, MPI_STATUS_IGNORE) != MPI_SUCCESS)
    return false;
  // Stamped after the receive on both sides: the copy costs the same in each direction.
  *when_ns = clock.RankNs();
  return true;
}

bool Ask(const SegmentView& segment, int peer, int pings, std::uint32_t purpose, std::int64_t deadline_ns) {
  const EventClock clock = ClockOf(segment);
  for (int left = pings - 1; left >= 0; --left) {
    const Message ping{++anchor.number, left, 0, 0};
    Message reply{};
    std::int64_t received = 0;
    const std::int64_t sent = clock.RankNs();
    if (!SendMessage(ping, peer, kTagPing, deadline_ns)) return false;
    do {
      if (!Receive(peer, kTagReply, deadline_ns, clock, &reply, &received)) return false;
    } while (reply.number != ping.number);
    Store(segment, {anchor.burst, peer, 1, purpose, sent, reply.received, reply.sent, received});
  }
  ++anchor.burst;
  return true;
}

bool Answer(const SegmentView& segment, int peer, std::int64_t deadline_ns) {
  const EventClock clock = ClockOf(segment);
  for (;;) {
    Message message{};
    std::int64_t received = 0;
    if (!Receive(peer, kTagPing, deadline_ns, clock, &message, &received)) return false;
    const std::int64_t left = message.received;
    message.received = received;
    message.sent = clock.RankNs();
    if (!SendMessage(message, peer, kTagReply, deadline_ns)) return false;
    if (left == 0) return true;
  }
}

// The bursts of all ranks, in an order that cannot deadlock: rank 0 answers the leaders by rank; then each leader
// answers the first ranks of its domain.
bool Exchange(const SegmentView& segment, std::int64_t limit_ns) {
  bool well = true;
  const int leaders = anchor.domains - 1;
  const int pings = leaders * kPings <= kPingBudget       ? kPings
                    : kPingBudget / leaders > kLeastPings ? kPingBudget / leaders
                                                          : kLeastPings;
  // A rank that does not come delays only its own exchange: the limit is per partner, at most three times in all.
  int missed = 0;
  const auto answer = [&](int peer) {
    if (missed < 3 && !Answer(segment, peer, RawNs() + limit_ns)) {
      ++missed;
      well = false;
    }
  };
  if (anchor.rank == 0) {
    for (int i = 0; i < anchor.leader_count; ++i) answer(anchor.leaders[i]);
  } else if (anchor.rank == anchor.leader) {
    well = Ask(segment, 0, pings, 0, RawNs() + limit_ns + leaders * kMs) && well;
  }
  if (anchor.rank == anchor.leader) {
    for (int i = 0; i < anchor.checked_count; ++i) answer(anchor.checked[i]);
  } else if (anchor.place <= kCheckedPerDomain) {
    well = Ask(segment, anchor.leader, kCheckPings, 1, RawNs() + limit_ns + leaders * kMs) && well;
  }
  return well;
}

// Notes as messages on the private communicator, whose members have all agreed once. MPI_Finalize drops a message that
// no rank receives any more; waiting for one drives MPI's progress.
class MessageBoard final : public AgreementBoard {
 public:
  bool Post(Note note, bool yes) override {
    const std::int64_t first = std::int64_t{anchor.rank} * kAgreementFanout + 1;
    const std::int64_t end = first + kAgreementFanout < anchor.size ? first + kAgreementFanout : anchor.size;
    if (note != Note::kDecision && anchor.rank > 0) Send((anchor.rank - 1) / kAgreementFanout, note, yes);
    if (note != Note::kVote)
      for (std::int64_t child = first; child < end; ++child) Send(static_cast<int>(child), note, yes);
    return true;
  }
  bool Publish() override { return true; }
  Reply Await(int peer, Note note, std::int64_t deadline_ns) override {
    const PmpiTable& mpi = Pmpi();
    const std::int64_t begin = RawNs();
    for (int there = 0; there == 0;) {
      if (mpi.Iprobe(peer, Tag(note), anchor.comm, &there, MPI_STATUS_IGNORE) != MPI_SUCCESS) return Reply::kAbsent;
      const std::int64_t now = RawNs();
      if (there == 0 && now > deadline_ns) return Reply::kAbsent;
      if (there == 0) Nap(now - begin);
    }
    char yes = 0;
    if (mpi.Recv(&yes, 1, mpi.type_byte, peer, Tag(note), anchor.comm, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return Reply::kAbsent;
    return yes != 0 ? Reply::kYes : Reply::kNo;
  }

 private:
  static int Tag(Note note) { return kTagNote + static_cast<int>(note); }
  static void Send(int peer, Note note, bool yes) {
    // MPI may read these words at any later time, and completes a request that is not done yet.
    static const char kWords[] = {0, 1};
    MPI_Request request;
    int done = 0;
    if (Pmpi().Isend(kWords + (yes ? 1 : 0), 1, Pmpi().type_byte, peer, Tag(note), anchor.comm, &request) ==
            MPI_SUCCESS &&
        Pmpi().Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0)
      Pmpi().Request_free(&request);
  }
};

// Called on every rank right after all have agreed to it, so that it comes before everything that the application does
// on the world communicator. It is not counted as a creation or a collective of the application, because PMPI calls
// never reach the wrappers. No attribute with a copy callback exists this early.
//
// This wait has no limit. Open MPI makes a communicator by several collectives on the world communicator, each begun
// when the one before it is done: whoever returned meanwhile would let the application's own come between them, in
// another order on each rank, and its results would be wrong (docs/decisions/mpi-agreement.md).
bool MakeComm() {
  const PmpiTable& mpi = Pmpi();
  MPI_Request request;
  if (mpi.Comm_idup(mpi.comm_world, &anchor.comm, &request) != MPI_SUCCESS || !Finish(&request, kForGood)) {
    anchor.comm = {};  // It must not be used before it is made.
    return false;
  }
  mpi.Comm_set_errhandler(anchor.comm, mpi.errors_return);
  return true;
}

// The clock domains of all ranks, by rank; null if they did not arrive in time. Kept on the heap until the exchange is
// over, and leaked if it is abandoned, because MPI may still write there.
Member* GatherMembers(const SegmentHeader& header, std::int64_t deadline_ns) {
  const PmpiTable& mpi = Pmpi();
  MPI_Request request;
  const auto size = static_cast<std::size_t>(anchor.size);
  auto* members = static_cast<Member*>(calloc(size + 1, sizeof(Member)));
  if (members == nullptr) return nullptr;
  Member* own = members + size;
  *own = {header.clock_domain, anchor.rank, 0};
  const bool well = mpi.Iallgather(own, sizeof(Member), mpi.type_byte, members, sizeof(Member), mpi.type_byte,
                                   anchor.comm, &request) == MPI_SUCCESS &&
                    Finish(&request, deadline_ns);
  return well ? members : nullptr;
}

// The address of rank 0's agent, and the key that proves that it belongs to this job.
bool BroadcastReference(const SegmentHeader& header, Reference& reference, std::int64_t deadline_ns) {
  const PmpiTable& mpi = Pmpi();
  MPI_Request request;
  if (anchor.rank == 0) reference = OwnReference(header);
  return mpi.Ibcast(&reference, sizeof reference, mpi.type_byte, 0, anchor.comm, &request) == MPI_SUCCESS &&
         Finish(&request, deadline_ns);
}

// First ranks of distinct domains, rank 0's first. Few domains per rank count: nodes.
bool FindLeaders(const Member* members, std::uint64_t own_domain) {
  anchor.leader = -1;
  anchor.leaders = static_cast<int*>(malloc(sizeof(int) * static_cast<std::size_t>(anchor.size)));
  if (anchor.leaders == nullptr) return false;
  int firsts = 0;
  for (int r = 0; r < anchor.size; ++r) {
    if (members[r].domain == own_domain) {
      if (anchor.leader < 0) anchor.leader = r;
      if (r < anchor.rank) ++anchor.place;
      if (r != anchor.leader && anchor.checked_count < kCheckedPerDomain) anchor.checked[anchor.checked_count++] = r;
    }
    // Ranks of one node mostly follow each other, so the last leader found is tried first.
    bool known = false;
    for (int i = firsts; i-- > 0 && !known;) known = members[anchor.leaders[i]].domain == members[r].domain;
    if (!known) anchor.leaders[firsts++] = r;
  }
  anchor.domains = firsts;
  // Does not count rank 0 itself.
  anchor.leader_count = firsts - 1;
  memmove(anchor.leaders, anchor.leaders + 1, sizeof(int) * static_cast<std::size_t>(anchor.leader_count));
  return true;
}

// Finds which ranks share a clock and where the reference's agent listens, and writes both into the mailbox for the
// agent.
bool Meet(const SegmentView& segment, std::int64_t deadline_ns) {
  SegmentHeader& header = segment.header();
  static Reference reference;  // MPI may write to it after an exchange that was abandoned.
  Member* members = GatherMembers(header, deadline_ns);
  if (members == nullptr || !BroadcastReference(header, reference, deadline_ns) ||
      !FindLeaders(members, header.clock_domain))
    return false;
  free(members);
  ClockMailbox& mailbox = header.mailbox;
  mailbox.world_rank = anchor.rank;
  mailbox.world_size = anchor.size;
  mailbox.leader = anchor.leader;
  mailbox.reference = 0;
  mailbox.domains = static_cast<std::uint32_t>(anchor.domains);
  mailbox.domain = header.clock_domain;
  memcpy(mailbox.reference_address, reference.address, sizeof mailbox.reference_address);
  memcpy(mailbox.reference_key, reference.key, sizeof mailbox.reference_key);
  mailbox.state.store(1, std::memory_order_release);
  return true;
}

// What ranks that do not call MPI together can still learn, each by itself: where rank 0's agent is, which its probe
// tells before it asks for an agreement.
void TellAlone(const SegmentHeader& header, PmixBoard& board) {
  const Reference own = OwnReference(header);
  if ((header.anchors_wanted & kOtherHosts) == 0 || header.slot_rank > 0 || anchor.rank != 0 || !own.complete()) return;
  static char text[kReferenceTextBytes];
  WriteReference(own, text);
  board.Tell(text);
}

void MeetAlone(SegmentHeader& header, PmixBoard& board, std::int64_t limit_ns) {
  if ((header.anchors_wanted & kOtherHosts) == 0 || header.slot_rank != anchor.rank || anchor.rank == 0) return;
  static char text[kReferenceTextBytes];
  Reference reference;
  anchor.unmet = !board.Ask(0, text, sizeof text, RawNs() + limit_ns) || !ReadReference(text, reference);
  if (!anchor.unmet) LeaveReference(header.mailbox, reference);
}

// The same where there is no board to agree on.
void MeetByName(SegmentHeader& header, std::int64_t limit_ns) {
  if ((header.anchors_wanted & kReferenceByName) == 0 || header.slot_rank != anchor.rank) return;
  if (anchor.rank == 0) {
    TellReference(header.run_hash, OwnReference(header));
    return;
  }
  Reference reference;
  if (AskForReference(header.run_hash, RawNs() + limit_ns, reference)) LeaveReference(header.mailbox, reference);
}

void Abandon(const SegmentView& segment) {
  anchor.state = Anchor::State::kGone;
  segment.header().mailbox.state.store(2, std::memory_order_release);
}

}  // namespace

void ClockAnchorAtInit(const SegmentView& segment, bool able) {
  if (segment.base == nullptr || anchor.tried) return;
  anchor.tried = true;
  const PmpiTable& mpi = Pmpi();
  if (!mpi.complete) return;
  SegmentHeader& header = segment.header();
  mpi.Comm_rank(mpi.comm_world, &anchor.rank);
  mpi.Comm_size(mpi.comm_world, &anchor.size);
  // A further process of the slot that made a world of its own has no other rank to exchange with.
  if (anchor.size < 2) return;
  ClockMailbox& mailbox = header.mailbox;
  const std::int64_t limit_ns = static_cast<std::int64_t>(header.anchor_timeout_ms) * kMs;
  PmixBoard board(anchor.rank);
  if (!board.usable()) {
    mailbox.agreement.store(AnchorAgreement::kNoBoard, std::memory_order_relaxed);
    if (!Spawned()) MeetByName(header, limit_ns);
    return;
  }
  // A process whose rank is not its agent's must not vote for that agent. A rank that is not able votes no, so that
  // the others do not wait for it.
  able = able && (header.anchors_wanted & kAnchorsWanted) != 0 &&
         (header.slot_rank < 0 || header.slot_rank == anchor.rank);
  if (!Spawned()) TellAlone(header, board);
  const std::int64_t asked_ns = RawNs();
  if (!Agree(board, anchor.rank, anchor.size, able, limit_ns)) {
    mailbox.waited_ns.store(RawNs() - asked_ns, std::memory_order_relaxed);
    // A rank that has heard nothing of rank 0 by now is not to wait again.
    if (!Spawned()) MeetAlone(header, board, kSoonNs);
    mailbox.agreement.store(
        (header.anchors_wanted & kAnchorsWanted) != 0 ? AnchorAgreement::kRefused : AnchorAgreement::kNone,
        std::memory_order_relaxed);
    return;
  }
  mailbox.agreement.store(AnchorAgreement::kAgreed, std::memory_order_relaxed);
  if (!MakeComm() || !Meet(segment, RawNs() + limit_ns)) {
    Abandon(segment);
    // It is there: rank 0 has told it before it agreed.
    MeetAlone(header, board, limit_ns);
    return;
  }
  anchor.state = Anchor::State::kReady;
  if (!Exchange(segment, limit_ns)) Abandon(segment);
}

void ClockAnchorAtFinalize(const SegmentView& segment) {
  TakeReferenceBack();
  if (segment.base == nullptr) return;
  if (anchor.unmet && (segment.header().anchors_wanted & kElsewhere) != 0) {
    // Rank 0 may have come late. By now it has told it, or never will: one question, to which another host's server
    // has the answer at once.
    if (PmixBoard board(anchor.rank); board.usable()) MeetAlone(segment.header(), board, 0);
    anchor.unmet = false;
  }
  if (anchor.comm == MPI_Comm{} || anchor.finished) return;
  anchor.finished = true;
  const bool able = anchor.state == Anchor::State::kReady;
  MessageBoard board;
  if (!Agree(board, anchor.rank, anchor.size, able, kFinalizePatienceNs)) {
    if (able) Abandon(segment);
    return;  // The communicator may have unfinished operations: MPI_Finalize cleans it up.
  }
  const std::int64_t limit_ns = static_cast<std::int64_t>(segment.header().anchor_timeout_ms) * kMs;
  if (!Exchange(segment, limit_ns)) {
    Abandon(segment);
    return;
  }
  free(anchor.leaders);
  anchor.leaders = nullptr;
  anchor.state = Anchor::State::kNone;
  Pmpi().Comm_free(&anchor.comm);
}

}  // namespace lockstep::pmpi
