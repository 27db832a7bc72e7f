#include "runtime/agent/clock_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/hash.h"

namespace lockstep {
namespace {

constexpr int kFinishLimitMs = 500;
constexpr std::size_t kRowsPerBlock = kSpoolBlockBytes / sizeof(BurstRow);

}  // namespace

ClockLink::ClockLink(ClockService mode, const LaunchEnv& launch, const EventClock& clock, const SegmentView& segment,
                     const std::string& meeting_dir, const std::string& clock_program,
                     std::function<bool()> interrupted) {
  SegmentHeader& header = segment.header();
  Hash64 token;
  token.Add("clock token");
  token.Add(launch.run_id);
  header.clock_token = token.value();
  if (mode == ClockService::kOff) return;
  ClockCoordinatorConfig config;
  config.service = {.rank = launch.slot(), .token = token.value(), .clock = clock};
  config.world_size = launch.slots();
  config.domain = header.clock_domain;
  config.mode = mode;
  config.segment = segment;
  config.meeting_dir = meeting_dir;
  config.clock_program = clock_program;
  config.interrupted = std::move(interrupted);
  config.sink = [this](std::span<const BurstRow> rows) {
    const std::lock_guard lock(mutex_);
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    offset_ = {};
    for (const BurstRow& row : rows) {
      const std::int64_t round_trip = (row.t4 - row.t1) - (row.t3 - row.t2), error = round_trip / 2 + 1;
      if (offset_.error_ns < 0 || error < offset_.error_ns)
        offset_ = {(row.t2 - row.t1) / 2 + (row.t3 - row.t4) / 2, error};
    }
  };
  auto started = ClockCoordinator::Start(std::move(config));
  if (!started.ok()) {
    trouble_ = started.error().what;
    return;
  }
  coordinator_ = std::move(started).value();
  const std::string& address = coordinator_->address();
  std::memcpy(header.agent_address, address.data(), std::min(address.size(), sizeof header.agent_address - 1));
}

ClockLink::~ClockLink() = default;

void ClockLink::Drain(SpoolWriter& spool) {
  std::vector<BurstRow> rows;
  {
    const std::lock_guard lock(mutex_);
    rows.swap(rows_);
  }
  for (std::size_t at = 0; at < rows.size(); at += kRowsPerBlock) {
    const std::size_t count = std::min(rows.size() - at, kRowsPerBlock);
    // Few and precious: they may use the spool's reserve.
    spool.Append({SpoolKind::kBursts}, rows.data() + at, count * sizeof(BurstRow), true);
  }
}

ClockOffset ClockLink::offset() {
  const std::lock_guard lock(mutex_);
  return offset_;
}

void ClockLink::Finish(bool good) {
  if (coordinator_ == nullptr) return;
  if (good) {
    coordinator_->Finish(kFinishLimitMs);
  } else {
    coordinator_->Abandon();
    coordinator_.reset();
  }
}

}  // namespace lockstep
