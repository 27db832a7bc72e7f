#include "comms/clock/clock_coordinator.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "comms/clock/clock_meeting.h"
#include "comms/clock/clock_process.h"
#include "comms/clock/quiet_thread.h"
#include "core/reference.h"

namespace lockstep::clock {
namespace {

using std::chrono::milliseconds;

// Bursts are numbered per rank file: those of the probe from 0.
constexpr std::uint32_t kFirstTcpBurst = 1u << 20, kFirstMpiBurst = 1u << 24;
// How long an agent waits for lower ranks of its domain to announce themselves before it becomes the leader.
constexpr std::int64_t kElectionNs = 1'000'000'000;
// Announcements read per election: all of a small job, else only those of ranks that may be on the same node.
constexpr std::int32_t kScanAll = 256;
constexpr std::int64_t kPlanLimitNs = 30'000'000'000, kMpiFirstRowNs = 5'000'000'000;
// The length of the addresses shown in a message.
constexpr std::size_t kShownBytes = 120;
// Ranks start seconds apart, so this is only reported at the end, and only if it still holds.
constexpr std::int64_t kReferenceLateNs = 2'000'000'000;
constexpr std::int64_t kRecheckNs = 5'000'000'000;

}  // namespace

struct ClockCoordinator::Impl {
  ClockCoordinatorConfig config;
  std::unique_ptr<ClockServer> server;
  std::string address;
  std::thread thread;

  std::mutex sink_mutex;

  mutable std::mutex mutex;  // Protects everything below.
  std::condition_variable changed;
  bool stop = false;
  std::unique_ptr<ClockClient> client;
  std::unique_ptr<ClockProcess> process;
  bool called = false;  // A client was started.
  std::int32_t called_rank = -1;
  std::string called_at;
  std::string no_client;                   // The reason why there is none although this slot is its domain's leader.
  std::uint64_t bursts = 0, unproven = 0;  // Of a client that was destroyed.
  bool told = false;
  std::string state = "no exchange was needed or possible yet";

  // Used by the coordinator's thread only.
  std::int64_t begun_ns = 0, reference_seen_ns = 0, plan_since_ns = 0, process_since_ns = 0, rechecked_ns = 0;
  bool announced = false, planned = false, settled = false;
  bool by_mailbox = false;
  bool last = false;  // Nothing is waited for any more.

