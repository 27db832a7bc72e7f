// MPI_Init to MPI_Finalize, sessions, and the answers in a process without MPI: this library defines MPI_Initialized,
// so a program that looks for MPI by that name finds it and must get the answer "no".

#include <pthread.h>
#include <unistd.h>

#include "comms/pmpi/anchors.h"
#include "comms/pmpi/fortran.h"
#include "comms/pmpi/traced.h"

// runtime/lockstep.h
extern "C" void lockstep_start(void);
extern "C" void lockstep_stop(void);

namespace lockstep::pmpi {
namespace {

// The ring's header keeps a call in which this thread may stay for good.
void ShowInside(MpiOp op, std::uint64_t ticks) {
  RingPage* page = ring::Page();
  if (page == nullptr) return;
  page->header.open_call.flags = 0;
  page->header.call_begin_ticks.store(ticks, std::memory_order_relaxed);
  page->header.call_op.store(static_cast<std::uint32_t>(op), std::memory_order_release);
}

SegmentView Segment() { return {reinterpret_cast<std::byte*>(lockstep_probe.segment), lockstep_probe.segment_bytes}; }

// lockstep-clock may have taken the MPI rank that the launcher keeps for this process. MPI_Init then aborts (Open MPI
// 4.1.4), and no other message would explain it. The agent cannot know beforehand whether a script or Python loads MPI.
#define LS_AGENT_CLOCK(function)                                                      \
  "lockstep: --clock agent is for programs without MPI, and this one calls " function \
  ", which may fail now: leave "                                                      \
  "--clock agent out\n"
void WarnOfAgentClock(bool session) {
  const SegmentHeader* header = lockstep_probe.segment;
  if (header == nullptr || header->clock_agent == 0 || header->slot_rank > 0) return;
  static constexpr char kInit[] = LS_AGENT_CLOCK("MPI_Init"), kSession[] = LS_AGENT_CLOCK("MPI_Session_init");
  const ssize_t ignored =
      session ? write(STDERR_FILENO, kSession, sizeof kSession - 1) : write(STDERR_FILENO, kInit, sizeof kInit - 1);
  static_cast<void>(ignored);
}
#undef LS_AGENT_CLOCK

// The thread that is inside MPI_Init, 0 none. MPI has started before our own first calls are made. Without this, other
// threads that wait for MPI_Initialized would call MPI between them, earlier on one rank than on another, and
// collectives would be matched with the wrong ones.
std::atomic<pthread_t> g_starter{};
static_assert(std::atomic<pthread_t>::is_always_lock_free);

bool StartingElsewhere() {
  const pthread_t starter = g_starter.load();
  return starter != 0 && starter != pthread_self();
}

// The clock exchange is part of the call's row: the program is kept by it, and computes nothing.
void Begin(MpiOp op, std::uint64_t begin) {
  int level = MPI_THREAD_SINGLE;
  Pmpi().Query_thread(&level);
  FindFortranBindings();
  Activate(level);
  if (!Active()) return;
  ClockAnchorAtInit(Segment(), CallsReachUs() && !Spawned());
  WriteCall(op, MPI_SUCCESS, begin, ring::Ticks(), nullptr);
}

template <typename Call>
int Start(MpiOp op, Call&& call) {
  // The ring is claimed before MPI starts, so that this is not part of MPI_Init's time.
  if (lockstep_probe.segment != nullptr) ring::Page();
  WarnOfAgentClock(false);
  g_starter.store(pthread_self());
  const std::uint64_t begin = ring::Ticks();
  const int result = call();
  if (result == MPI_SUCCESS) Begin(op, begin);
  g_starter.store(0);
  return result;
}

// Says that this process has left MPI in good order.
void Left() {
  if (ProcessEntry* process = lockstep_process(); process != nullptr)
    process->mpi_finalized.store(1, std::memory_order_release);
}

template <typename Call>
int Ask(MpiOp op, Call&& call) {
  if (!Active()) return call();
  const std::uint64_t begin = ring::Ticks();
  const int result = call();
  return WriteCall(op, result, begin, ring::Ticks(), nullptr);
}

}  // namespace

LS_EXPORT int MPI_Init(int* argc, char*** argv) {
  return Start(MpiOp::kInit, [&] { return LS_PMPI(Init, argc, argv); });
}

LS_EXPORT int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return Start(MpiOp::kInit_thread, [&] { return LS_PMPI(Init_thread, argc, argv, required, provided); });
}

void FinalizeBegins() {
  if (Active()) ClockAnchorAtFinalize(Segment());
}

