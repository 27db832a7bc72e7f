#pragma once
// The agent: parent of one slot's application. It makes the shared segment, starts
// the application with the probe preloaded, moves records from the rings to the
// spool, and afterwards makes the rank file. The application's output, signals and
// exit code stay what they are without it.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comms/clock/clock_coordinator.h"
#include "comms/launch/launch_env.h"
#include "core/result.h"
#include "runtime/agent/hang/hang_watch.h"
#include "runtime/agent/late/stack_plan.h"
#include "runtime/agent/rundir/run_dir.h"
#include "runtime/agent/send/file_receiver.h"
#include "runtime/agent/slot/convert.h"
#include "runtime/agent/window/window_options.h"

namespace lockstep::agent {

struct RunResult;

// Rank 0: what is known of slots whose files do not appear in its directory by themselves.
struct OtherHosts {
  std::function<SenderState(std::int32_t slot)> state;
  std::function<std::uint64_t()> progress;  // Grows while files arrive.
  std::function<bool()> connected;          // Agents of other hosts are: their programs still run.
};

struct RunOptions {
  std::vector<std::string> command;
  std::string output;                                 // The run directory itself; "" for lockstep.out/DATE-TIME-xxxx.
  std::string spool_dir;                              // "" for the directory of the rank file.
  std::uint64_t max_bytes = std::uint64_t{2} << 30;   // Limit of the spool, per slot; recording stops there.
  std::uint64_t ring_bytes = std::uint64_t{8} << 20;  // A process's first ring; its other rings get a quarter.
  std::uint64_t ring_total_bytes = std::uint64_t{64} << 20;  // Upper limit of the whole segment.
  clock::ClockService clock = clock::ClockService::kAuto;
  WindowPlan window;
  std::uint32_t gpu_options = 0;    // SegmentHeader::gpu_options. kGpuOff: the GPU library is not even preloaded.
  bool estimate = false;            // Record everything, write nothing, and report what a run would write.
  std::int64_t live_period_ns = 0;  // Of the live figures; 0: none.
  bool live_lines = false;          // Rank 0 prints them.
  std::string metrics;              // Rank 0 writes them to this file, for Prometheus; "" for none.
  std::int64_t hang_after_ns = 0;   // After so long without a record a hang is looked for; 0: never.
  OnHang on_hang;
  bool send = true;               // Files go to rank 0's agent where its directory is not shared.
  std::int64_t wait_ms = 30'000;  // For rank 0, and for files on the way, as long as nothing moves.
  StackPlan stacks;
  bool blocked = true;  // Record time in which threads are blocked in libc.
  bool quiet = false;
  std::map<std::string, std::string> recorded;  // Options as given, for the manifest.
  // Called once the application has failed and its spool is complete. A launcher that ends the job may kill this
  // process from then on, so that what is to be said is said here. Called again if files of other hosts arrive before
  // the end (RunResult::arrived). May be empty.
  std::function<void(const RunResult&)> failed;
  // Called after a good end, when this slot's own files are complete: waits for those of others, where that is rank 0's
  // to do. May be empty.
  std::function<void(const RunResult&, const OtherHosts&)> wait_for_others;
};

// With RunResult::inside_mpi, in place of a longer wait: others wait for this rank for ever, or have ended as it did.
inline constexpr std::int64_t kInsideMpiWaitMs = 1000;

struct RunResult {
  int exit_code = 0;    // The application's, or the shell's 126/127 if it could not be started.
  int signal = 0;       // The signal that ended it; exit_code is not valid then.
  bool traced = false;  // False: it ran without Lockstep (said on stderr).
  // It ended well, but was not seen to leave MPI, and its launcher ends a job for that once this process has ended.
  bool inside_mpi = false;
  bool mpi_without_launcher = false;  // It used MPI, and nothing had started it as a rank.
  bool converted = false;             // The rank file is complete.
  launch::LaunchEnv launch;
  std::string run_dir;
  std::vector<RunFile> files;    // What this slot left in run_dir.
  SlotRanks ranks;               // Which ranks are in them; with `converted`.
  std::vector<RunPlace> places;  // Rank 0: where other hosts' files are, as far as their agents told.
  bool place_told = false;       // Rank 0's agent was told where this slot's are.
  bool sent = false;             // They are in rank 0's directory.
  Arrived arrived;               // Rank 0: what other hosts' agents have sent, also of a job that failed.
  RunDir dir;                    // With RunOptions::estimate: the directory of the slots' estimates.
};

// Runs the command to its end. Returns in a child of the process that called it, which waits and ends as the child does
// (waiter.h). Returns an error only if nothing was started (usage). Thread: once per process, before other threads
// exist; changes this process's signal mask, standard input and output.
Result<RunResult> RunAgent(const RunOptions& options);

// Ends this process as the application ended: same exit code, or same signal
// without a core file of our own.
[[noreturn]] void FinishLike(const RunResult& result);

}  // namespace lockstep::agent
