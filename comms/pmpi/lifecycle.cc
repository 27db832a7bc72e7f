// MPI_Init to MPI_Finalize, and what a process without MPI answers: this library
// defines MPI_Initialized, so whoever looks for MPI by that name finds us and must
// hear "no".

#include <unistd.h>

#include "comms/pmpi/anchors.h"
#include "comms/pmpi/fortran.h"
#include "comms/pmpi/traced.h"

namespace lockstep {
// Where the anchors are not built in, there are none.
void ClockAnchorAtInit(const SegmentView& segment) __attribute__((weak));
void ClockAnchorAtFinalize(const SegmentView& segment) __attribute__((weak));
}  // namespace lockstep

// runtime/lockstep.h
extern "C" void lockstep_start(void);
extern "C" void lockstep_stop(void);

namespace lockstep::pmpi {
namespace {

SegmentView Segment() { return {reinterpret_cast<std::byte*>(lockstep_probe.segment), lockstep_probe.segment_bytes}; }

// Of a call that is not in a communicator.
void WriteCall(MpiOp op, std::uint64_t begin, std::uint64_t end, int result) {
  if (!ring::Recording()) return;
  MpiRecord record = MakeRecord(op, begin, end, kNoComm, Shape{});
  Write(record, result);
}

// lockstep-clock may hold the place in the job that the launcher keeps for this process: MPI_Init then aborts (Open MPI
// 4.1.4), and nothing else would say why. The agent cannot know beforehand of MPI that a script or Python loads.
void WarnOfAgentClock() {
  const SegmentHeader* header = lockstep_probe.segment;
  if (header == nullptr || header->clock_agent == 0 || header->slot_rank > 0) return;
  static constexpr char kLine[] =
      "lockstep: --clock agent is for programs without MPI, and this one calls MPI_Init, which may fail now: leave "
      "--clock agent out\n";
  const ssize_t ignored = write(STDERR_FILENO, kLine, sizeof kLine - 1);
  static_cast<void>(ignored);
}

template <typename Call>
int Start(MpiOp op, Call&& call) {
  // The ring before MPI: claiming it is not part of MPI_Init's time.
  if (lockstep_probe.segment != nullptr) ring::Page();
  WarnOfAgentClock();
  const std::uint64_t begin = ring::Ticks();
  const int result = call();
  const std::uint64_t end = ring::Ticks();
  if (result != MPI_SUCCESS) return result;
  int level = MPI_THREAD_SINGLE;
  Pmpi().Query_thread(&level);
  FindFortranBindings();
  Activate(level);
  if (!Active()) return result;
  WriteCall(op, begin, end, result);
  if (&ClockAnchorAtInit != nullptr) ClockAnchorAtInit(Segment());
  return result;
}

}  // namespace

LS_EXPORT int MPI_Init(int* argc, char*** argv) {
  return Start(MpiOp::kInit, [&] { return LS_PMPI(Init, argc, argv); });
}

LS_EXPORT int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return Start(MpiOp::kInit_thread, [&] { return LS_PMPI(Init_thread, argc, argv, required, provided); });
}

LS_EXPORT int MPI_Finalize() {
  if (!Active()) return LS_PMPI(Finalize);
  if (&ClockAnchorAtFinalize != nullptr) ClockAnchorAtFinalize(Segment());
  Deactivate();
  std::uint64_t begin = 0, end = 0;
  int result = MPI_SUCCESS;
  {
    Blocking blocking(MpiOp::kFinalize);
    begin = blocking.begin();
    result = LS_PMPI(Finalize);
    end = blocking.End();
  }
  WriteCall(MpiOp::kFinalize, begin, end, result);
  if (ProcessEntry* process = lockstep_process(); process != nullptr)
    process->mpi_finalized.store(1, std::memory_order_release);
  return result;
}

LS_EXPORT int MPI_Abort(MPI_Comm comm, int code) {
  if (Active()) {
    // It does not return: the record goes first, and the ring keeps saying where we are.
    const std::uint64_t now = ring::Ticks();
    if (ring::Recording()) {
      Shape shape;
      shape.tag = code;
      MpiRecord record = MakeRecord(MpiOp::kAbort, now, now, NumberOf(FindComm(comm)), shape);
      Write(record, MPI_SUCCESS);
    }
    if (RingPage* page = ring::Page(); page != nullptr) {
      page->header.call_begin_ticks.store(now, std::memory_order_relaxed);
      page->header.call_op.store(static_cast<std::uint32_t>(MpiOp::kAbort), std::memory_order_relaxed);
    }
  }
  return LS_PMPI(Abort, comm, code);
}

// The standard's switch for profilers, used as Score-P and TAU use it: 0 stops
// recording, 1 and above start it (again); other levels mean nothing to us.
LS_EXPORT int MPI_Pcontrol(const int level, ...) {
  if (level == 0)
    lockstep_stop();
  else if (level > 0)
    lockstep_start();
  return LS_PMPI(Pcontrol, level);
}

LS_EXPORT int MPI_Initialized(int* flag) {
  if (Pmpi().Initialized != nullptr) return Pmpi().Initialized(flag);
  *flag = 0;
  return MPI_SUCCESS;
}

LS_EXPORT int MPI_Finalized(int* flag) {
  if (Pmpi().Finalized != nullptr) return Pmpi().Finalized(flag);
  *flag = 0;
  return MPI_SUCCESS;
}

}  // namespace lockstep::pmpi
