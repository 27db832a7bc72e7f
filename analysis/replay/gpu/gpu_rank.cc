#include "analysis/replay/gpu/gpu_rank.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/core/statistics.h"
#include "analysis/replay/gpu/gpu_raw.h"
#include "core/order_statistics.h"
#include "core/rules/common.h"

namespace lockstep::replay {
namespace {

using schema::kNone;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min(),
                       kForever = std::numeric_limits<std::int64_t>::max();

// Applies the rules in the order in which the host requested the items.
class Resolver {
 public:
  Resolver(GpuRaw raw, std::int64_t slack_ns, GpuRank& out) : raw_(std::move(raw)), slack_ns_(slack_ns), out_(out) {}

  void Run() {
    lanes_.resize(out_.lanes.size());
    FindMainLanes();
    FindLatencies();
    out_.items.reserve(raw_.items.size() + lanes_.size());
    for (std::uint16_t lane = 0; lane < lanes_.size(); ++lane) Carry(lane);
    std::size_t gate = 0;
    if (raw_.gates.size() > 1 && raw_.gates.front() == kNone) out_.gates.push_back(raw_.gates[gate++]);
    for (std::size_t i = 0; i < raw_.items.size(); ++i) {
      const RawItem& raw = raw_.items[i];
      const auto item = static_cast<std::uint32_t>(out_.items.size());
      for (; gate < raw_.gates.size() && raw_.gates[gate] == i; ++gate) out_.gates.push_back(item);
      out_.items.push_back(raw.item);
      Visit(raw, item);
    }
    out_.gates.resize(raw_.gates.size(), kNone);
  }

 private:
  struct Past {
    std::uint64_t correlation;
    std::int64_t end_ns;
    std::uint32_t item;
  };
  struct LaneState {
    std::int64_t end_ns = kNever;
    std::vector<Past> past;            // Sorted by end and by request, which is the same order.
    std::vector<std::uint32_t> waits;  // The items since the last operation.
    bool unknown_wait = false;
    std::uint16_t thread = GpuRank::kNobody;
    std::int64_t call_ns = kNever;
  };

  GpuItem& At(std::uint32_t item) { return out_.items[item]; }
  static bool IsOperation(const GpuItem& item) { return item.kind <= GpuItem::kFixed; }

  // Finds the stream with the most kernels of each device.
  void FindMainLanes() {
    std::vector<std::uint64_t> kernels(lanes_.size(), 0), members(lanes_.size(), 0);
    for (const RawItem& raw : raw_.items) {
      if (raw.item.kind == GpuItem::kKernel) ++kernels[raw.item.lane];
      if (raw.item.kind == GpuItem::kMember || raw.item.kind == GpuItem::kMessages) ++members[raw.item.lane];
    }
    for (std::uint16_t lane = 0; lane < lanes_.size(); ++lane) {
      out_.lanes[lane].communicates = members[lane] > kernels[lane];
      const auto [at, fresh] = main_lane_.try_emplace(out_.lanes[lane].device, lane);
      if (!fresh && kernels[lane] > kernels[at->second]) at->second = lane;
    }
  }

