// lockstep-clock: clock bursts over MPI, for jobs whose application uses no MPI
// (--clock agent). One process per slot, started by the agent, which links no MPI
// itself; it takes the slot's rank in MPI_COMM_WORLD. Tested with Open MPI 4.1.4:
// the slot's MPI_Init may be called by a child of the process that mpirun started,
// while the application runs; but only by one process per slot, ever.
//
// Whether to start it at all is agreed before (ClockCoordinator::Plan): MPI_Init
// waits for every rank, so a rank that decides alone hangs the others.
//
// It sleeps: 5 ms polls on the answering side, nothing but a wake-up per period on
// the asking one. Within a burst (well under a millisecond) both stay awake, and
// take turns at two ways of doing so, four pings each; only the quickest ping
// counts. Spinning is best if each side has a core to itself for the moment
// (yielding would hand it to the application for a time slice). Yielding at once is
// best if both sides are on one core (spinning made each ping take 66 us there).

#include <mpi.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "comms/clock/burst_pacer.h"
#include "comms/clock/clock_process.h"
#include "core/schema_enums.h"

namespace lockstep {
namespace {

constexpr int kTagPing = 1, kTagReply = 2;
constexpr int kPings = 25, kCheckPings = 5, kCheckedPerDomain = 3;
// On a core that the application shares, most pings wait for a time slice. A burst therefore goes on until one ping was
// as quick as the quickest before, and keeps its best kPings.
constexpr int kMostPings = 400;
constexpr std::int64_t kBurstNs = 20'000'000;
constexpr int kServePollMs = 5, kClientPollMs = 100;
constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kSpinNs = 1 * kMs;  // A burst's next message comes within microseconds.
constexpr std::int64_t kYieldNs = 30'000;
constexpr std::int64_t kReplyNs = 2000 * kMs;  // After this time the peer has ended or is stopped.

struct Message {
  std::uint64_t number;
  std::int64_t received, sent;
  std::uint64_t yield;  // How both sides wait for the next message.
};
constexpr int kTurn = 4, kFewestPings = 2 * kTurn;

void Sleep(std::int64_t ns) {
  const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&time, nullptr);
}

class ClockRank {
 public:
  explicit ClockRank(const clock::ClockProcessSetup& setup)
      : setup_(setup), burst_(setup.first_burst), parent_(getppid()) {}
  void Run();

 private:
  void Meet();
  void Wait(MPI_Request* request);
  // Answers the messages that have arrived; returns whether there was one.
  bool Serve();
  bool Ping(int peer, int pings, std::uint32_t purpose);
  // Sleeps up to `ms`; returns false once the agent wants this process to end.
  bool Going(int ms);

