#include "runtime/agent/slot/agent.h"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "runtime/agent/inject/elf_file.h"
#include "runtime/agent/rundir/places.h"
#include "runtime/agent/rundir/say.h"
#include "runtime/agent/sample/preload_watch.h"
#include "runtime/agent/slot/exec.h"
#include "runtime/agent/slot/manifest.h"
#include "runtime/agent/slot/slot_run.h"

namespace lockstep::agent {
namespace {

constexpr std::int64_t kShortestTickNs = kMillisecondNs, kDefaultTickNs = 50 * kMillisecondNs,
                       kLongestTickNs = 100 * kMillisecondNs;
constexpr std::int64_t kCpuPeriodNs = 100 * kMillisecondNs;
// Part of the 200 ms between a SIGTERM and this process's end. CUPTI answers within some milliseconds unless the GPU
// hangs.
constexpr std::int64_t kFlushNs = 100 * kMillisecondNs;
constexpr std::int64_t kEndsWithinNs = 10 * kSecondNs;
constexpr std::int64_t kQuietNs = 2 * kSecondNs;  // Without a record: in what a process sleeps may be of interest.
constexpr std::uint32_t kManyProcesses = 4, kManyRings = 4;
constexpr double kTargetFill = 0.2;  // Of the fullest ring, at the next tick.
// With so little in the rings nothing speaks for looking more often than when there is nothing in them.
constexpr double kSmallFill = kTargetFill / 8;

}  // namespace

void SlotRun::Snapshot(SpoolReserve reserve) {
  const ClockSnapshot row = TakeSnapshot(clock_);
  spool_->Append({SpoolKind::kSnapshots}, &row, sizeof row, reserve);
}

void SlotRun::SampleCpu() { AppendSamples(SpoolKind::kCpu, sampler_->Sample(*drain_)); }

void SlotRun::FlushGpu() {
  if (!gpu_flush_->Ask()) return;
  const std::int64_t until_ns = RawNs() + kFlushNs;
  constexpr timespec kPause{0, 500'000};
  do {
    ::nanosleep(&kPause, nullptr);
    drain_->Run();  // More may follow than the ring holds.
  } while (!gpu_flush_->Answered() && RawNs() < until_ns);
  drain_->Run();
}

void SlotRun::SampleGpu() {
  gpu_sampler_->Follow(segment_->view());
  AppendSamples(SpoolKind::kGpuSamples, gpu_sampler_->Take());
  if (const std::string trouble = gpu_sampler_->TakeTrouble(); !trouble.empty())
    spool_->Append({SpoolKind::kMeta}, "fact.nvml\twhy=" + trouble + "\n");
}

void SlotRun::Tick() {
  segment_->ExtendAhead(kRingHeaderBytes + std::uint64_t{segment_->view().header().other_ring_slots} * kSlotBytes);
  segment_->PopulateAhead();
  // Many processes live only briefly: their rings and table entries are needed again before the next second.
  if (drain_->processes() > kManyProcesses) drain_->ReapDead(child_->pid());
  const Drain::Pass pass = drain_->Run();
  if (std::exchange(records_seen_, drain_->records()) != drain_->records()) recorded_ns_ = RawNs();
  drain_->WriteProcesses(false);
  clock_link_->Drain(*spool_);
  if (live_)
    live_->Tick([this] {
      return Live::State{.records = drain_->records(),
                         .dropped = drain_->dropped_records(),
                         .recording = AnyRecording(segment_->view()),
                         .clock = clock_link_->line()};
    });
  const bool limited = window_->limit_reached();
  if (late_stacks_ && !limited) late_stacks_->Tick(RawNs(), *spool_);
  if (call_stacks_ && !limited) call_stacks_->Tick(*spool_);
  window_->Tick(RawNs(), spool_->bytes());
  trial_end_.Tick(window_->next_step(), RawNs(), segment_->view(), *child_);
  if (options_.estimate) step_bytes_.Add(window_->next_step(), drain_->records_bytes());
  if (window_->limit_reached() && !limited)
    drain_->CountLoss(Loss::kBytesLimit, 1, "--max-bytes " + std::to_string(options_.max_bytes));
  // The fill after a tick of this length determines how long the next tick may be.
  const double longest_fill = pass.fill * static_cast<double>(kLongestTickNs) / static_cast<double>(tick_ns_);
  std::int64_t next = longest_fill <= kSmallFill ? kLongestTickNs : kDefaultTickNs;
  if (pass.fill > kTargetFill)
    next = static_cast<std::int64_t>(static_cast<double>(tick_ns_) * kTargetFill / pass.fill);
  if (pass.freed > kManyRings) next = std::min(next, kFirstTickNs);
  // The tick grows by degrees, because a burst often follows a pause, especially at the start.
  next = std::min(next, tick_ns_ * 2);
  tick_ns_ = std::clamp(next, kShortestTickNs, kLongestTickNs);
}

void SlotRun::Periodic(std::int64_t now_ns) {
  if (now_ns >= next_cpu_ns_) {
    next_cpu_ns_ = now_ns + kCpuPeriodNs;
    SampleCpu();
    SampleGpu();
    if (drain_->records() == 0) lost_preload_ = LostPreload(child_->pid(), libraries_.probe);
    if (hang_watch_ && !Ending(now_ns))
      hang_watch_->Look(segment_->view(), now_ns,
                        {.records = drain_->records(),
                         .polls = drain_->polls(),
                         .blocks = drain_->blocks(),
                         .spool_bytes = spool_->bytes(),
                         .blocked = stop_watch_.blocked()});
  }
  if (now_ns >= next_second_ns_) {
    next_second_ns_ = now_ns + kSecondNs;
    Snapshot();
    KeepPlaces();
    drain_->ReapDead(child_->pid());
    drain_->WriteProcesses(true);
    PointLatestAtFirstRecords();
    records_before_ = drain_->records();
    const bool quiet = now_ns - recorded_ns_ >= kQuietNs;
    if (quiet) drain_->WriteOpen();
    if (Ending(now_ns)) return;
    if (const std::string lines = stop_watch_.Look(segment_->view(), now_ns, quiet); !lines.empty())
      spool_->Append({SpoolKind::kMeta}, lines);
  }
}

// A launcher that ends the job lets stopped processes go on first, which is not what they were waiting for; and who is
// asked to end does so in other calls than those that it waited in.
bool SlotRun::Ending(std::int64_t now_ns) const {
  return term_ns_ != 0 || (end_asked_ns_ != 0 && now_ns < end_asked_ns_ + kEndsWithinNs);
}

void SlotRun::PointLatestAtFirstRecords() {
  if (first() && records_before_ == 0 && drain_->records() > 0) PointLatest(dir_);
}

void SlotRun::KeepPlaces() {
  if (launch_.slot() != 0 || launch_.slots() < 2 || options_.estimate) return;
  const std::vector<RunPlace> places = clock_link_->places(result_.arrived.places);
  if (places.size() == places_kept_) return;
  places_kept_ = places.size();
  // Of a directory that all hosts share nothing is to be told.
  if (const std::vector<RunPlace> apart = NotShared(dir_.absolute, places); !apart.empty())
    WritePlaces(dir_.absolute, apart);
}

std::int64_t SlotRun::ReadSignals() {
  const std::int64_t now_ns = RawNs();
  const auto add = [&](Receiver by, const Received& received) {
    const int signal = received.signal;
    if (signal == SIGCHLD) return;  // Children are polled, whichever of them it was.
    terminating_ = terminating_ || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
    receipts_.Add(by, received, now_ns);
  };
  while (const auto received = waiter_.Read(receipts_)) add(Receiver::kWaiter, *received);
  while (const auto received = gate_->Read()) add(Receiver::kAgent, *received);
  return now_ns;
}

void SlotRun::HandleSignals() {
  for (const Receipts::Decided& decided : receipts_.Take(ReadSignals())) {
    const int signal = decided.received.signal;
    if (traced_ && signal == options_.window.signal) window_->Request();
    // One that has left the group, or was not there yet, got nothing. What was sent to every process of the job one by
    // one cannot be told from what was sent to the group, and is then sent once more rather than never.
    const bool has_it = decided.shared && decided.seen_ns >= started_ns_ && ::getpgid(child_->pid()) == ::getpgrp();
    if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGCONT) terminating_ = true;
    if (signal == SIGTERM && decided.shared && term_ns_ == 0) term_ns_ = RawNs();
    if (Ends(signal)) end_asked_ns_ = RawNs();
    if (traced_ && Ends(signal)) {
      // If the application has received the signal already, there is nothing to wait for.
      if (has_it)
        gpu_flush_->Ask();
      else
        FlushGpu();
    }
    if (!has_it) child_->Signal(decided.received);
  }
  if (receipts_.TakeAsk()) waiter_.Ask();
}

bool SlotRun::TerminationAsked() {
  ReadSignals();
  return terminating_;
}

// Runs until the application has ended. A termination signal does not end this loop: the application decides what to do
// with the signal. If a SIGKILL follows, everything but the last tick is in the spool, and that tick is in the segment.
void SlotRun::Loop() {
  recorded_ns_ = RawNs();
  next_second_ns_ = recorded_ns_ + kSecondNs;
  std::int64_t wake_ns = RawNs() + tick_ns_;
  for (;;) {
    const std::int64_t due_ns = receipts_.due_ns(), until_ns = traced_ ? std::min(wake_ns, due_ns) : due_ns;
    const std::int64_t wait_ns = std::max<std::int64_t>(0, until_ns - RawNs());
    pollfd fds[] = {{gate_->fd(), POLLIN, 0}, {waiter_.fd(), POLLIN, 0}};
    timespec timeout{static_cast<time_t>(wait_ns / kSecondNs), static_cast<long>(wait_ns % kSecondNs)};
    const int ready = ::ppoll(fds, 2, until_ns == INT64_MAX ? nullptr : &timeout, nullptr);
    if (ready > 0 || RawNs() >= due_ns) {
      HandleSignals();
      exit_ = child_->Poll();
      if (exit_.ended) return;
    }
    if (!traced_) continue;
    const std::int64_t now_ns = RawNs();
    if (now_ns < wake_ns && !terminating_) continue;
    Tick();
    Periodic(now_ns);
    if (terminating_) {
      tick_ns_ = std::min(tick_ns_, 10 * kMillisecondNs);
      terminating_ = false;
    }
    const std::int64_t then_ns = RawNs();
    wake_ns = std::min(then_ns + tick_ns_, window_->due_ns(then_ns));
    if (late_stacks_) wake_ns = std::min(wake_ns, std::max(then_ns, late_stacks_->due_ns()));
  }
}

// Replaces this process by the application, when not even an agent that records nothing could be started.
RunResult SlotRun::RunBare(const Error& trouble) {
  Say(RankText() + " runs without Lockstep: " + trouble.what + " (" + trouble.hint + ")");
  if (gate_) gate_->RestoreInChild();
  std::vector<char*> argv;
  for (const std::string& word : options_.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int error = ExecAs(launch_.source, FindProgram(options_.command[0]), argv.data(), environ);
  Say(options_.command[0] + ": " + std::strerror(error));
  result_.exit_code = RefusalCode(launch_.source, options_.command[0], error);
  return result_;
}

void SlotRun::PrepareOrSay() {
  if (const long enclosing = EnclosingAgent(launch_.rank); enclosing != 0) {
    if (speaks())
      Say("another `lockstep run` (process " + std::to_string(enclosing) +
          ") already records this program; this one only starts it");
    return;
  }
  std::string trouble;
  try {
    trouble = Prepare();
  } catch (const std::exception& error) {
    trouble = error.what();  // No memory or no thread is available (ulimit -v, -u), and the libraries below throw.
  }
  traced_ = trouble.empty();
  if (traced_) return;
  Say(RankText() + " runs without Lockstep: " + trouble);
  RemoveTraces();
}

void SlotRun::WriteBegin() {
  RankFacts facts{.clock = clock_, .test_clock = test_clock_};
  facts.clock_domain = segment_->view().header().clock_domain;
  facts.ring_bytes = segment_->view().bytes;
  facts.segment_path = segment_->path();
  facts.segment_device = segment_->device();
  facts.nonce = segment_->view().header().spool_nonce;
  facts.locked = spool_->locked();
  facts.run_dir = dir_.absolute;
  facts.recording = options_.window.Includes(launch_.slot()) ? options_.window.text : "none";
  spool_->Append({SpoolKind::kMeta}, StartMeta(options_, launch_, facts));
  window_->Begin();
  begin_ns_ = RawNs();
  Snapshot();
}

Result<RunResult> SlotRun::Run() {
  if (const std::string small = TooSmallHere(launch_.local_size); !small.empty())
    return RunBare({ErrorCode::kUnsupported, small, "", "with more of it the program is recorded"});
  auto gate = SignalGate::Open();
  if (!gate.ok()) return RunBare(gate.error());
  gate_.emplace(std::move(gate).value());
  waiter_ = WaiterLink::Split(*gate_, kills_before_);
  PrepareOrSay();
  if (traced_) WriteBegin();
  // What has come by now, the program has not got.
  started_ns_ = ReadSignals() + 1;
  const Status started = StartChild();
  if (!started.ok() || start_errno_ != 0) {
    if (traced_) RemoveTraces();
    if (!started.ok()) return RunBare(started.error());
    Say(options_.command[0] + ": " + std::strerror(start_errno_));
    result_.exit_code = RefusalCode(launch_.source, options_.command[0], start_errno_);
    return result_;
  }
  waiter_.TellProgram(child_->pid());
  LeaveStandardStreams();
  // Nanoseconds by which wake-ups may be delayed to share them with other timers. Set after the fork, because the
  // application would inherit it.
  ::prctl(PR_SET_TIMERSLACK, 500'000UL);
  if (traced_) {
    spool_->Append({SpoolKind::kMeta}, "pid\t" + std::to_string(child_->pid()) + "\n");
    // Of a rank that --ranks leaves out nothing is to be expected.
    if (first() && WriteManifest(dir_, options_, launch_) && !plan_.Includes(launch_.slot())) PointLatest(dir_);
  }
  Loop();
  ended_ns_ = RawNs();
  if (trial_end_.asked()) exit_.code = exit_.signal = 0;
  result_.exit_code = exit_.code;
  result_.signal = exit_.signal;
  waiter_.TellEnd(exit_.code, exit_.signal);
  if (hang_watch_ && good_end()) {
    drain_->Run();
    hang_watch_->Ended(RawNs(), drain_->records());
  }
  hang_watch_.reset();
  hang_stacks_.reset();
  result_.traced = traced_;
  result_.launch = launch_;
  result_.run_dir = dir_.path;
  result_.inside_mpi = traced_ && good_end() && EndedInsideMpi();
  result_.mpi_without_launcher = traced_ && good_end() && UsedMpiAlone();
  if (traced_) Finish();
  if (clock_link_) {
    result_.places = clock_link_->places(result_.arrived.places);
    result_.place_told = clock_link_->told();
    // Of a program that failed these words stay, and who brought files after it may not have told before.
    if (traced_ && !good_end()) KeepPlaces();
  }
  // From here on a signal ends this process, and the spool is complete.
  if (good_end()) {
    gate_.reset();
    waiter_.Close();
    // These two signals would end this process with a code that is not the application's.
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);
  }
  if (!traced_) return result_;
  if (options_.estimate) {
    WriteEstimate(dir_, {.rank = launch_.slot(),
                         .records = drain_->records(),
                         .bytes = spool_->bytes(),
                         .wall_ns = RawNs() - begin_ns_,
                         .steps = step_bytes_.steps(),
                         .step_bytes_p50 = step_bytes_.Median()});
    result_.dir = dir_;
  } else {
    Convert();
    if (good_end()) BringTogether();
  }
  return result_;
}

Result<RunResult> RunAgent(const RunOptions& options) {
  if (options.command.empty())
    return Error{ErrorCode::kUsage, "no command to run", "lockstep run", "lockstep run -- ./app"};
  SlotRun run(options);
  return run.Run();
}

void FinishLike(const RunResult& result) { EndLike(result.exit_code, result.signal); }

}  // namespace lockstep::agent