  // The time from the end of a launching call to the begin on the GPU of operations that nothing else held back: in
  // practice its lower bound, and the launch latency of an empty queue. By kind, because copies and NCCL take other
  // paths. Where the trace does not show for what streams wait, any work of the device may have held them back, as the
  // backward pass does all collectives of a step: only an idle device tells then, and else the shortest time.
  void FindLatencies() {
    // Operations of the step before hold the first ones back.
    std::vector<std::int64_t> samples[3], ends = raw_.carry_ns;
    std::int64_t shortest[3] = {kForever, kForever, kForever};
    std::map<std::uint16_t, std::int64_t> device_ends;
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      std::int64_t& end = device_ends.try_emplace(out_.lanes[lane].device, kNever).first->second;
      end = std::max(end, ends[lane]);
    }
    std::vector<bool> waits(lanes_.size(), false);
    for (const RawItem& raw : raw_.items) {
      const GpuItem& item = raw.item;
      if (item.kind == GpuItem::kWait) waits[item.lane] = true;
      if (!IsOperation(item)) continue;
      std::int64_t& device_end = device_ends[out_.lanes[item.lane].device];
      if (raw.launched && !raw.blocks && !waits[item.lane] && ends[item.lane] < raw.call_end_ns) {
        const std::size_t kind = LatencyOf(item);
        shortest[kind] = std::min(shortest[kind], item.begin_ns - raw.call_end_ns);
        if (raw_.told || device_end < raw.call_end_ns) samples[kind].push_back(item.begin_ns - raw.call_end_ns);
      }
      ends[item.lane] = std::max(ends[item.lane], item.end_ns);
      device_end = std::max(device_end, item.end_ns);
      waits[item.lane] = false;
    }
    for (std::size_t kind = 0; kind < 3; ++kind) {
      auto& values = samples[kind].empty() ? samples[0] : samples[kind];
      const std::int64_t least = std::min(shortest[kind], shortest[0]);
      if (!values.empty())
        latency_ns_[kind] = NthElement(values, (values.size() - 1) / 2);
      else if (least != kForever)
        latency_ns_[kind] = least;
    }
  }
  static std::size_t LatencyOf(const GpuItem& item) {
    return item.kind == GpuItem::kKernel ? 0 : item.kind == GpuItem::kCopy ? 1 : 2;
  }

  void Carry(std::uint16_t lane) {
    if (raw_.carry_ns[lane] <= out_.origin_ns) return;
    GpuItem item;
    item.kind = GpuItem::kCarry;
    item.lane = lane;
    item.thread = GpuRank::kNobody;
    item.call_ns = item.begin_ns = out_.origin_ns;
    item.end_ns = raw_.carry_ns[lane];
    lanes_[lane].end_ns = item.end_ns;
    lanes_[lane].past.push_back({0, item.end_ns, static_cast<std::uint32_t>(out_.items.size())});
    out_.items.push_back(item);
  }

  void Visit(const RawItem& raw, std::uint32_t i) {
    switch (raw.item.kind) {
      case GpuItem::kWait:
        return Wait(raw, i);
      case GpuItem::kSync:
        return Sync(raw, i);
      case GpuItem::kGive:
        gives_.emplace(raw.row, i);
        return;
      case GpuItem::kTake:
        At(i).ref = gives_.at(raw.row);
        return;
      case GpuItem::kMpi:
        return;
      default:
        return Operate(raw, i);
    }
  }

  // The last item requested of a lane before a record.
  std::uint32_t LastBefore(std::uint16_t lane, std::uint64_t correlation) const {
    const auto& past = lanes_[lane].past;
    const auto after =
        std::upper_bound(past.begin(), past.end(), correlation,
                         [](std::uint64_t wanted, const Past& each) { return wanted < each.correlation; });
    return after == past.begin() ? kNone : after[-1].item;
  }

  void Wait(const RawItem& raw, std::uint32_t i) {
    LaneState& lane = lanes_[raw.item.lane];
    if (raw.record_lane == GpuItem::kNoLane && raw.record_unknown) lane.unknown_wait = true;
    std::uint32_t of =
        raw.record_lane == GpuItem::kNoLane ? kNone : LastBefore(raw.record_lane, raw.record_correlation);
    if (of != kNone && raw.record_lane == raw.item.lane) of = kNone;  // The order of the lane already implies it.
    At(i).ref = of;
    if (of == kNone) return;
    lane.waits.push_back(i);
    // A later record on this lane also covers what the lane waited for.
    At(i).begin_ns = At(i).end_ns = std::max(lane.end_ns, At(of).end_ns);
    lane.past.push_back(
        {raw.correlation, std::max(At(i).end_ns, lane.past.empty() ? kNever : lane.past.back().end_ns), i});
  }

