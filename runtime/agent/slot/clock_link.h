#pragma once
// The agent's side of the clock service: the coordinator measures on threads of
// its own, the main loop takes the rows to the spool.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comms/clock/clock_coordinator.h"
#include "comms/launch/launch_env.h"
#include "core/event_clock.h"
#include "core/ring_layout.h"
#include "runtime/agent/live/clock_line.h"
#include "runtime/agent/rundir/run_dir.h"
#include "runtime/agent/spool/spool_writer.h"

namespace lockstep::agent {

class ClockLink {
 public:
  // Listens where other ranks may have to connect, and writes address and key into the segment's header. The run goes
  // on if the clock service cannot start; trouble() says why. `take_files` as in ClockServiceConfig.
  ClockLink(clock::ClockService mode, const launch::LaunchEnv& launch, const EventClock& clock,
            const SegmentView& segment, const std::string& run_dir, const std::string& clock_program,
            std::function<bool()> interrupted, std::function<void(clock::FilesPeer)> take_files);
  ~ClockLink();

  // To be called now and then: what was told of rank 0's agent is passed on to this host's other slots, and rows
  // measured since the last call become blocks. They are few, and alignment needs them.
  void Drain(SpoolWriter& spool, SpoolReserve reserve = SpoolReserve::kHalf);
  // After a good end one more burst is made, and the server answers ranks that end later until this object is
  // destroyed. After a bad end everything stops at once, the server too unless others may still call it for their files
  // (`serve`).
  void Finish(bool good, bool serve = false);
  // Through the quickest exchanges of the last two bursts between agents.
  ClockLine line();
  const std::string& trouble() const { return trouble_; }
  // On rank 0: what the agents that measured with it told, and of others what they said `also`, when they brought
  // files: a program of some milliseconds has ended before anything was measured. Known after Finish, too.
  std::vector<RunPlace> places(const std::vector<clock::ToldPlace>& also = {}) const;
  // On rank 0: agents of other hosts are connected, so that their programs still run.
  bool others_connected() const { return coordinator_ != nullptr && coordinator_->clients() > 0; }
  // Rank 0's agent, as the application named it, or that of this host's first slot did; the address is "" if none did.
  // For ranks that do not share
  // rank 0's directory this is the only way to it.
  struct Reference {
    std::string addresses;
    clock::RunKey key{};
  };
  Reference reference() const;
  // Rank 0's agent knows where this slot's files are.
  bool told() const { return coordinator_ != nullptr && coordinator_->told(); }
  // The reason why this slot, which had to measure, has no exchange with the reference rank; "" if there is nothing to
  // report. A failed exchange is reported once.
  std::string TakeTrouble();
  // How this rank's clock was related to the others', or why it was not; one line.
  std::string Describe() const;

 private:
  void PassOn();

  std::mutex mutex_;
  std::vector<BurstRow> rows_;
  ClockLine line_;
  std::unique_ptr<clock::ClockCoordinator> coordinator_;
  std::string trouble_, no_shared_key_;
  bool reported_ = false;
  std::vector<clock::ToldPlace> places_;  // Of a coordinator that was abandoned.
  SegmentView segment_;
  std::string meeting_dir_;
  std::int32_t rank_;
  bool passed_on_ = false;
};

}  // namespace lockstep::agent