  const clock::ClockProcessSetup setup_;
  std::uint32_t burst_;
  const pid_t parent_;
  int rank_ = 0, size_ = 0;
  int leader_ = 0, domains_ = 1, place_ = 0;  // `place_`: position among the ranks of the domain.
  std::uint64_t number_ = 0;
  clock::BurstPacer pacer_;
  std::int64_t pause_ns_ = 0;
  std::int64_t quickest_ = 1'000'000'000;  // Least round trip so far.
};

// Never blocks inside MPI, whose own waiting spins on the application's core.
void ClockRank::Wait(MPI_Request* request) {
  for (int done = 0;;) {
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return;
    if (!Serve()) Sleep(2 * kMs);
    if (getppid() != parent_) _exit(1);  // The agent was killed, and with it the job.
  }
}

void ClockRank::Meet() {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  std::vector<std::uint64_t> domains(static_cast<std::size_t>(size_));
  MPI_Request request;
  MPI_Iallgather(&setup_.domain, 1, MPI_UINT64_T, domains.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD, &request);
  Wait(&request);
  const auto first = std::find(domains.begin(), domains.end(), setup_.domain);
  leader_ = static_cast<int>(first - domains.begin());
  place_ = static_cast<int>(std::count(domains.begin(), domains.begin() + rank_, setup_.domain));
  std::sort(domains.begin(), domains.end());
  domains_ = static_cast<int>(std::unique(domains.begin(), domains.end()) - domains.begin());
}

bool ClockRank::Serve() {
  bool served = false, yield = false;
  std::int64_t quiet_since = RawNs();
  for (;;) {
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kTagPing, MPI_COMM_WORLD, &there, &status);
    if (there == 0) {
      // A burst has begun: stay awake for its next ping.
      const std::int64_t quiet = RawNs() - quiet_since;
      if (!served || quiet > kSpinNs) return served;
      if (yield || quiet > kYieldNs) sched_yield();
      continue;
    }
    Message message;
    MPI_Recv(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, kTagPing, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    message.received = setup_.clock.RankNs();
    message.sent = setup_.clock.RankNs();
    MPI_Send(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, kTagReply, MPI_COMM_WORLD);
    served = true;
    yield = message.yield != 0;
    quiet_since = RawNs();
  }
}

bool ClockRank::Ping(int peer, int pings, std::uint32_t purpose) {
  std::vector<BurstRow> rows;
  const auto round_trip = [](const BurstRow& row) { return (row.t4 - row.t1) - (row.t3 - row.t2); };
  const std::int64_t burst_begin = RawNs();
  std::int64_t least = INT64_MAX;
  const auto enough = [&](int sent) {
    if (sent >= kFewestPings && RawNs() - burst_begin > kBurstNs) return true;
    return sent >= pings && (purpose != 0 || least < 2 * quickest_ || sent >= kMostPings);
  };
  for (int i = 0; !enough(i); ++i) {
    const bool yield = i / kTurn % 2 != 0;
    Message out{++number_, 0, 0, yield}, in{};
    const std::int64_t sent = setup_.clock.RankNs();
    MPI_Send(&out, sizeof out, MPI_BYTE, peer, kTagPing, MPI_COMM_WORLD);
    const std::int64_t begin = RawNs();
    for (;;) {
      int there = 0;
      MPI_Iprobe(peer, kTagReply, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
      const std::int64_t received = setup_.clock.RankNs();
      if (there != 0) {
        MPI_Recv(&in, sizeof in, MPI_BYTE, peer, kTagReply, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (in.number != out.number) continue;  // An answer to a ping that was given up.
        rows.push_back({burst_, peer, schema::Transport::kMpiAgents, purpose, sent, in.received, in.sent, received});
        least = std::min(least, round_trip(rows.back()));
        break;
      }
      const std::int64_t waited = RawNs() - begin;
      if (waited > kReplyNs) return false;
      // Only the first ping waits for the peer to wake up.
      if (waited > kSpinNs || (i == 0 && waited > kYieldNs))
        Sleep(100'000);
      else if (yield || waited > kYieldNs)
        sched_yield();
      if (i == 0) (void)Serve();
    }
  }
  ++burst_;
  quickest_ = std::min(quickest_, least);
  std::sort(rows.begin(), rows.end(),
            [&](const BurstRow& a, const BurstRow& b) { return round_trip(a) < round_trip(b); });
  const auto best = rows.begin();
  const std::int64_t offset = (best->t2 - best->t1) / 2 + (best->t3 - best->t4) / 2;
  if (purpose == 0) pause_ns_ = pacer_.Next(best->t1, offset, least);
  rows.resize(static_cast<std::size_t>(std::min<int>(kPings, static_cast<int>(rows.size()))));
  // Below PIPE_BUF, so it is written whole or not at all. Going() notices that the agent has ended.
  static_assert(sizeof(BurstRow) * kPings <= 4096);
  (void)!write(STDOUT_FILENO, rows.data(), rows.size() * sizeof(BurstRow));
  return true;
}

bool ClockRank::Going(int ms) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, ms) > 0) {
    char byte;
    if (read(STDIN_FILENO, &byte, 1) <= 0) {
      if (getppid() != parent_) _exit(1);
      return false;
    }
  }
  return true;
}

void ClockRank::Run() {
  Meet();
  const bool leads = leader_ == rank_, asks = leads && rank_ != 0 && setup_.domain != 0 && leader_ != 0 && domains_ > 1;
  if (!leads && place_ <= kCheckedPerDomain) Ping(leader_, kCheckPings, 1);
  std::int64_t next = RawNs();
  for (bool going = true; going;) {
    (void)Serve();
    if (asks && RawNs() >= next) {
      const bool answered = Ping(0, kPings, 0);
      next = RawNs() + (answered ? pause_ns_ : 1000 * kMs);
    }
    const std::int64_t left_ms = asks ? std::max<std::int64_t>(1, (next - RawNs()) / kMs) : kClientPollMs;
    going = Going(leads && (rank_ == 0 || RawNs() < next) && !asks
                      ? kServePollMs
                      : static_cast<int>(std::min<std::int64_t>(left_ms, kClientPollMs)));
  }
  if (asks) Ping(0, kPings, 0);
  // The others may still need answers, and MPI_Finalize would spin until the last rank comes.
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  Wait(&request);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::clock::ClockProcessSetup setup;
  char* at = reinterpret_cast<char*>(&setup);
  for (std::size_t filled = 0; filled < sizeof setup;) {
    const ssize_t n = read(STDIN_FILENO, at + filled, sizeof setup - filled);
    if (n <= 0) return 2;
    filled += static_cast<std::size_t>(n);
  }
  if (setup.magic != lockstep::clock::kClockProcessMagic) return 2;
  signal(SIGPIPE, SIG_IGN);
  // Open MPI on an oversubscribed node gives the core away inside MPI_Test; here that would end a burst.
  setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1);
  MPI_Init(&argc, &argv);
  const lockstep::BurstRow ready{lockstep::clock::kClockReadyBurst, -1, 0, 0, 0, 0, 0, 0};
  (void)!write(STDOUT_FILENO, &ready, sizeof ready);
  lockstep::ClockRank(setup).Run();
  MPI_Finalize();
  return 0;
}