  void Operate(const RawItem& raw, std::uint32_t i) {
    GpuItem& item = At(i);
    LaneState& lane = lanes_[item.lane];
    const std::int64_t begin = item.begin_ns, end = item.end_ns;
    ++out_.residuals.operations;
    std::int64_t held = kNever;
    // A wait whose target ended after the operation began cannot have held it.
    for (const std::uint32_t wait : lane.waits) {
      const std::int64_t ends = At(At(wait).ref).end_ns;
      if (ends > begin + slack_ns_) {
        At(wait).ref = kNone;
        ++out_.residuals.dropped_waits;
        continue;
      }
      At(At(wait).ref).watched = true;
      held = std::max(held, ends);
    }
    for (const std::uint32_t wait : lane.waits)
      At(wait).begin_ns = At(wait).end_ns =
          std::max(lane.end_ns, At(wait).ref == kNone ? kNever : At(At(wait).ref).end_ns);
    if (!raw.launched) Adopt(lane, item);
    const std::int64_t x = begin - item.call_ns;
    const std::int64_t other = std::max(lane.end_ns, held);
    if (raw.blocks)
      item.lag_ns = other <= item.call_ns ? std::max<std::int64_t>(0, x) : 0;
    else if (raw.launched)
      item.lag_ns =
          std::max<std::int64_t>(0, std::min(raw.call_end_ns - item.call_ns + latency_ns_[LatencyOf(item)], x));
    const std::int64_t release = raw.launched ? item.call_ns + item.lag_ns : kNever;
    std::int64_t ready = std::max(release, other);
    if (begin > ready) {
      const std::uint32_t guess = Guess(raw, item, ready, lane.unknown_wait);
      if (guess != kNone) {
        item.after = guess;
        At(guess).watched = true;
        ++out_.residuals.guessed_waits;
        held = std::max(held, At(guess).end_ns);
        ready = std::max(ready, held);
      }
    }
    if (ready == kNever) ready = out_.origin_ns;
    if (begin < ready - slack_ns_) ++out_.residuals.negative;
    item.delay_ns = std::max<std::int64_t>(0, begin - ready);
    std::int64_t& rest = ready == held          ? out_.residuals.after_wait_ns
                         : ready == lane.end_ns ? out_.residuals.after_stream_ns
                                                : out_.residuals.after_launch_ns;
    rest += item.delay_ns;
    item.begin_ns = std::max(begin, ready);
    item.end_ns = std::max(end, item.begin_ns);
    if (raw.copy_row != kNone) copies_.emplace(raw.copy_row, i);
    lane.end_ns = item.end_ns;
    lane.waits.clear();
    lane.unknown_wait = false;
    lane.thread = item.thread;
    lane.call_ns = item.call_ns;
    lane.past.push_back(
        {raw.correlation != 0 || lane.past.empty() ? raw.correlation : lane.past.back().correlation, item.end_ns, i});
  }

  // If no host call is known, the item counts as requested together with the previous one of its stream.
  void Adopt(const LaneState& lane, GpuItem& item) {
    ++out_.residuals.unlaunched;
    item.thread = lane.thread;
    item.call_ns = lane.thread == GpuRank::kNobody ? out_.origin_ns : lane.call_ns;
  }

  // Of the items requested before on other streams of the device, returns the one that ended last before `item` began,
  // if it ended later than everything known and just before: the item may have waited for it.
  std::uint32_t Guess(const RawItem& raw, const GpuItem& item, std::int64_t ready_ns, bool unknown_wait) {
    const bool told = raw_.told && !unknown_wait;
    std::uint32_t best = kNone;
    const std::uint16_t device = out_.lanes[item.lane].device;
    for (std::uint16_t l = 0; l < lanes_.size(); ++l) {
      if (l == item.lane || out_.lanes[l].device != device) continue;
      const auto& past = lanes_[l].past;
      const auto after = std::upper_bound(past.begin(), past.end(), item.begin_ns,
                                          [](std::int64_t ns, const Past& each) { return ns < each.end_ns; });
      if (after == past.begin()) continue;
      const Past& last = after[-1];
      // The trace contains no inner edges of a CUDA graph.
      if (told && (raw.correlation == 0 || last.correlation != raw.correlation)) continue;
      if (last.end_ns <= ready_ns || item.begin_ns - last.end_ns > rules::kPromptStartNs) continue;
      if (best == kNone || At(best).end_ns < last.end_ns) best = last.item;
    }
    if (best != kNone || told || item.kind != GpuItem::kMember) return best;
    // A collective waits for what the caller of its stream has computed so far: PyTorch records an event for it.
    const auto main = main_lane_.find(device);
    if (main == main_lane_.end() || main->second == item.lane) return kNone;
    const auto& past = lanes_[main->second].past;
    return past.empty() || past.back().end_ns > item.begin_ns ? kNone : past.back().item;
  }

