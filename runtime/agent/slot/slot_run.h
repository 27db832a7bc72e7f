#pragma once
// One slot's run, in the files of its parts: agent_prepare.cc up to the
// application's start, agent.cc while it runs, agent_finish.cc after its end.
// Only these files include this header; all others include agent.h.

#include <cstdint>
#include <optional>
#include <string>

#include "comms/launch/launch_env.h"
#include "core/event_clock.h"
#include "runtime/agent/calls/call_stacks.h"
#include "runtime/agent/hang/hang_stacks.h"
#include "runtime/agent/hang/hang_watch.h"
#include "runtime/agent/inject/elf_file.h"
#include "runtime/agent/inject/injection.h"
#include "runtime/agent/inject/libraries.h"
#include "runtime/agent/late/late_stacks.h"
#include "runtime/agent/late/stack_tree.h"
#include "runtime/agent/live/live.h"
#include "runtime/agent/rings/drain.h"
#include "runtime/agent/rings/memory_limits.h"
#include "runtime/agent/rings/segment.h"
#include "runtime/agent/rundir/run_dir.h"
#include "runtime/agent/sample/cpu_sampler.h"
#include "runtime/agent/sample/gpu_sampler.h"
#include "runtime/agent/sample/stop_watch.h"
#include "runtime/agent/send/file_receiver.h"
#include "runtime/agent/send/file_sender.h"
#include "runtime/agent/slot/agent.h"
#include "runtime/agent/slot/child.h"
#include "runtime/agent/slot/clock_link.h"
#include "runtime/agent/slot/estimate.h"
#include "runtime/agent/slot/trial.h"
#include "runtime/agent/slot/waiter.h"
#include "runtime/agent/spool/spool_writer.h"
#include "runtime/agent/window/gpu_flush.h"
#include "runtime/agent/window/window_control.h"

namespace lockstep::agent {

inline constexpr std::int64_t kMillisecondNs = 1'000'000;
inline constexpr std::int64_t kFirstTickNs = 5 * kMillisecondNs;

// Members are in the order of their construction.
class SlotRun {
 public:
  explicit SlotRun(const RunOptions& options) : options_(options), launch_(launch::ReadLaunchEnv()) {}
  Result<RunResult> Run();

 private:
  // Returns "" or the reason why this slot cannot be traced.
  std::string Prepare();
  // Sets traced_. If it is false, the reason was printed.
  void PrepareOrSay();
  // Writes the spool's first blocks. Recording begins if the window says so.
  void WriteBegin();
  std::string OpenSpool();
  std::string PrepareInjection();
  void FillHeader();
  // Examines which MPI the program's file is linked with, and what follows for the clock service.
  void ExamineMpi();
  // Removes this slot's files when nothing was recorded and nothing will be.
  void RemoveTraces();
  Status StartChild();
  RunResult RunBare(const Error& trouble);
  void Loop();
  // Returns a time before which nothing came that was not read.
  std::int64_t ReadSignals();
  void HandleSignals();
  // After the application's end: whether this process was asked to terminate.
  bool TerminationAsked();
  void Tick();
  void Periodic(std::int64_t now_ns);
  // A run that recorded nothing is not what commands without a RUN are meant for.
  void PointLatestAtFirstRecords();
  bool Ending(std::int64_t now_ns) const;
  // On rank 0: leaves word where the files of other hosts are (places.h), as this process may be killed at any time.
  void KeepPlaces();
  void Snapshot(SpoolReserve reserve = SpoolReserve::kNone);
  // Moves what CUPTI holds into the rings and the spool; waits kFlushNs at the most.
  void FlushGpu();
  void SampleCpu();
  void SampleGpu();
  template <typename Row>
  void AppendSamples(SpoolKind kind, const std::vector<Row>& rows) {
    if (!rows.empty() && !spool_->Append({kind}, rows)) drain_->CountUnwritten(rows.size());
  }
  void StartLive();
  void StartStacks();
  // What the live figures and the stacks are made of.
  void ObserveRecords();
  void WatchForHangs();
  void Finish();
  // Where this slot's files have to be sent; nothing if they have not, or if that is not known.
  std::optional<FileSender::Setup> SenderSetup();
  void UseGrace();
  // Sends them; on rank 0 waits for those of others. What is still missing is said by the caller of RunAgent.
  void BringTogether();
  void SendFiles();
  void SayWhatWasMissed();
  // Writes the spool's last two blocks. Returns false if there is no space for them.
  bool WriteEnd();
  void Convert();
  void CorrectManifest();
  std::string RankText() const { return "rank " + std::to_string(launch_.slot()); }
  bool EndedInsideMpi() const;
  bool InsideMpi() const;  // A process called MPI_Init, and not MPI_Finalize.
  bool UsedMpiAlone() const;
  // Writes the manifest, and leads `latest` to it.
  bool first() const { return launch_.slot() == 0 && launch_.rank <= 0 && !options_.estimate; }
  bool good_end() const { return exit_.signal == 0 && exit_.code == 0; }
  // One agent per node prints what concerns the node; the agent of rank 0 prints what concerns the run.
  bool first_of_node() const { return launch_.rank <= 0 || launch_.local_rank == 0; }
  bool speaks() const { return !options_.quiet && first_of_node(); }