  void Run();
  milliseconds Tick();
  bool FromMailbox();
  bool FromMeeting();
  std::optional<Reference> ReferenceTold() const;
  void Plan();
  void LookOnceMore();
  void DropClient();
  void StartClient(std::int32_t reference, const std::string& where, const RunKey& key);
  void Say(std::string text) {
    std::lock_guard lock(mutex);
    state = std::move(text);
  }
  ClockClient::Sink SafeSink() {
    return [this](std::span<const BurstRow> rows) {
      std::lock_guard lock(sink_mutex);
      config.sink(rows);
    };
  }
  std::int32_t rank() const { return config.service.rank; }
};

ClockListen WhereToListen(std::int32_t slot, std::int32_t world_size, std::int32_t local_size) {
  if (slot != 0 || world_size == 1) return ClockListen::kNowhere;
  return world_size > 0 && local_size == world_size ? ClockListen::kLoopback : ClockListen::kEverywhere;
}

Result<std::unique_ptr<ClockCoordinator>> ClockCoordinator::Start(ClockCoordinatorConfig config) {
  auto impl = std::make_unique<Impl>();
  impl->config = std::move(config);
  if (impl->config.mode == ClockService::kOff) {
    impl->state = "off";
    return std::unique_ptr<ClockCoordinator>(new ClockCoordinator(std::move(impl)));
  }
  if (impl->config.listen != ClockListen::kNowhere && !IsEmpty(impl->config.service.key)) {
    impl->config.service.loopback_only = impl->config.listen == ClockListen::kLoopback;
    auto server = ClockServer::Start(impl->config.service);
    if (!server.ok()) return server.error();
    impl->server = std::move(server).value();
    impl->address = impl->server->address();
  }
  impl->thread = QuietThread([raw = impl.get()] { raw->Run(); });
  return std::unique_ptr<ClockCoordinator>(new ClockCoordinator(std::move(impl)));
}

ClockCoordinator::ClockCoordinator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ClockCoordinator::~ClockCoordinator() {
  Abandon();
  if (!impl_->announced) return;
  const std::string& directory = impl_->config.meeting_dir;
  RemoveAnnouncement(directory, impl_->rank());
  // No agent is left that could be connected with it; an agent that comes later makes another key.
  if (!ReadAnnouncements(directory).empty()) return;
  RemoveSharedRunKey(directory);
  RemovePublishedReference(directory);
}

const std::string& ClockCoordinator::address() const { return impl_->address; }

void ClockCoordinator::Finish(int limit_ms) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->changed.notify_all();
  if (impl_->thread.joinable()) impl_->thread.join();
  // From here on this thread is the only one that uses client and process. The server goes on, because other ranks may
  // be at their last burst.
  impl_->LookOnceMore();
  if (impl_->client) impl_->client->FinalBurst(std::min(limit_ms, 200));
  if (impl_->process) {
    const bool well = impl_->process->Finish(impl_->config.interrupted);
    std::lock_guard lock(impl_->mutex);
    impl_->state = "lockstep-clock, " + std::to_string(impl_->process->rows()) + " exchanges" +
                   (well ? "" : "; it did not end well");
  }
  if (impl_->client) {
    std::lock_guard lock(impl_->mutex);
    impl_->state += ", " + std::to_string(impl_->client->bursts()) + " tcp bursts";
    impl_->bursts = impl_->client->bursts();
    impl_->unproven = impl_->client->unproven();
    impl_->told = impl_->client->told();
    impl_->client.reset();
  }
}

void ClockCoordinator::Abandon() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
    if (impl_->process) impl_->process->Kill();
  }
  impl_->changed.notify_all();
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->client.reset();
  impl_->process.reset();
}

std::string ClockCoordinator::Describe() const {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->client) return impl_->state;
  return impl_->state + ", " + std::to_string(impl_->client->bursts()) + " bursts";
}

std::string ClockCoordinator::Trouble() const {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->no_client.empty()) return impl_->no_client;
  if (!impl_->called) return "";
  const std::uint64_t bursts = impl_->client ? impl_->client->bursts() : impl_->bursts;
  const std::uint64_t unproven = impl_->client ? impl_->client->unproven() : impl_->unproven;
  if (bursts > 0) return "";
  if (unproven > 0)
    return "what answers at " + impl_->called_at +
           " holds another key than this agent (the run directory is not shared)";
  return "the clock service of rank " + std::to_string(impl_->called_rank) + " was not reached at " + impl_->called_at;
}

void ClockCoordinator::Impl::Run() {
  for (;;) {
    const milliseconds pause = Tick();
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, pause, [&] { return stop; })) return;
  }
}

std::vector<ToldPlace> ClockCoordinator::places() const {
  return impl_->server ? impl_->server->places() : std::vector<ToldPlace>();
}

std::size_t ClockCoordinator::clients() const { return impl_->server ? impl_->server->clients() : 0; }

bool ClockCoordinator::told() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->client ? impl_->client->told() : impl_->told;
}