LS_EXPORT int MPI_Finalize() {
  if (!Active()) return LS_PMPI(Finalize);
  // The last exchanges of clocks wait for other ranks, too.
  const std::uint64_t begin = ring::Ticks();
  ShowInside(MpiOp::kFinalize, begin);
  Comm* world = FindComm(Pmpi().comm_world);
  const std::uint32_t number = NumberOf(world), seq = world != nullptr ? NextSeq(world) : 0;
  FinalizeBegins();
  const bool last = Deactivate();
  std::uint64_t end = 0;
  int result = MPI_SUCCESS;
  {
    Blocking blocking(MpiOp::kFinalize);
    result = LS_PMPI(Finalize);
    end = blocking.End();
  }
  if (ring::Recording()) WriteOperation(MpiOp::kFinalize, result, 0, begin, end, 0, number, seq, Shape{});
  if (last) Left();
  return result;
}

// Sessions (MPI 4.0). No call of ours is made that another rank must join: clocks are those of the agents.
LS_EXPORT int MPI_Session_init(MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session) {
  if (lockstep_probe.segment != nullptr) ring::Page();
  WarnOfAgentClock(true);
  const std::uint64_t begin = ring::Ticks();
  const int result = LS_PMPI(Session_init, info, errhandler, session);
  const std::uint64_t end = ring::Ticks();
  if (result != MPI_SUCCESS) return result;
  FindFortranBindings();
  SessionOpened(*session);
  return Active() ? WriteCall(MpiOp::kSession_init, result, begin, end, nullptr) : result;
}

LS_EXPORT int MPI_Session_finalize(MPI_Session* session) {
  if (!Active()) return LS_PMPI(Session_finalize, session);
  const bool last = SessionCloses(*session);
  std::uint64_t begin = 0, end = 0;
  int result = MPI_SUCCESS;
  {
    Blocking blocking(MpiOp::kSession_finalize);
    begin = blocking.begin();
    result = LS_PMPI(Session_finalize, session);
    end = blocking.End();
  }
  WriteCall(MpiOp::kSession_finalize, result, begin, end, nullptr);
  if (last) Left();
  return result;
}

// These may ask the launcher.
#define LS_ASK(name, parameters, arguments)                                            \
  LS_EXPORT int MPI_##name parameters {                                                \
    return Ask(MpiOp::k##name, [&] { return LS_PMPI(name, LS_ARGUMENTS arguments); }); \
  }
#define LS_ARGUMENTS(...) __VA_ARGS__
LS_ASK(Session_get_num_psets, (MPI_Session session, MPI_Info info, int* count), (session, info, count))
LS_ASK(Session_get_nth_pset, (MPI_Session session, MPI_Info info, int n, int* length, char* name),
       (session, info, n, length, name))
LS_ASK(Session_get_pset_info, (MPI_Session session, const char* name, MPI_Info* info), (session, name, info))
LS_ASK(Group_from_session_pset, (MPI_Session session, const char* name, MPI_Group* group), (session, name, group))

LS_EXPORT int MPI_Abort(MPI_Comm comm, int code) {
  if (Active()) {
    // MPI_Abort does not return, so the record is written first, and the ring's header keeps the call in progress.
    const std::uint64_t now = ring::Ticks();
    if (ring::Recording()) {
      Shape shape;
      shape.tag = code;
      MpiRecord record = MakeRecord(MpiOp::kAbort, now, now, NumberOf(FindComm(comm)), shape);
      Write(record, MPI_SUCCESS);
    }
    ShowInside(MpiOp::kAbort, now);
  }
  return LS_PMPI(Abort, comm, code);
}

// The standard's switch for profilers, used as Score-P and TAU use it: 0 stops recording, 1 and above start it (again);
// other levels are ignored.
LS_EXPORT int MPI_Pcontrol(const int level, ...) {
  if (level == 0)
    lockstep_stop();
  else if (level > 0)
    lockstep_start();
  return LS_PMPI(Pcontrol, level);
}

LS_EXPORT int MPI_Initialized(int* flag) {
  if (!StartingElsewhere() && Pmpi().Initialized != nullptr) return Pmpi().Initialized(flag);
  *flag = 0;
  return MPI_SUCCESS;
}

LS_EXPORT int MPI_Finalized(int* flag) {
  if (Pmpi().Finalized != nullptr) return Pmpi().Finalized(flag);
  *flag = 0;
  return MPI_SUCCESS;
}

}  // namespace lockstep::pmpi