  const RunOptions& options_;
  launch::LaunchEnv launch_;
  RunDir dir_;
  Libraries libraries_;
  Injection injection_;
  EventClock clock_;
  std::string test_clock_, spool_path_;
  ProgramMpi mpi_;
  clock::ClockService clock_service_ = clock::ClockService::kAuto;
  const OomKills kills_before_ = CountOomKills();
  std::optional<SignalGate> gate_;
  WaiterLink waiter_;
  Receipts receipts_;
  std::optional<Segment> segment_;
  std::optional<SpoolWriter> spool_;
  std::optional<FileReceiver> so_far_here_, receiver_;  // The clock link's server gives them connections.
  std::optional<ClockLink> clock_link_;
  std::optional<FileSender> sender_;
  std::optional<FileSender::Setup> in_haste_;  // After a failure, in its place.
  std::optional<Drain> drain_;
  WindowPlan plan_;
  std::optional<WindowControl> window_;
  StepBytes step_bytes_;
  std::optional<Live> live_;
  StackTree stack_tree_;  // What is in the spool.
  std::optional<LateStacks> late_stacks_;
  std::optional<CallStacks> call_stacks_;
  std::int64_t begin_ns_ = 0;
  std::optional<CpuSampler> sampler_;
  StopWatch stop_watch_;
  std::optional<HangStacks> hang_stacks_;
  std::optional<SoFarSender> so_far_;
  std::optional<HangWatch> hang_watch_;
  std::optional<GpuSampler> gpu_sampler_;
  std::optional<GpuFlush> gpu_flush_;
  const Trial trial_ = ReadTrial();
  TrialEnd trial_end_{trial_.steps};
  std::optional<Child> child_;
  ChildExit exit_;
  std::int64_t tick_ns_ = kFirstTickNs, next_second_ns_ = 0, next_cpu_ns_ = 0;
  std::uint64_t records_before_ = 0;  // A second ago.
  std::uint64_t records_seen_ = 0;    // At the last tick.
  std::int64_t recorded_ns_ = 0;      // When there was another one.
  std::int64_t term_ns_ = 0;          // When the launcher began to end the job; 0 if it did not.
  std::int64_t started_ns_ = 0;       // Before the program's start.
  std::int64_t ended_ns_ = 0;         // When the program's end was seen.
  std::int64_t end_asked_ns_ = 0;     // When a signal came last that ends programs; 0: none.
  std::size_t places_kept_ = 0;       // How many hosts had told where their files are.
  bool terminating_ = false, traced_ = false;
  int start_errno_ = 0;
  std::string lost_preload_;  // While nothing has come from the program: why.
  RunResult result_;
};

}  // namespace lockstep::agent
