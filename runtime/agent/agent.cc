#include "runtime/agent/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "core/env.h"
#include "runtime/agent/child.h"
#include "runtime/agent/clock_link.h"
#include "runtime/agent/convert.h"
#include "runtime/agent/cpu_sampler.h"
#include "runtime/agent/drain.h"
#include "runtime/agent/estimate.h"
#include "runtime/agent/injection.h"
#include "runtime/agent/libraries.h"
#include "runtime/agent/manifest.h"
#include "runtime/agent/run_dir.h"
#include "runtime/agent/say.h"
#include "runtime/agent/segment.h"
#include "runtime/agent/spool_writer.h"
#include "runtime/agent/window_control.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000, kMillisecondNs = 1'000'000;
constexpr std::int64_t kShortestTickNs = kMillisecondNs, kDefaultTickNs = 50 * kMillisecondNs,
                       kLongestTickNs = 100 * kMillisecondNs;
constexpr std::int64_t kFirstTickNs = 5 * kMillisecondNs;
constexpr std::int64_t kCpuPeriodNs = 100 * kMillisecondNs;
constexpr std::uint32_t kAnchorTimeoutMs = 2000;
// Open MPI 4.1 sends SIGCONT to all its children, a second later SIGTERM, and then
// sleeps a second before SIGKILL - but the first child that dies interrupts that
// sleep (tested: 5 ms). So nobody dies before the others of the node had this long.
constexpr std::int64_t kTermGraceNs = 100 * kMillisecondNs;
constexpr std::uint32_t kManyProcesses = 4, kManyRings = 4;
constexpr double kTargetFill = 0.2;  // Of the fullest ring, at the next tick.

std::int64_t ToNs(const timeval& time) { return std::int64_t{time.tv_sec} * kSecondNs + time.tv_usec * 1000; }

int ShellCode(int error) { return error == ENOENT || error == ENOTDIR ? 127 : 126; }

// The application has its own copies: when it closes its end, readers and writers
// on the other side must see that, not us.
void LeaveStandardStreams() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::close(null);
}

// Was this signal delivered to the application as well? Open MPI 4.1 makes each
// child a group leader and signals the whole group (tested); a terminal does the same.
bool GroupHasIt(const signalfd_siginfo& info, LaunchSource source) {
  if (info.ssi_code == SI_KERNEL) return true;
  return source == LaunchSource::kOpenMpi && ::getpgrp() == ::getpid() &&
         static_cast<pid_t>(info.ssi_pid) == ::getppid();
}

// One slot's run. Members in the order they come into being.
class Agent {
 public:
  explicit Agent(const RunOptions& options) : options_(options), launch_(ReadLaunchEnv()) {
    if (options.every_slot) launch_.anchors_allowed = true;
  }
  Result<RunResult> Run();

 private:
  // "" or why this slot cannot be traced.
  std::string Prepare();
  std::string PrepareOrSay();
  std::string OpenSpool();
  std::string PrepareInjection();
  void FillHeader();
  // Nothing was recorded and nothing will be: as if this slot had not been here.
  void RemoveTraces();
  Status StartChild();
  RunResult RunBare(const Error& trouble);
  void Loop();
  void HandleSignals();
  // After the application's end: whether somebody wants this slot to go.
  bool TerminationAsked();
  void Tick();
  void Periodic(std::int64_t now_ns);
  void Snapshot(bool last_words = false);
  void Finish();
  void Convert();
  bool good_end() const { return exit_.signal == 0 && exit_.code == 0; }
  // One voice per node for what concerns the node, rank 0 for what concerns the run.
  bool speaks() const { return !options_.quiet && (launch_.rank <= 0 || launch_.local_rank == 0); }

