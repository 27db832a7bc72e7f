// What a slot does before the application starts.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/env.h"
#include "core/own_file.h"
#include "core/printed.h"
#include "core/rank_name.h"
#include "core/reference.h"
#include "core/spool_name.h"
#include "core/version.h"
#include "runtime/agent/rings/memory_limits.h"
#include "runtime/agent/rundir/process_state.h"
#include "runtime/agent/rundir/say.h"
#include "runtime/agent/slot/slot_run.h"

namespace lockstep::agent {
namespace {

// How long the probe waits for another rank's probe in MPI_Init, and for its partner in an exchange. Waiting threads
// sleep, so ranks that share a core do not delay each other (96 on two cores agree within this time).
constexpr std::uint32_t kAnchorTimeoutMs = 2000;
// Where all ranks are on this host and few share a core: they leave MPI_Init together, and have one clock in any case.
constexpr std::uint32_t kOneHostTimeoutMs = 500;
constexpr std::int64_t kFewPerCore = 4;

std::uint32_t AnchorTimeoutMs(const launch::LaunchEnv& launch) {
  const bool few = launch.slots() <= kFewPerCore * std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
  return launch.local_size >= launch.slots() && few ? kOneHostTimeoutMs : kAnchorTimeoutMs;
}

}  // namespace

std::string SlotRun::Prepare() {
  auto libraries = FindLibraries();
  if (!libraries.ok()) return libraries.error().what + " (" + libraries.error().where + ")";
  libraries_ = std::move(libraries).value();
  if ((options_.gpu_options & kGpuOff) != 0) libraries_.gpu.clear();
  auto dir = ClaimRunDir(launch_, options_.estimate ? "" : options_.output);
  if (!dir.ok()) return dir.error().what;
  dir_ = std::move(dir).value();
  // Said even under --quiet: the next command would read what is in the directory that was asked for.
  if (!dir_.notice.empty() && first_of_node()) Say(dir_.notice);

  if (std::string trouble = OpenSpool(); !trouble.empty()) return trouble;
  SegmentRequest request;
  request.disk_path = options_.spool_dir.empty() ? dir_.RankFile(launch_.slot(), ".ring")
                                                 : spool_path_.substr(0, spool_path_.rfind('.')) + ".ring";
  request.run_hash = launch_.run_hash;
  request.slot = launch_.slot();
  request.spool_inode = spool_->inode();
  request.local_slots = launch_.local_size;
  request.total_bytes = options_.ring_total_bytes;
  request.most_bytes = MostForRings(launch_.local_size);
  request.main_ring_bytes = options_.ring_bytes;
  request.other_ring_bytes = options_.ring_bytes / 4;
  auto segment = Segment::Create(request);
  if (!segment.ok()) return segment.error().what;
  segment_.emplace(std::move(segment).value());
  if (segment_->on_disk() && speaks())
    Say("the rings are on a disk (" + segment_->tmpfs_trouble() + "), so recorded calls may take milliseconds longer");
  ExamineMpi();
  FillHeader();
  std::function<void(clock::FilesPeer)> take_files;
  if (launch_.rank == 0 && launch_.slots() > 1 && options_.send && options_.wait_ms > 0 && !options_.estimate) {
    FileReceiver::Setup setup{
        .run_dir = dir_.absolute, .slots = launch_.slots(), .version = LOCKSTEP_VERSION, .stall_ms = options_.wait_ms};
    setup.so_far = true;
    setup.hang_is_said = [run_dir = dir_.absolute] { return HangIsSaid(run_dir); };
    so_far_here_.emplace(setup);
    setup.so_far = false;
    setup.hang_is_said = nullptr;
    setup.before = &*so_far_here_;
    receiver_.emplace(setup);
    take_files = [this](clock::FilesPeer peer) {
      FileReceiver& taker = peer.why == clock::FilesWhy::kQuiet ? *so_far_here_ : *receiver_;
      taker.Take(std::move(peer));
    };
  }
  clock_link_.emplace(
      clock_service_, launch_, clock_, segment_->view(), dir_.absolute, libraries_.clock_program,
      [this] { return TerminationAsked(); }, std::move(take_files));
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
  gpu_sampler_.emplace(clock_);
  gpu_flush_.emplace(segment_->view());
  StartLive();
  StartStacks();
  ObserveRecords();
  WatchForHangs();
  return PrepareInjection();
}

void SlotRun::StartLive() {
  if (options_.live_period_ns <= 0) return;
  const std::int32_t rank = launch_.slot();
  live_.emplace(Live::Setup{.directory = dir_.absolute + "/ranks",
                            .rank = rank,
                            .ranks = launch_.slots(),
                            .domain = segment_->view().header().clock_domain,
                            .period_ns = options_.live_period_ns,
                            .prints = options_.live_lines && rank == 0,
                            .metrics = rank == 0 ? options_.metrics : "",
                            .clock = clock_,
                            .say = [](const std::string& text) { Say(text); }});
}

void SlotRun::StartStacks() {
  if (options_.estimate) return;
  if (options_.stacks.calls || options_.blocked)
    call_stacks_.emplace(CallStacks::Setup{
        .segment = segment_->view(),
        .tree = stack_tree_,
        .reader = {.program = libraries_.stacks_program, .restore_signals = [this] { gate_->RestoreInChild(); }},
        .unwritten = [this](std::uint64_t rows) { drain_->CountUnwritten(rows); },
        .unknown =
            [this](std::uint64_t stacks) {
              drain_->CountLoss(Loss::kSourceRefused, stacks,
                                "what calls came from: neither names nor Python's frames");
            }});
  if (options_.stacks.kind < StackPlan::kLate) return;
  // A single rank waits for nobody.
  if (options_.stacks.kind == StackPlan::kLate && launch_.slots() < 2) return;
  late_stacks_.emplace(LateStacks::Setup{
      .plan = options_.stacks,
      .directory = dir_.absolute + "/ranks",
      .rank = launch_.slot(),
      .ranks = launch_.slots(),
      .segment = segment_->view(),
      .clock = clock_,
      .tree = stack_tree_,
      .reader = {.program = libraries_.stacks_program, .restore_signals = [this] { gate_->RestoreInChild(); }},
      .say = [](const std::string& text) { Say(text); },
      .unwritten = [this](std::uint64_t rows) { drain_->CountUnwritten(rows); },
      .unnamed =
          [this](std::uint64_t samples) {
            drain_->CountLoss(Loss::kSourceRefused, samples,
                              "samples of the stack: the job ended before their functions' names were found");
          }});
}

void SlotRun::ObserveRecords() {
  if (!live_ && !late_stacks_ && !call_stacks_) return;
  drain_->Observe([this](std::uint32_t ring, const RingEntry& entry, std::span<const iovec> records) {
    if (live_) live_->Take(ring, entry, records);
    if (late_stacks_) late_stacks_->Take(entry, records);
    if (call_stacks_) call_stacks_->Take(entry, records);
  });
}

void SlotRun::WatchForHangs() {
  if (options_.hang_after_ns <= 0 || options_.estimate) return;
  const auto restore_signals = [this] { gate_->RestoreInChild(); };
  if (options_.stacks.kind != StackPlan::kOff)
    hang_stacks_.emplace(
        HangStacks::Setup{.run_dir = dir_.absolute,
                          .slot = launch_.slot(),
                          .reader = {.program = libraries_.stacks_program, .restore_signals = restore_signals},
                          .keep = [this](const std::string& lines) { spool_->Append({SpoolKind::kMeta}, lines); }});
  if (launch_.rank > 0)
    so_far_.emplace(SoFarSender::Setup{.call = [this] { return SenderSetup(); },
                                       .spool = {RankName(launch_.slot()) + ".spool", spool_path_},
                                       .write_open = [this] { drain_->WriteOpen(); }});
  hang_watch_.emplace(HangWatch::Setup{.run_dir = dir_.absolute,
                                       .slot = launch_.slot(),
                                       .slots = launch_.slots(),
                                       .host = HostName(),
                                       .after_ns = options_.hang_after_ns,
                                       .action = options_.on_hang,
                                       .say = [](const std::string& text) { Say(text); },
                                       .signal = [this](int signal) { child_->Signal(signal); },
                                       .restore_signals = restore_signals,
                                       .stacks = hang_stacks_ ? &*hang_stacks_ : nullptr,
                                       .so_far = so_far_ ? &*so_far_ : nullptr,
                                       .others_quiet = [this] { return so_far_here_ && so_far_here_->holds_any(); }});
}

std::string SlotRun::PrepareInjection() {
  // A CUDA program reserves address space for all memory of host and devices, so that none starts where that is limited
  // to less: there the GPU's library, which maps 6 MB, would only take the program's.
  constexpr std::uint64_t kLeastSpaceOfCuda = std::uint64_t{4} << 30;
  Libraries libraries = libraries_;
  if (AddressSpaceLimit() < kLeastSpaceOfCuda) libraries.gpu.clear();
  auto injection = PlanInjection(libraries, segment_->path(), options_.command[0]);
  if (!injection.ok()) return injection.error().what + " (" + injection.error().where + ")";
  injection_ = std::move(injection).value();
  std::string detail;
  std::uint64_t others = 0;
  for (const RefusedSource& refused : injection_.refused) {
    if (speaks()) Say(refused.source + " is not recorded: " + refused.why + "; " + refused.remedy);
    if (refused.source == kMpiSource) {
      // The verdict says so first: figures without MPI look correct.
      spool_->Append({SpoolKind::kMeta}, "fact.mpi_unrecorded\tlibrary=" + Printed(options_.command[0]) +
                                             "\twhy=" + Printed(refused.why) + "\n");
      drain_->CountLoss(Loss::kBackendNotCaptured, 1, refused.source + ": " + refused.why);
      continue;
    }
    ++others;
    detail += (detail.empty() ? "" : "; ") + refused.source + ": " + refused.why;
  }
  if (speaks())
    for (const std::string& notice : injection_.notices) Say(notice);
  if (!detail.empty()) drain_->CountLoss(Loss::kSourceRefused, others, detail);
  return "";
}

std::string SlotRun::OpenSpool() {
  if (options_.estimate) {
    spool_.emplace(SpoolWriter::Counting());
    return "";
  }
  const std::string usual = dir_.RankFile(launch_.slot(), ".spool");
  spool_path_ = usual;
  if (!options_.spool_dir.empty()) {
    char real[PATH_MAX];
    if (::realpath(options_.spool_dir.c_str(), real) == nullptr)
      return options_.spool_dir + " (--spool-dir): " + std::strerror(errno);
    spool_path_ = real + ("/" + FormatSpoolName({launch_.run_hash, launch_.slot(), static_cast<int>(::getpid())}));
  }
  auto spool = SpoolWriter::Create(spool_path_);
  if (!spool.ok()) return spool.error().what + " (" + spool.error().where + ")";
  spool_.emplace(std::move(spool).value());
  // Readers look for the spool in the run directory, wherever the file is.
  if (spool_path_ != usual && ::symlink(spool_path_.c_str(), usual.c_str()) != 0) {
    const int error = errno;
    RemoveOwn(spool_path_);
    return usual + ": " + std::strerror(error);
  }
  return "";
}

void SlotRun::FillHeader() {
  if (const char* spec = std::getenv(env::kTestClock); spec != nullptr) {
    test_clock_ = spec;
    clock_.distortion = ParseClockDistortion(spec, launch_.slot());
  }
  if (clock_.distortion.active()) clock_.distortion.origin_raw_ns = RawNs();
  clock_.mode = !clock_.distortion.active() && TscIsInvariant() ? ClockMode::kTsc : ClockMode::kRaw;
  SegmentHeader& header = segment_->view().header();
  header.call_stacks = options_.stacks.calls && !options_.estimate;
  header.blocked_off = options_.blocked ? 0 : 1;
  header.slot_rank = launch_.rank;
  header.clock_mode = clock_.mode;
  header.distortion = clock_.distortion;
  header.clock_domain = ClockDomainHash(clock_.distortion, launch_.slot());
  const bool mpi_clock = clock_service_ == clock::ClockService::kAuto;
  // Launchers number a host's ranks in their order: as many as all before it have lower numbers there.
  const std::uint32_t elsewhere = launch_.local_rank != launch_.rank ? kElsewhere : 0;
  const std::uint32_t hosts = launch_.local_size != launch_.world_size ? kOtherHosts | elsewhere : 0;
  header.anchors_wanted = !mpi_clock ? 0 : kAnchorsWanted | hosts | (launch_.names_in_launcher ? kReferenceByName : 0);
  header.gpu_options = options_.gpu_options;
  header.clock_agent = clock_service_ == clock::ClockService::kAgent ? 1 : 0;
  header.anchor_timeout_ms = AnchorTimeoutMs(launch_);
  header.mailbox.world_rank = header.mailbox.leader = header.mailbox.reference = -1;
}

void SlotRun::ExamineMpi() {
  mpi_ = MpiOfProgram(options_.command[0]);
  clock_service_ = options_.clock;
  const std::string& program = options_.command[0];
  const bool says = !options_.quiet && launch_.rank <= 0;  // The line is the same on every node, so one rank prints it.
  // lockstep-clock would take the MPI rank that the launcher reserves for the program, whose MPI_Init would then fail
  // (Open MPI 4.1.4).
  if (clock_service_ == clock::ClockService::kAgent && mpi_.kind != LinkedMpi::kNone) {
    clock_service_ = clock::ClockService::kAuto;
    if (says)
      Say("--clock agent is for programs without MPI, and " + program + " uses " + mpi_.library +
          ": clocks are measured as with --clock auto");
  }
}

void SlotRun::RemoveTraces() {
  injection_.RemoveLink();
  injection_ = {};
  if (clock_link_) clock_link_->Finish(false);
  if (live_) live_->Finish();
  if (segment_) segment_->Remove();
  if (spool_) {
    RemoveOwn(spool_path_);
    RemoveOwnLink(dir_.RankFile(launch_.slot(), ".spool"));
    spool_.reset();
  }
  if (!dir_.absolute.empty()) AbandonRunDir(dir_);
}

Status SlotRun::StartChild() {
  if (traced_ && plan_.range_source == kRangeSourceCuda && !libraries_.cudart.empty())
    for (auto& [name, value] : injection_.variables)
      if (name == "LD_PRELOAD") value += ":" + libraries_.cudart;
  for (const auto& variable : trial_.variables) injection_.variables.push_back(variable);
  LS_TRY(Child child, Child::Start(options_.command, EnvironmentWith(injection_.variables), *gate_, launch_.source,
                                   options_.window.signal));
  start_errno_ = child.start_errno();
  if (start_errno_ == 0) child_.emplace(child);
  return Ok();
}

}  // namespace lockstep::agent
