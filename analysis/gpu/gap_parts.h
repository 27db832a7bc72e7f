#pragma once
// Splits the gaps of a device by what the host did until the launch that ended them, and by what kept the launched
// operation from starting. docs/definitions.md, "Idle time of a GPU".

#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/gpu/device_gaps.h"
#include "analysis/gpu/host_states.h"
#include "analysis/gpu/model_ranges.h"
#include "analysis/gpu/stream_waits.h"

namespace lockstep::gpu {

// All of these must outlive it.
class GapSplitter {
 public:
  GapSplitter(const DeviceActivity& activity, const std::vector<BlockingCall>& blocking);
  GapSplitter(const GapSplitter&) = delete;
  GapSplitter& operator=(const GapSplitter&) = delete;

  // Of the gap `whole` between two operations (of GpuTimeline.ops; kNone: nothing in the trace): the blocking call that
  // the host was in when the device went idle, kNone.
  std::uint32_t Follows(Interval whole, std::uint32_t before, std::uint32_t after) const;
  // Appends what tiles gap.at, a part of `whole`. Linear in what the host did meanwhile.
  void Split(const Gap& gap, Interval whole, std::vector<GapPart>& parts) const;

 private:
  struct Launch {
    Interval call;         // At the end of time: nothing was launched any more.
    std::uint32_t thread;  // That launches what ends the gap, kNone.
  };
  Launch LaunchOf(std::uint32_t before, std::uint32_t after) const;
  std::uint32_t LastBlocking(std::uint32_t thread, Interval idle, std::int64_t launched_ns) const;
  void FindForwards();
  void SplitHost(Interval at, const Launch& launch, std::uint32_t follows, std::vector<GapPart>& parts) const;
  GapPart HostPart(const HostMoment& moment) const;
  void AddHostPart(GapPart part, bool launching_thread, const Launch& launch, std::uint32_t follows, std::size_t first,
                   std::vector<GapPart>& parts) const;
  PartKind KindOfBlocking(std::uint32_t blocking) const;
  // Until when work of another device held the operation, as the trace tells; schema::kNoTime if not.
  std::int64_t HeldUntil(std::uint32_t after, std::uint16_t device, Interval whole) const;

  const DeviceActivity& activity_;
  const RankView& rank_;
  const schema::RankTables& t_;
  const std::vector<GpuOp>& ops_;
  const std::vector<BlockingCall>& blocking_;
  HostStates host_;
  StreamWaits waits_;  // Of ranks with several devices.
  RangeNest nest_;
  ModelRanges model_;
  std::vector<std::uint32_t> by_thread_;                        // Blocking calls by thread, then end.
  std::vector<std::uint32_t> of_call_;                          // Per row of api: of blocking_, kNone.
  std::vector<std::pair<Interval, std::uint32_t>> threadless_;  // Of blocking_ without a thread: disjoint, in order.
  IntervalSet
      before_forward_;  // Between a step's begin or its optimizer and the forward pass, where that may be input.
  std::uint32_t training_ = schema::kNone;
  std::int64_t slack_ns_ = rank_.ClockSlackNs();
};

}  // namespace lockstep::gpu