  const RunOptions& options_;
  LaunchEnv launch_;
  RunDir dir_;
  Libraries libraries_;
  Injection injection_;
  EventClock clock_;
  std::string test_clock_, spool_path_;
  std::optional<SignalGate> gate_;
  std::optional<Segment> segment_;
  std::optional<SpoolWriter> spool_;
  std::optional<ClockLink> clock_link_;
  std::optional<Drain> drain_;
  WindowPlan plan_;
  std::optional<WindowControl> window_;
  StepBytes step_bytes_;
  std::int64_t begin_ns_ = 0;
  std::optional<CpuSampler> sampler_;
  std::optional<Child> child_;
  ChildExit exit_;
  std::int64_t tick_ns_ = kFirstTickNs, next_second_ns_ = 0, next_cpu_ns_ = 0;
  std::int64_t term_ns_ = 0;  // When the launcher began to end the job, 0 never.
  bool terminating_ = false, traced_ = false;
  int start_errno_ = 0;
  RunResult result_;
};

std::string Agent::Prepare() {
  auto libraries = FindLibraries();
  if (!libraries.ok()) return libraries.error().what + " (" + libraries.error().where + ")";
  libraries_ = std::move(libraries).value();
  auto dir = ClaimRunDir(launch_, options_.estimate ? "" : options_.output);
  if (!dir.ok()) return dir.error().what;
  dir_ = std::move(dir).value();
  if (!dir_.notice.empty() && speaks()) Say(dir_.notice);

  if (std::string trouble = OpenSpool(); !trouble.empty()) return trouble;
  SegmentRequest request;
  request.disk_path = options_.spool_dir.empty() ? dir_.RankFile(launch_.slot(), ".ring")
                                                 : spool_path_.substr(0, spool_path_.rfind('.')) + ".ring";
  request.run_hash = launch_.run_hash;
  request.slot = launch_.slot();
  request.local_slots = launch_.local_size;
  request.total_bytes = options_.ring_total_bytes;
  request.main_ring_bytes = options_.ring_bytes;
  request.other_ring_bytes = options_.ring_bytes / 4;
  auto segment = Segment::Create(request);
  if (!segment.ok()) return segment.error().what;
  segment_.emplace(std::move(segment).value());
  if (segment_->on_disk() && speaks())
    Say("rings are on disk (" + segment_->tmpfs_trouble() + "): expect stalls of milliseconds in traced calls");
  FillHeader();
  clock_link_.emplace(options_.clock, launch_, clock_, segment_->view(), dir_.absolute + "/ranks",
                      libraries_.clock_program, [this] { return TerminationAsked(); });
  if (!clock_link_->trouble().empty() && speaks()) Say("no clock service: " + clock_link_->trouble());
  drain_.emplace(segment_->view(), *spool_, clock_);
  plan_ = options_.window;
  if (options_.estimate) {
    plan_ = {};
    plan_.step_range = options_.window.step_range;
  }
  window_.emplace(plan_, segment_->view(), clock_, *spool_,
                  WindowControl::Setup{.run_dir = dir_.absolute,
                                       .included = plan_.Includes(launch_.slot()),
                                       .speaks = !options_.quiet && launch_.rank <= 0,
                                       .max_bytes = options_.estimate ? UINT64_MAX / 2 : options_.max_bytes,
                                       .say = [](const std::string& text) { Say(text); }});
  drain_->LimitBytes(window_->hard_limit_bytes());
  sampler_.emplace(clock_);
  return PrepareInjection();
}

std::string Agent::PrepareInjection() {
  auto injection = PlanInjection(libraries_, segment_->path());
  if (!injection.ok()) return injection.error().what + " (" + injection.error().where + ")";
  injection_ = std::move(injection).value();
  std::string detail;
  for (const RefusedSource& refused : injection_.refused) {
    if (speaks()) Say(refused.source + " is not recorded: " + refused.why + "; " + refused.remedy);
    detail += (detail.empty() ? "" : "; ") + refused.source + ": " + refused.why;
  }
  if (!detail.empty()) drain_->CountLoss(Loss::kSourceRefused, injection_.refused.size(), detail);
  return "";
}

