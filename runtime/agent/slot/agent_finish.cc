// What a slot does after the application has ended.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "core/own_file.h"
#include "core/rank_name.h"
#include "core/reference.h"
#include "core/version.h"
#include "runtime/agent/rings/segment_entries.h"
#include "runtime/agent/rundir/claim.h"
#include "runtime/agent/rundir/places.h"
#include "runtime/agent/rundir/process_state.h"
#include "runtime/agent/rundir/say.h"
#include "runtime/agent/send/haste.h"
#include "runtime/agent/slot/convert.h"
#include "runtime/agent/slot/manifest.h"
#include "runtime/agent/slot/slot_run.h"
#include "trace/decode/tick_rate.h"

namespace lockstep::agent {
namespace {

// Open MPI 4.1 sends SIGCONT to all its children, a second later SIGTERM, and then sleeps a second before SIGKILL. The
// first child that ends interrupts that sleep (tested: 5 ms). So no agent ends before the others of the node had this
// long.
constexpr std::int64_t kTermGraceNs = 100 * kMillisecondNs;
// Of it, for this process's own end, and on rank 0 for saying what came.
constexpr std::int64_t kLeaveNs = 10 * kMillisecondNs, kSayNs = 25 * kMillisecondNs;

std::int64_t ToNs(const timeval& time) { return std::int64_t{time.tv_sec} * kSecondNs + time.tv_usec * 1000; }

}  // namespace

// Reports that a window never opened, so that nothing was recorded, and why.
void SlotRun::SayWhatWasMissed() {
  const bool says = launch_.rank <= 0 && speaks();
  if (window_->ranges_missing() && says)
    Say("nothing was recorded: no " + plan_.text + " was opened" +
        (plan_.range_source == kRangeSourceCuda
             ? "; cudaProfilerStart of a statically linked CUDA runtime cannot be seen"
             : ""));
  if (!window_->steps_missing()) return;
  drain_->CountLoss(Loss::kStepsNotLive, 1, options_.window.text);
  if (says)
    Say("windows by step were asked for (" + options_.window.text +
        ") but no step was seen: call lockstep_step(), or name a range with --step-range");
}

bool SlotRun::WriteEnd() {
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
  if (const std::string why = clock_link_->TakeTrouble(); !why.empty()) {
    meta += "clock_trouble\t" + why + "\n";
    // If MPI was measured in the application itself, nothing important is missing. The reason why the clock service did
    // not start was printed then.
    const bool measured = segment_->view().header().burst_rows.load(std::memory_order_acquire) != 0;
    if (!measured && clock_link_->trouble().empty() && speaks())
      Say(RankText() + " could not compare its clock: " + why);
  }
  meta += "clock_service\t" + clock_link_->Describe() + "\n";
  if (const std::int64_t waited_ns = segment_->view().header().mailbox.waited_ns.load(); waited_ns > 0)
    meta += "fact.init_wait_ns\t" + std::to_string(waited_ns) + "\n";
  if (InsideMpi()) meta += "inside_mpi\t1\n";
  if (window_->limit_reached())
    meta += "recording\tuntil " + std::to_string(options_.max_bytes) + " bytes were written\n";
  if (const std::string oom = good_end() ? "" : OomKillsSince(kills_before_, CountOomKills()); !oom.empty()) {
    meta += "fact.oom_kills\ttext=" + oom + "\n";
    if (!options_.quiet)
      Say(RankText() +
          (exit_.signal != 0 ? " was killed by signal " + std::to_string(exit_.signal)
                             : " exited with code " + std::to_string(exit_.code)) +
          "; " + oom);
  }
  const bool meta_written = spool_->Append({SpoolKind::kMeta}, meta, SpoolReserve::kAll);
  return spool_->Append({SpoolKind::kEnd}, &end, sizeof end, SpoolReserve::kAll) && meta_written;
}

// Open MPI and hydra take a process that called MPI_Init and not MPI_Finalize for one that failed, whatever its exit
// code is, and end the others, who may be waiting for it. They see the end of this process, not of that one.
bool SlotRun::EndedInsideMpi() const {
  if (launch_.source != launch::LaunchSource::kOpenMpi && launch_.source != launch::LaunchSource::kPmi) return false;
  return InsideMpi();
}

bool SlotRun::InsideMpi() const {
  const std::span<ProcessEntry> processes = UsedProcesses(segment_->view());
  return std::any_of(processes.begin(), processes.end(), [](const ProcessEntry& process) {
    return process.mpi_initialized.load(std::memory_order_acquire) != 0 &&
           process.mpi_finalized.load(std::memory_order_acquire) == 0;
  });
}

bool SlotRun::UsedMpiAlone() const {
  if (launch_.source != launch::LaunchSource::kNone || launch_.slots() != 1) return false;
  const std::span<ProcessEntry> processes = UsedProcesses(segment_->view());
  return std::count_if(processes.begin(), processes.end(), [](const ProcessEntry& process) {
           return process.mpi_initialized.load(std::memory_order_acquire) != 0;
         }) == 1;
}

void SlotRun::Finish() {
  injection_.RemoveLink();
  SegmentHeader& header = segment_->view().header();
  if (good_end()) {
    terminating_ = false;
    // First of all, so that rank 0's agent knows at no time of nobody here.
    if (receiver_) receiver_->ProgramEnded();
    // The slots' files come, or are missed: what some of them were in the middle of tells nothing any more.
    if (so_far_here_) so_far_here_->Close();
    if (auto setup = SenderSetup()) sender_.emplace(std::move(*setup));
    clock_link_->Finish(true);
  } else {
    in_haste_ = SenderSetup();  // While the clock link knows where to.
  }
  header.agent_gone.store(1, std::memory_order_release);  // For processes that outlive the application.
  SampleGpu();
  SampleCpu();
  if (late_stacks_) late_stacks_->Finish(*spool_);
  if (call_stacks_) {
    drain_->Run();  // The last ones.
    // Of a job that failed, launchers end the agents soon.
    call_stacks_->Finish(*spool_, good_end() ? 10000 * kMillisecondNs : 300 * kMillisecondNs);
  }
  window_->Finish();
  SayWhatWasMissed();
  if (drain_->records() == 0 && !lost_preload_.empty()) drain_->CountLoss(Loss::kPreloadLost, 1, lost_preload_);
  if (Abandoned(header.mailbox)) drain_->CountLoss(Loss::kAnchorAbandoned, 1, "");
  if (live_) live_->Finish();
  const std::string unwritten = drain_->RunLast();
  PointLatestAtFirstRecords();
  if (options_.estimate) step_bytes_.Add(window_->next_step(), drain_->records_bytes());
  clock_link_->Drain(*spool_, SpoolReserve::kAll);
  Snapshot(SpoolReserve::kAll);
  bool good = WriteEnd();
  // If everything is in the spool, the segment is not needed any more. Otherwise it stays readable.
  if (good && !good_end()) segment_->Remove();
  good = spool_->Close() && good;
  if (drain_->lost_records() > 0 && !options_.quiet)
    Say(RankText() + ": " + std::to_string(drain_->lost_records()) + " records lost, the spool could not be written (" +
        std::strerror(spool_->last_error()) + "): free space in the output directory, or set --spool-dir");
  if (!unwritten.empty() && !options_.quiet)
    Say(RankText() + ": its file will not say what it lost, for that could not be written either: " + unwritten);
  if (good) segment_->Remove();
  if (!good_end()) clock_link_->Finish(false, receiver_.has_value());
}

// The manifest was written at the start, from what the launcher reported. The ranks may have learned more since.
void SlotRun::CorrectManifest() {
  const SlotRanks& found = result_.ranks;
  // With several agents the launcher knows how many ranks there are, unless all its ranks belong to this one.
  const bool alone =
      launch_.slots() == 1 || (found.AllHere() && ReadClaim(ClaimPath(dir_.path, 0)).state == ClaimState::kAbsent);
  if (!found.by_themselves || !alone || found.world_size == launch_.slots()) return;
  launch::LaunchEnv known = launch_;
  known.world_size = found.world_size;
  if (WriteManifest(dir_, options_, known, RawNs() - begin_ns_) && drain_->records() > 0) PointLatest(dir_);
}

void SlotRun::Convert() {
  if (!good_end()) {
    spool_->Unlock();
    WriteClaim(dir_, false);
    if (options_.failed) options_.failed(result_);
    UseGrace();
    return;
  }
  auto converted = ConvertSpool(spool_path_, dir_, launch_.slot(), launch_.local_size);
  if (!converted.ok()) {
    // Of a directory that was removed rank 0's agent says so, once. What there is too little memory for is alike for
    // all ranks of a host.
    const bool says = converted.error().code == ErrorCode::kUnsupported ? speaks() : !options_.quiet;
    if (says && ::access(spool_path_.c_str(), F_OK) == 0)
      Say(RankText() + ": the rank file was not written (" + converted.error().what +
          "): the next `lockstep analyze` reads the spool");
    spool_->Unlock();
    WriteClaim(dir_, false);
    return;
  }
  result_.files = std::move(converted.value().files);
  result_.ranks = std::move(converted.value().ranks);
  CorrectManifest();
  // In a job of several agents, merge sees all of them, and may find that the launcher was right.
  if (!options_.quiet && (launch_.slots() == 1 || result_.ranks.AllHere()))
    for (const std::string& note : result_.ranks.notes) Say(note);
  result_.converted = true;
  // The rank files are on the disk now.
  RemoveOwn(spool_path_);
  if (const std::string usual = dir_.RankFile(launch_.slot(), ".spool"); usual != spool_path_) RemoveOwnLink(usual);
  spool_->Unlock();
  WriteClaim(dir_, true);
}

// The program failed. What is left of the time in which the launcher will not kill this process is for files on their
// way between hosts.
void SlotRun::UseGrace() {
  const std::int64_t until_ns = (term_ns_ != 0 ? term_ns_ : ended_ns_) + kTermGraceNs;
  const std::int64_t send_ms = (until_ns - kLeaveNs - RawNs()) / kMillisecondNs;
  if (in_haste_ && send_ms > 0)
    result_.sent = SendInHaste(std::move(*in_haste_), {RankName(launch_.slot()) + ".spool", spool_path_}, send_ms);
  const auto wait = [&](std::int64_t limit_ns) {
    constexpr timespec kPause{0, 2 * kMillisecondNs};
    while ((term_ns_ != 0 || (receiver_ && receiver_->hurried())) && RawNs() < limit_ns) ::nanosleep(&kPause, nullptr);
  };
  if (receiver_) {
    wait(until_ns - kSayNs);
    result_.arrived = receiver_->arrived();
    if (!result_.arrived.slots.empty() && options_.failed) options_.failed(result_);
  }
  wait(until_ns);
}

// A slot that sees rank 0's claim shares its directory.
std::optional<FileSender::Setup> SlotRun::SenderSetup() {
  if (launch_.rank <= 0 || launch_.slots() <= 1 || !options_.send || options_.wait_ms <= 0 || options_.estimate)
    return std::nullopt;
  if (ReadClaim(ClaimPath(dir_.absolute, 0)).state != ClaimState::kAbsent) return std::nullopt;
  if (::access(spool_path_.c_str(), F_OK) != 0) return std::nullopt;  // Removed while the job ran: nothing to send.
  ClockLink::Reference reference = clock_link_->reference();
  if (reference.addresses.empty()) return std::nullopt;
  return FileSender::Setup{
      .addresses = std::move(reference.addresses),
      .key = reference.key,
      .slot = launch_.slot(),
      .caller = {.place = PlaceText(HostName(), dir_.absolute, launch_.local_size),
                 .version = LOCKSTEP_VERSION,
                 .boot_id = trace::BootId()},
      .stall_ms = result_.inside_mpi ? std::min(options_.wait_ms, kInsideMpiWaitMs) : options_.wait_ms};
}

// The spool, if it could not be made into rank files here. The main file comes last, as a reader that finds it looks
// for no others.
void SlotRun::SendFiles() {
  std::vector<FileToSend> files;
  for (auto file = result_.files.rbegin(); file != result_.files.rend(); ++file)
    files.push_back({std::string(BaseName(file->path)), file->path});
  if (files.empty()) files.push_back({RankName(launch_.slot()) + ".spool", spool_path_});
  const SendOutcome outcome = sender_->Send(files);
  result_.sent = outcome.end == SendEnd::kSent;
  if (outcome.end == SendEnd::kFailed && speaks())
    Say("the files of " + RankText() + " stay in " + dir_.absolute + " on " + HostName() + ": " + outcome.why);
}

void SlotRun::BringTogether() {
  if (sender_) SendFiles();
  sender_.reset();
  if (receiver_) receiver_->Begin();
  if (options_.wait_for_others)
    options_.wait_for_others(
        result_,
        {.state = [this](std::int32_t slot) { return receiver_ ? receiver_->StateOf(slot) : SenderState::kUnknown; },
         .progress = [this] { return receiver_ ? receiver_->progress() : 0; },
         .connected = [this] { return clock_link_->others_connected(); }});
  if (receiver_) result_.arrived = receiver_->arrived();
  result_.places = clock_link_->places(result_.arrived.places);
}

}  // namespace lockstep::agent