  void Sync(const RawItem& raw, std::uint32_t i) {
    GpuSync sync;
    const std::int64_t call = raw.item.call_ns, call_end = raw.call_end_ns;
    std::int64_t released = call;
    // By the trace's clocks a call may return before the work for which a row of the trace says it waited.
    const bool told = raw.sync == RawItem::kRecord || raw.sync == RawItem::kStream ||
                      (raw.sync == RawItem::kDevice && raw.device != 0xffff);
    const auto add_item = [&](std::uint32_t of) {
      if (of == kNone || (!told && At(of).end_ns > call_end + slack_ns_)) return;
      sync.item = of;
      At(of).watched = true;
      released = std::max(released, At(of).end_ns);
    };
    const auto add_lane = [&](std::uint16_t lane) {
      // The call did not wait for work that ended later, whatever its name says.
      if (lanes_[lane].past.empty() || (!told && lanes_[lane].end_ns > call_end + slack_ns_)) return;
      sync.lanes.push_back(lane);
      released = std::max(released, lanes_[lane].end_ns);
      // The stream may only have a wait for another one left, as after the last collective of a step.
      for (const std::uint32_t wait : lanes_[lane].waits) {
        if (At(wait).ref == kNone) continue;
        GpuItem& of = At(At(wait).ref);
        if (!told && of.end_ns > call_end + slack_ns_) {
          At(wait).ref = kNone;
          ++out_.residuals.dropped_waits;
          continue;
        }
        of.watched = true;
        released = std::max(released, of.end_ns);
      }
    };
    switch (raw.sync) {
      case RawItem::kCopyDone:
        if (const auto copy = copies_.find(raw.copy_row); copy != copies_.end()) add_item(copy->second);
        break;
      case RawItem::kRecord:
        if (raw.record_lane != GpuItem::kNoLane) add_item(LastBefore(raw.record_lane, raw.record_correlation));
        break;
      case RawItem::kStream:
        if (raw.item.lane != GpuItem::kNoLane) add_lane(raw.item.lane);
        break;
      case RawItem::kDevice:
        for (std::uint16_t lane = 0; lane < lanes_.size(); ++lane)
          if (raw.device == 0xffff || out_.lanes[lane].device == raw.device) add_lane(lane);
        break;
      case RawItem::kUnknown: {
        // The stream that finished last while the call waited.
        std::uint16_t best = GpuItem::kNoLane;
        for (std::uint16_t lane = 0; lane < lanes_.size(); ++lane)
          if (lanes_[lane].end_ns > call && lanes_[lane].end_ns <= call_end + slack_ns_ &&
              (best == GpuItem::kNoLane || lanes_[lane].end_ns > lanes_[best].end_ns))
            best = lane;
        if (best != GpuItem::kNoLane) add_lane(best);
        break;
      }
    }
    GpuItem& item = At(i);
    item.lane = GpuItem::kNoLane;
    item.ref = static_cast<std::uint32_t>(out_.syncs.size());
    if (told) released = std::min(released, std::max(call, call_end));
    item.begin_ns = released;
    item.end_ns = std::max(released, call_end);
    item.delay_ns = item.end_ns - released;
    out_.syncs.push_back(std::move(sync));
  }

  GpuRaw raw_;
  std::int64_t slack_ns_;
  GpuRank& out_;
  std::vector<LaneState> lanes_;
  std::map<std::uint16_t, std::uint16_t> main_lane_;
  std::int64_t latency_ns_[3] = {0, 0, 0};
  std::map<std::uint32_t, std::uint32_t> copies_, gives_;
};

}  // namespace

GpuRank DistillGpuRank(const schema::RankTables& tables, const merge::ClockMap& clock, const GpuRankRequest& request) {
  GpuRank out;
  Resolver(CollectGpuRaw(tables, clock, request, out), request.clock_slack_ns, out).Run();
  return out;
}

}  // namespace lockstep::replay