// Runs the coordinator once; returns the pause before the next call.
milliseconds ClockCoordinator::Impl::Tick() {
  const std::string& directory = config.meeting_dir;
  if (!directory.empty() && !announced && rank() >= 0) {
    const bool can_mpi = config.mode == ClockService::kAgent && access(config.clock_program.c_str(), X_OK) == 0;
    const auto published = PublishAnnouncement(directory, {rank(), config.world_size, config.domain, address, can_mpi});
    announced = published.ok();
    if (!announced) Say(published.error().what);
  }
  if (config.mode == ClockService::kAgent && !directory.empty() && config.world_size > 0) {
    Plan();
    if (process && (process->rows() > 0 || RawNs() - process_since_ns < kMpiFirstRowNs)) return milliseconds(500);
    if (!planned) return milliseconds(100);
  }
  if (config.mode == ClockService::kAuto && FromMailbox()) return milliseconds(2000);
  if (!directory.empty() && FromMeeting()) return milliseconds(2000);
  return milliseconds(client ? 2000 : 100);
}

// Returns true once the application's MPI has determined which ranks measure with each other.
bool ClockCoordinator::Impl::FromMailbox() {
  if (by_mailbox) return true;
  if (config.segment.base == nullptr) return false;
  const ClockMailbox& mailbox = config.segment.header().mailbox;
  if (!HaveMet(mailbox)) return false;
  by_mailbox = true;
  {
    std::lock_guard lock(mutex);
    no_client.clear();
  }
  const std::string where(mailbox.reference_address,
                          strnlen(mailbox.reference_address, sizeof mailbox.reference_address));
  if (mailbox.domains <= 1) {
    Say("all ranks share one clock");
  } else if (mailbox.leader != mailbox.world_rank) {
    Say("rank " + std::to_string(mailbox.leader) + " measures for this clock domain");
  } else if (mailbox.leader == mailbox.reference) {
    Say("reference of all clocks");
  } else if (!client && !where.empty()) {
    // The application's MPI may have transmitted the key; otherwise that of the directory is used.
    RunKey key{};
    memcpy(key.data(), mailbox.reference_key, key.size());
    StartClient(mailbox.reference, where, IsEmpty(key) ? config.service.key : key);
    return true;
  } else {
    return true;
  }
  // The announcements may have been read too early, so that this rank became a leader by mistake.
  DropClient();
  return true;
}

// The application may have been told only in MPI_Finalize where rank 0's agent is.
void ClockCoordinator::Impl::LookOnceMore() {
  if (client || config.mode != ClockService::kAuto || config.segment.base == nullptr) return;
  const ClockMailbox& mailbox = config.segment.header().mailbox;
  if (mailbox.state.load(std::memory_order_acquire) != kReferenceOnly) return;
  last = true;
  (void)FromMeeting();
}

void ClockCoordinator::Impl::DropClient() {
  std::unique_ptr<ClockClient> unneeded;  // Destroyed after the lock is released.
  std::lock_guard lock(mutex);
  unneeded = std::move(client);
  called = false;
}

// What this slot's application was told of rank 0's agent, or that of this host's first slot.
std::optional<Reference> ClockCoordinator::Impl::ReferenceTold() const {
  if (config.mode != ClockService::kAuto || config.segment.base == nullptr) return std::nullopt;
  const ClockMailbox& mailbox = config.segment.header().mailbox;
  if (mailbox.state.load(std::memory_order_acquire) != kReferenceOnly)
    return ReadPublishedReference(config.meeting_dir);
  return MailedReference(mailbox);
}

