#include "runtime/agent/slot/clock_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comms/clock/clock_meeting.h"
#include "core/reference.h"
#include "runtime/agent/rundir/places.h"
#include "runtime/agent/rundir/process_state.h"

namespace lockstep::agent {
namespace {

constexpr int kFinishLimitMs = 500;
constexpr std::size_t kRowsPerBlock = kSpoolBlockBytes / sizeof(BurstRow);

}  // namespace

ClockLink::ClockLink(clock::ClockService mode, const launch::LaunchEnv& launch, const EventClock& clock,
                     const SegmentView& segment, const std::string& run_dir, const std::string& clock_program,
                     std::function<bool()> interrupted, std::function<void(clock::FilesPeer)> take_files)
    : segment_(segment), meeting_dir_(run_dir + "/ranks"), rank_(launch.slot()) {
  SegmentHeader& header = segment.header();
  // A job of one rank has no other clock to compare with: nothing is opened or written.
  if (mode == clock::ClockService::kOff || launch.world_size == 1 || launch.source == launch::LaunchSource::kNone)
    return;
  clock::RunKey key{};
  if (const Result<clock::RunKey> shared = clock::SharedRunKey(meeting_dir_); shared.ok()) {
    key = shared.value();
  } else {
    // Rank 0's own key is enough if the application's MPI distributes it.
    no_shared_key_ = shared.error().what;
    if (launch.slot() != 0 || !clock::RandomBytes(key)) key = {};
  }
  std::memcpy(header.clock_key, key.data(), key.size());
  clock::ClockCoordinatorConfig config;
  config.service = {.rank = launch.slot(),
                    .key = key,
                    .clock = clock,
                    .place = PlaceText(HostName(), run_dir, launch.local_size),
                    .take_files = std::move(take_files)};
  config.listen = clock::WhereToListen(launch.slot(), launch.world_size, launch.local_size);
  config.world_size = launch.slots();
  config.domain = header.clock_domain;
  config.mode = mode;
  config.segment = segment;
  config.meeting_dir = meeting_dir_;
  config.clock_program = clock_program;
  config.interrupted = std::move(interrupted);
  config.sink = [this](std::span<const BurstRow> rows) {
    const std::lock_guard lock(mutex_);
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    ClockOffset best;
    std::int64_t at_ns = 0;
    for (const BurstRow& row : rows) {
      const std::int64_t round_trip = (row.t4 - row.t1) - (row.t3 - row.t2), error = round_trip / 2 + 1;
      if (best.error_ns >= 0 && error >= best.error_ns) continue;
      best = {(row.t2 - row.t1) / 2 + (row.t3 - row.t4) / 2, error};
      at_ns = row.t1 + (row.t4 - row.t1) / 2;
    }
    if (best.error_ns >= 0) line_.Add(at_ns, best);
  };
  auto started = clock::ClockCoordinator::Start(std::move(config));
  if (!started.ok()) {
    trouble_ = started.error().what;
    return;
  }
  coordinator_ = std::move(started).value();
  const std::string& address = coordinator_->address();
  std::memcpy(header.agent_address, address.data(), std::min(address.size(), sizeof header.agent_address - 1));
}

ClockLink::~ClockLink() = default;

void ClockLink::PassOn() {
  const ClockMailbox& mailbox = segment_.header().mailbox;
  if (passed_on_ || rank_ == 0) return;
  // What was done inside MPI_Init and took too long on a busy host has reached some of its ranks only, any of them.
  const bool met = HaveMet(mailbox);
  if (!met && mailbox.state.load(std::memory_order_acquire) != kReferenceOnly) return;
  lockstep::Reference reference = MailedReference(mailbox);
  if (!reference.complete()) return;
  passed_on_ = true;
  // All see it, or another slot was faster.
  if (clock::ReadAnnouncement(meeting_dir_, 0) || clock::ReadPublishedReference(meeting_dir_)) return;
  // What the others lack if it fails is said at their end.
  // Of an exchange the mailbox holds this rank's domain; rank 0's is another one, which is all that is known of it.
  if (met && mailbox.domains > 1 && mailbox.leader != mailbox.reference) reference.domain = 0;
  (void)clock::PublishReference(meeting_dir_, reference);
}

void ClockLink::Drain(SpoolWriter& spool, SpoolReserve reserve) {
  PassOn();
  std::vector<BurstRow> rows;
  {
    const std::lock_guard lock(mutex_);
    rows.swap(rows_);
  }
  std::size_t at = 0;
  for (std::size_t count; at < rows.size(); at += count) {
    count = std::min(rows.size() - at, kRowsPerBlock);
    if (!spool.Append({SpoolKind::kBursts}, rows.data() + at, count * sizeof(BurstRow), reserve)) break;
  }
  if (at == rows.size()) return;
  // The spool had no space. The rows are written at the next call.
  const std::lock_guard lock(mutex_);
  rows_.insert(rows_.begin(), rows.begin() + static_cast<std::ptrdiff_t>(at), rows.end());
}

std::string ClockLink::TakeTrouble() {
  if (coordinator_ == nullptr) return trouble_;
  const std::string why = coordinator_->Trouble();
  if (why.empty() || std::exchange(reported_, true)) return "";
  return why + (no_shared_key_.empty() ? "" : "; " + no_shared_key_);
}

std::vector<RunPlace> ClockLink::places(const std::vector<clock::ToldPlace>& also) const {
  std::vector<clock::ToldPlace> told = coordinator_ == nullptr ? places_ : coordinator_->places();
  const std::size_t by_clients = told.size();
  for (const clock::ToldPlace& place : also)
    if (std::none_of(told.begin(), told.begin() + static_cast<std::ptrdiff_t>(by_clients),
                     [&](const clock::ToldPlace& one) { return one.rank == place.rank; }))
      told.push_back(place);
  return PlacesOf(told, HostName());
}

ClockLink::Reference ClockLink::reference() const {
  Reference reference;
  const ClockMailbox& mailbox = segment_.header().mailbox;
  if (!HaveMet(mailbox) && mailbox.state.load(std::memory_order_acquire) != kReferenceOnly) {
    if (coordinator_ == nullptr) return reference;
    if (const auto passed = clock::ReadPublishedReference(meeting_dir_)) {
      std::copy(std::begin(passed->key), std::end(passed->key), reference.key.begin());
      reference.addresses = passed->address;
    }
    return reference;
  }
  std::memcpy(reference.key.data(), mailbox.reference_key, reference.key.size());
  if (!clock::IsEmpty(reference.key))
    reference.addresses.assign(mailbox.reference_address,
                               ::strnlen(mailbox.reference_address, sizeof mailbox.reference_address));
  return reference;
}

ClockLine ClockLink::line() {
  const std::lock_guard lock(mutex_);
  return line_;
}

std::string ClockLink::Describe() const {
  if (!trouble_.empty()) return "no clock service: " + trouble_;
  if (coordinator_ == nullptr) return "off";
  std::string text = coordinator_->Describe();
  const SegmentHeader& header = segment_.header();
  const ClockMailbox& mailbox = header.mailbox;
  const bool abandoned = Abandoned(mailbox);
  const bool told = rank_ == 0 || HaveMet(mailbox) || mailbox.state.load(std::memory_order_acquire) == kReferenceOnly ||
                    clock::ReadAnnouncement(meeting_dir_, 0).has_value();
  if (!told)
    text +=
        "; this rank does not see the directory in which rank 0 announced its clock service (the run directory is not "
        "shared)";
  if (abandoned)
    return text + (HaveMet(mailbox) ? "; an exchange in MPI_Init or MPI_Finalize was abandoned"
                                    : "; the exchange in MPI_Init was abandoned");
  if (told) return text;
  switch (mailbox.agreement.load(std::memory_order_relaxed)) {
    case AnchorAgreement::kRefused:
      return text +
             "; no clock exchange in MPI_Init: the program of some rank runs without Lockstep's probe, or was started "
             "differently than on this rank";
    case AnchorAgreement::kNoBoard:
      return text + "; no clock exchange in MPI_Init: this MPI has no PMIx over which ranks could agree to it";
    case AnchorAgreement::kNone:
    case AnchorAgreement::kAgreed:
      break;
  }
  return text;
}

void ClockLink::Finish(bool good, bool serve) {
  if (coordinator_ == nullptr) return;
  if (good) {
    coordinator_->Finish(kFinishLimitMs);
  } else {
    coordinator_->Abandon();
    if (serve) return;
    places_ = coordinator_->places();
    coordinator_.reset();
  }
}

}  // namespace lockstep::agent