// No memory or no thread to be had (ulimit -v, -u): the libraries below throw.
std::string Agent::PrepareOrSay() {
  try {
    return Prepare();
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string Agent::OpenSpool() {
  if (options_.estimate) {
    spool_.emplace(SpoolWriter::Counting());
    return "";
  }
  const std::string usual = dir_.RankFile(launch_.slot(), ".spool");
  spool_path_ = usual;
  if (!options_.spool_dir.empty()) {
    char name[96];
    std::snprintf(name, sizeof name, "/lockstep-%016llx-rank-%05d.%d.spool",
                  static_cast<unsigned long long>(launch_.run_hash), launch_.slot(), static_cast<int>(::getpid()));
    char real[PATH_MAX];
    if (::realpath(options_.spool_dir.c_str(), real) == nullptr)
      return options_.spool_dir + " (--spool-dir): " + std::strerror(errno);
    spool_path_ = real + std::string(name);
  }
  auto spool = SpoolWriter::Create(spool_path_);
  if (!spool.ok()) return spool.error().what + " (" + spool.error().where + ")";
  spool_.emplace(std::move(spool).value());
  // Readers look for the spool in the run directory, wherever it lies.
  if (spool_path_ != usual && ::symlink(spool_path_.c_str(), usual.c_str()) != 0)
    return usual + ": " + std::strerror(errno);
  return "";
}

void Agent::FillHeader() {
  if (const char* spec = std::getenv(env::kTestClock); spec != nullptr) {
    test_clock_ = spec;
    clock_.distortion = ParseClockDistortion(spec, launch_.slot());
  }
  if (clock_.distortion.active()) clock_.distortion.origin_raw_ns = RawNs();
  clock_.mode = !clock_.distortion.active() && TscIsInvariant() ? ClockMode::kTsc : ClockMode::kRaw;
  SegmentHeader& header = segment_->view().header();
  header.slot_rank = launch_.rank;
  header.clock_mode = clock_.mode;
  header.distortion = clock_.distortion;
  header.clock_domain = ClockDomainHash(clock_.distortion, launch_.slot());
  const bool mpi_clock = options_.clock == ClockService::kAuto;
  header.anchors_allowed = launch_.anchors_allowed && mpi_clock ? 1 : 0;
  header.anchor_timeout_ms = kAnchorTimeoutMs;
  header.mailbox.world_rank = header.mailbox.leader = header.mailbox.reference = -1;
}

void Agent::RemoveTraces() {
  injection_.RemoveLink();
  injection_ = {};
  if (clock_link_) clock_link_->Finish(false);
  if (segment_) segment_->Remove();
  if (spool_) {
    spool_.reset();
    ::unlink(spool_path_.c_str());
    ::unlink(dir_.RankFile(launch_.slot(), ".spool").c_str());
  }
  if (!dir_.absolute.empty()) AbandonRunDir(dir_);
}

Status Agent::StartChild() {
  if (traced_ && plan_.range_source == kRangeSourceCuda && !libraries_.cudart.empty())
    for (auto& [name, value] : injection_.variables)
      if (name == "LD_PRELOAD") value += ":" + libraries_.cudart;
  LS_TRY(Child child,
         Child::Start(options_.command, EnvironmentWith(injection_.variables), *gate_, options_.window.signal));
  start_errno_ = child.start_errno();
  if (start_errno_ == 0) child_.emplace(child);
  return Ok();
}

void Agent::Snapshot(bool last_words) {
  const ClockSnapshot row = TakeSnapshot(clock_);
  spool_->Append({SpoolKind::kSnapshots}, &row, sizeof row, last_words);
}

void Agent::Tick() {
  segment_->ExtendAhead(kRingHeaderBytes + std::uint64_t{segment_->view().header().other_ring_slots} * kSlotBytes);
  // Short-lived processes: their rings and places are wanted before the next second.
  if (drain_->processes() > kManyProcesses) drain_->ReapDead(child_->pid());
  const Drain::Pass pass = drain_->Run();
  drain_->WriteProcesses(false);
  clock_link_->Drain(*spool_);
  const bool limited = window_->limit_reached();
  window_->Tick(RawNs(), spool_->bytes());
  if (options_.estimate) step_bytes_.Add(segment_->view().header().window.next_step.load(), drain_->records_bytes());
  if (window_->limit_reached() && !limited)
    drain_->CountLoss(Loss::kBytesLimit, 1, "--max-bytes " + std::to_string(options_.max_bytes));
  // The fill of this tick at this length says how long the next may be.
  std::int64_t next = pass.bytes == 0 ? kLongestTickNs : kDefaultTickNs;
  if (pass.fill > kTargetFill)
    next = static_cast<std::int64_t>(static_cast<double>(tick_ns_) * kTargetFill / pass.fill);
  if (pass.freed > kManyRings) next = std::min(next, kFirstTickNs);
  // Longer by degrees: a burst often comes after a pause, most of all at the start.
  next = std::min(next, tick_ns_ * 2);
  tick_ns_ = std::clamp(next, kShortestTickNs, kLongestTickNs);
}

void Agent::Periodic(std::int64_t now_ns) {
  if (now_ns >= next_cpu_ns_) {
    next_cpu_ns_ = now_ns + kCpuPeriodNs;
    const std::vector<SpoolCpu> rows = sampler_->Sample(*drain_);
    if (!rows.empty()) spool_->Append({SpoolKind::kCpu}, rows.data(), rows.size() * sizeof rows[0]);
  }
  if (now_ns >= next_second_ns_) {
    next_second_ns_ = now_ns + kSecondNs;
    Snapshot();
    drain_->ReapDead(child_->pid());
    drain_->WriteProcesses(true);
  }
}

void Agent::HandleSignals() {
  signalfd_siginfo info;
  while (::read(gate_->fd(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;  // Polled below, whichever child it was.
    if (traced_ && signal == options_.window.signal) window_->Request();
    const bool group = GroupHasIt(info, launch_.source);
    if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGCONT) terminating_ = true;
    if (signal == SIGTERM && group && term_ns_ == 0) term_ns_ = RawNs();
    if (!group) child_->Signal(signal);
  }
}

bool Agent::TerminationAsked() {
  signalfd_siginfo info;
  while (::read(gate_->fd(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
    terminating_ = terminating_ || info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT || info.ssi_signo == SIGHUP;
  return terminating_;
}

// Until the application has ended. A termination signal does not end it: what the
// application makes of the signal decides, and a SIGKILL that follows finds
// everything but the last tick in the spool and that in the segment.
void Agent::Loop() {
  next_second_ns_ = RawNs() + kSecondNs;
  std::int64_t wake_ns = RawNs() + tick_ns_;
  for (;;) {
    const std::int64_t wait_ns = traced_ ? std::max<std::int64_t>(0, wake_ns - RawNs()) : -1;
    pollfd poll_fd{gate_->fd(), POLLIN, 0};
    timespec timeout{static_cast<time_t>(wait_ns / kSecondNs), static_cast<long>(wait_ns % kSecondNs)};
    const int ready = ::ppoll(&poll_fd, 1, wait_ns < 0 ? nullptr : &timeout, nullptr);
    if (ready > 0) {
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
  }
}

void Agent::Finish() {
  injection_.RemoveLink();
  SegmentHeader& header = segment_->view().header();
  if (good_end()) {
    terminating_ = false;
    clock_link_->Finish(true);
  }
  header.agent_gone.store(1, std::memory_order_release);  // For processes that outlive the application.
  if (const std::vector<SpoolCpu> rows = sampler_->Sample(*drain_); !rows.empty())
    spool_->Append({SpoolKind::kCpu}, rows.data(), rows.size() * sizeof rows[0]);
  window_->Finish();
  if (window_->ranges_missing() && launch_.rank <= 0 && speaks())
    Say("nothing was recorded: no " + plan_.text + " was opened" +
        (plan_.range_source == kRangeSourceCuda
             ? "; cudaProfilerStart of a statically linked CUDA runtime cannot be seen"
             : ""));
  if (window_->steps_missing()) {
    drain_->CountLoss(Loss::kStepsNotLive, 1, options_.window.text);
    if (speaks() && launch_.rank <= 0)
      Say("windows by step were asked for (" + options_.window.text +
          ") but no step was seen: call lockstep_step(), or name a range with --step-range");
  }
  if (header.mailbox.state.load(std::memory_order_acquire) == 2) drain_->CountLoss(Loss::kAnchorAbandoned, 1, "");
  drain_->RunLast();
  if (options_.estimate) step_bytes_.Add(header.window.next_step.load(), drain_->records_bytes());
  clock_link_->Drain(*spool_);
  Snapshot(true);
  struct rusage self {};
  ::getrusage(RUSAGE_SELF, &self);
  SpoolEnd end{};
  end.ticks = clock_.Ticks();
  end.exit_code = exit_.code;
  end.signal = exit_.signal;
  end.app_cpu_ns = ToNs(exit_.usage.ru_utime) + ToNs(exit_.usage.ru_stime);
  end.agent_cpu_ns = ToNs(self.ru_utime) + ToNs(self.ru_stime);
  std::string meta = "exit_code\t" + std::to_string(end.exit_code) + "\nexit_signal\t" +
                     (end.signal == 0 ? "" : std::to_string(end.signal)) + "\napp_cpu_ns\t" +
                     std::to_string(end.app_cpu_ns) + "\nagent_cpu_ns\t" + std::to_string(end.agent_cpu_ns) + "\n";
  if (window_->limit_reached())
    meta += "recording\tuntil " + std::to_string(options_.max_bytes) + " bytes were written\n";
  bool good = spool_->Append({SpoolKind::kMeta}, meta, true);
  good = spool_->Append({SpoolKind::kEnd}, &end, sizeof end, true) && good;
  // What is in the spool is no longer needed here; what is not stays readable.
  if (good && !good_end()) segment_->Remove();
  good = spool_->Close() && good;
  if (drain_->lost_records() > 0 && !options_.quiet)
    Say("rank " + std::to_string(launch_.slot()) + ": " + std::to_string(drain_->lost_records()) +
        " records lost, the spool could not be written (" + std::strerror(spool_->last_error()) +
        "): free space in the output directory, or set --spool-dir");
  if (good) segment_->Remove();
  if (!good_end()) clock_link_->Finish(false);
}

void Agent::Convert() {
  if (!good_end()) {
    WriteClaim(dir_, false);
    if (term_ns_ != 0) {
      const std::int64_t left_ns = term_ns_ + kTermGraceNs - RawNs();
      const timespec pause{0, static_cast<long>(left_ns)};
      if (left_ns > 0) ::nanosleep(&pause, nullptr);
    }
    return;
  }
  auto files = ConvertSpool(spool_path_, dir_, launch_.slot());
  if (!files.ok()) {
    if (!options_.quiet)
      Say("rank " + std::to_string(launch_.slot()) + ": the rank file could not be written (" + files.error().what +
          "): the next `lockstep analyze` reads the spool");
    WriteClaim(dir_, false);
    return;
  }
  result_.files = std::move(files).value();
  result_.converted = true;
  ::unlink(spool_path_.c_str());
  if (const std::string usual = dir_.RankFile(launch_.slot(), ".spool"); usual != spool_path_) ::unlink(usual.c_str());
  WriteClaim(dir_, true);
}

// Becomes the application: there is not even room for an agent beside it.
RunResult Agent::RunBare(const Error& trouble) {
  Say("rank " + std::to_string(launch_.slot()) + " runs without Lockstep: " + trouble.what + " (" + trouble.hint + ")");
  if (gate_) gate_->RestoreInChild();
  std::vector<char*> argv;
  for (const std::string& word : options_.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int error = errno;
  Say(options_.command[0] + ": " + std::strerror(error));
  result_.exit_code = ShellCode(error);
  return result_;
}

Result<RunResult> Agent::Run() {
  auto gate = SignalGate::Open();
  if (!gate.ok()) return RunBare(gate.error());
  gate_.emplace(std::move(gate).value());
  const long enclosing = EnclosingAgent(launch_.rank);
  const std::string trouble = enclosing != 0 ? "inside another" : PrepareOrSay();
  traced_ = trouble.empty();
  if (enclosing != 0) {
    if (speaks())
      Say("this is inside another `lockstep run` (process " + std::to_string(enclosing) +
          "): that one records, this one only starts the program");
  } else if (!traced_) {
    Say("rank " + std::to_string(launch_.slot()) + " runs without Lockstep: " + trouble);
    RemoveTraces();
  }
  if (traced_) {
    RankFacts facts{.clock = clock_, .test_clock = test_clock_};
    facts.clock_domain = segment_->view().header().clock_domain;
    facts.ring_bytes = segment_->view().bytes;
    facts.segment_path = segment_->path();
    facts.recording = options_.window.Includes(launch_.slot()) ? options_.window.text : "none";
    spool_->Append({SpoolKind::kMeta}, StartMeta(options_, launch_, facts));
    window_->Begin();
    begin_ns_ = RawNs();
    Snapshot();
  }
  const Status started = StartChild();
  if (!started.ok() || start_errno_ != 0) {
    if (traced_) RemoveTraces();
    if (!started.ok()) return RunBare(started.error());
    Say(options_.command[0] + ": " + std::strerror(start_errno_));
    result_.exit_code = ShellCode(start_errno_);
    return result_;
  }
  LeaveStandardStreams();
  // ns; wake-ups are shared with others'. Not before: the application would inherit it.
  ::prctl(PR_SET_TIMERSLACK, 500'000UL);
  if (traced_) {
    const std::string pid = "pid\t" + std::to_string(child_->pid()) + "\n";
    spool_->Append({SpoolKind::kMeta}, pid);
    if (launch_.slot() == 0 && launch_.rank <= 0 && !options_.estimate) {
      if (WriteManifest(dir_, options_, launch_)) PointLatest(dir_);
    }
  }
  Loop();
  result_.exit_code = exit_.code;
  result_.signal = exit_.signal;
  result_.traced = traced_;
  result_.launch = launch_;
  result_.run_dir = dir_.path;
  if (traced_) Finish();
  // From here on a signal means this process, and the spool is safe.
  if (good_end()) {
    gate_.reset();
    // These two would end this process with a code that is not the application's.
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);
  }
  if (traced_ && options_.estimate) {
    WriteEstimate(dir_, {.rank = launch_.slot(),
                         .records = drain_->records(),
                         .bytes = spool_->bytes(),
                         .wall_ns = RawNs() - begin_ns_,
                         .steps = step_bytes_.steps(),
                         .step_bytes_p50 = step_bytes_.Median()});
    result_.dir = dir_;
  } else if (traced_) {
    Convert();
  }
  return result_;
}

}  // namespace

Result<RunResult> RunAgent(const RunOptions& options) {
  if (options.command.empty())
    return Error{ErrorCode::kUsage, "no command to run", "lockstep run", "lockstep run -- ./app"};
  Agent agent(options);
  return agent.Run();
}

void FinishLike(const RunResult& result) {
  if (result.signal != 0) {
    // The application's core, if it left one, is the one that matters.
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    ::prctl(PR_SET_DUMPABLE, 0);
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    ::sigaction(result.signal, &action, nullptr);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, result.signal);
    ::pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
    ::raise(result.signal);
    ::_exit(128 + result.signal);
  }
  ::_exit(result.exit_code);
}

}  // namespace lockstep