// Returns true once nothing is left to do.
bool ClockCoordinator::Impl::FromMeeting() {
  const std::string& directory = config.meeting_dir;
  const std::int64_t now = RawNs();
  if (settled || rank() < 0) return true;
  if (rank() == 0) {
    Say("reference of all clocks");
    return settled = true;
  }
  auto reference = ReadAnnouncement(directory, 0);
  RunKey key = config.service.key;
  if (!reference) {
    if (const auto told = ReferenceTold()) {
      reference = ClockAnnouncement{
          .rank = 0, .world_size = config.world_size, .domain = told->domain, .address = told->address};
      memcpy(key.data(), told->key, key.size());
    }
  }
  if (begun_ns == 0) begun_ns = now;
  if (!reference || reference->address.empty()) {
    std::lock_guard lock(mutex);
    // Rank 0's agent takes its file away when it ends; who was connected by then has measured.
    if (!client && now - begun_ns > kReferenceLateNs) {
      no_client = reference_seen_ns != 0 ? "rank 0's agent ended before this one had compared clocks with it"
                  : reference ? "rank 0 runs no clock service: its agent expects no other hosts, or has no key"
                              : directory +
                                    " has no file of rank 0: the run directory is not shared, so its address and key "
                                    "are unknown";
    }
    return false;
  }
  {
    std::lock_guard lock(mutex);
    no_client.clear();
  }
  if (reference->domain == config.domain) {
    Say("shares the clock of rank 0");
    return settled = true;
  }
  if (reference_seen_ns == 0) reference_seen_ns = now;
  if (!last && (now - reference_seen_ns < kElectionNs || now - rechecked_ns < kRecheckNs)) return false;
  rechecked_ns = now;
  std::int32_t leader = rank();
  for (std::int32_t other = rank() - 1; other > 0 && rank() - other <= kScanAll; --other) {
    const auto announcement = ReadAnnouncement(directory, other);
    if (announcement && announcement->domain == config.domain) leader = other;
  }
  if (leader == rank()) {
    if (!client) StartClient(0, reference->address, key);
    // A rank that has not announced itself by now is too late to matter.
    settled = now - reference_seen_ns > 6 * kRecheckNs;
    return settled;
  }
  Say("rank " + std::to_string(leader) + " measures for this clock domain");
  DropClient();
  return settled = true;
}

// MPI_Init waits for every rank, so all must decide alike: rank 0 decides when it has seen all announcements, and the
// others read its decision from a file. Without a decision no rank starts lockstep-clock, because an MPI_Init that some
// rank does not call hangs or fails the job (Open MPI 4.1.4).
void ClockCoordinator::Impl::Plan() {
  if (planned) return;
  const std::string& directory = config.meeting_dir;
  const std::int64_t now = RawNs();
  if (plan_since_ns == 0) plan_since_ns = now;
  if (rank() == 0) {
    const auto all = ReadAnnouncements(directory);
    const bool complete = static_cast<std::int32_t>(all.size()) == config.world_size;
    if (!complete && now - plan_since_ns < kPlanLimitNs) return;
    const bool able = std::all_of(all.begin(), all.end(), [](const ClockAnnouncement& a) { return a.can_mpi; });
    (void)PublishClockPlan(directory, complete && able && !OneDomain(all));
  }
  const auto plan = ReadClockPlan(directory);
  if (!plan) return;
  planned = true;
  if (!*plan) {
    Say("lockstep-clock was not started: one clock, or not every rank came with it");
    return;
  }
  ClockProcessSetup setup;
  setup.domain = config.domain;
  setup.clock = config.service.clock;
  setup.first_burst = kFirstMpiBurst;
  auto started = ClockProcess::Start(config.clock_program, setup, SafeSink());
  if (!started.ok()) {
    Say(started.error().what);
    return;
  }
  process_since_ns = now;
  std::lock_guard lock(mutex);
  process = std::move(started).value();
  state = "lockstep-clock";
}

void ClockCoordinator::Impl::StartClient(std::int32_t reference, const std::string& where, const RunKey& key) {
  ClockServiceConfig service = config.service;
  service.key = key;
  auto started = ClockClient::Start(service, reference, where, SafeSink(), kFirstTcpBurst);
  std::lock_guard lock(mutex);
  if (!started.ok()) {
    no_client = state = started.error().what;
    return;
  }
  no_client.clear();
  client = std::move(started).value();
  called = true;
  called_rank = reference;
  called_at = where.size() <= kShownBytes ? where : where.substr(0, where.rfind(',', kShownBytes)) + ", ...";
  state = "tcp to rank " + std::to_string(reference) + " at " + called_at;
}

}  // namespace lockstep::clock
