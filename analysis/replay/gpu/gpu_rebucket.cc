// Makes another bucketing of a GPU run: its ranks' items with the old reductions replaced by new ones.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "analysis/core/statistics.h"
#include "analysis/replay/gpu/gpu_run.h"

namespace lockstep::replay {
namespace {

// A reduction of the recorded run with the items that belong to it on one rank.
struct Old {
  std::uint32_t item, first;    // The waits of its stream before it begin at `first`.
  std::uint32_t ready = kNone;  // The last kernel that computes its gradients.
};

class GpuRankChange {
 public:
  GpuRankChange(const GpuRank& rank, const BucketSequence& buckets, const std::vector<std::uint64_t>& bytes,
                std::uint32_t first_new)
      : rank_(rank), buckets_(buckets), bytes_(bytes), first_new_(first_new) {}

  GpuRank Make() {
    FindOld();
    if (old_.empty()) return rank_;
    FindHostCost();
    added_.resize(rank_.items.size());
    shift_.assign(rank_.items.size() + 1, 0);
    for (std::uint32_t step = 0; step < buckets_.first.size(); ++step) Plan(step);
    return Rewrite();
  }

 private:
  struct New {
    std::uint32_t collective, like;  // The collective of the run; the old item whose properties it copies.
    std::uint32_t ready;
  };

  static bool IsKernel(const GpuItem& item) { return item.kind == GpuItem::kKernel; }

  void FindOld() {
    std::map<std::uint32_t, std::uint32_t> place;
    for (std::uint32_t i = 0; i < buckets_.collectives.size(); ++i) place[buckets_.collectives[i]] = i;
    at_.assign(buckets_.collectives.size(), kNone);
    std::map<std::uint16_t, std::uint32_t> last_kernel;  // Per device, on any stream that computes.
    for (std::uint32_t i = 0; i < rank_.items.size(); ++i) {
      const GpuItem& item = rank_.items[i];
      if (IsKernel(item)) last_kernel[rank_.lanes[item.lane].device] = i;
      if (item.kind != GpuItem::kMember || rank_.EndsLastStep(i)) continue;
      const auto at = place.find(item.ref);
      if (at == place.end()) continue;
      Old old{i, i, kNone};
      while (old.first > 0 && rank_.items[old.first - 1].kind == GpuItem::kWait &&
             rank_.items[old.first - 1].lane == item.lane) {
        --old.first;
        const std::uint32_t waited = rank_.items[old.first].ref;
        if (waited != kNone && IsKernel(rank_.items[waited]) && (old.ready == kNone || waited > old.ready))
          old.ready = waited;
      }
      if (old.ready == kNone && item.after != kNone && IsKernel(rank_.items[item.after])) old.ready = item.after;
      if (old.ready == kNone) {
        const auto last = last_kernel.find(rank_.lanes[item.lane].device);
        if (last != last_kernel.end()) old.ready = last->second;
      }
      at_[at->second] = static_cast<std::uint32_t>(old_.size());
      old_.push_back(old);
    }
  }

  // The time that a launch takes its thread: how much longer the distance between the launches of two kernels is with
  // it between them.
  void FindHostCost() {
    std::vector<std::int64_t> plain, with, offsets;
    std::set<std::uint32_t> starts;
    for (const Old& old : old_) starts.insert(old.first);
    const auto follows = [&](std::uint32_t a, std::uint32_t b) {
      return rank_.items[a].thread == rank_.items[b].thread && rank_.items[b].call_ns >= rank_.items[a].call_ns;
    };
    for (std::uint32_t i = 0; i + 1 < rank_.items.size(); ++i)
      if (IsKernel(rank_.items[i]) && IsKernel(rank_.items[i + 1]) && follows(i, i + 1))
        plain.push_back(rank_.items[i + 1].call_ns - rank_.items[i].call_ns);
    plain_ns_ = LowerMedian(plain);
    for (const Old& old : old_) {
      if (old.first == 0 || !IsKernel(rank_.items[old.first - 1]) || !follows(old.first - 1, old.item)) continue;
      offsets.push_back(rank_.items[old.item].call_ns - rank_.items[old.first - 1].call_ns);
      if (old.item + 1 < rank_.items.size() && IsKernel(rank_.items[old.item + 1]) && follows(old.item, old.item + 1))
        with.push_back(rank_.items[old.item + 1].call_ns - rank_.items[old.first - 1].call_ns);
    }
    cost_ns_ = with.empty() ? 0 : std::max<std::int64_t>(0, LowerMedian(with) - plain_ns_);
    offset_ns_ = LowerMedian(offsets);
  }

  std::uint32_t NewCollective(std::uint32_t step, std::size_t j) const {
    return first_new_ + step * static_cast<std::uint32_t>(bytes_.size()) + static_cast<std::uint32_t>(j);
  }

  // The index of the bucket that contains the last of so many bytes.
  static std::size_t HolderOf(const std::vector<std::uint64_t>& ends, std::uint64_t bytes) {
    return static_cast<std::size_t>(std::lower_bound(ends.begin(), ends.end(), bytes) - ends.begin());
  }
  static std::vector<std::uint64_t> EndsOf(std::vector<std::uint64_t> bytes) {
    std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
    return bytes;
  }

  // Decides where each new reduction of a step goes: it replaces an old one that ends with the same gradient, or
  // follows the kernel that computes its last gradient. Old ones that are not replaced are removed.
  void Plan(std::uint32_t step) {
    std::vector<const Old*> old;
    for (std::size_t k = 0; k < buckets_.bytes.size(); ++k) {
      const std::uint32_t at = at_[buckets_.first[step] + k];
      if (at == kNone) return;
      old.push_back(&old_[at]);
    }
    const std::vector<std::uint64_t> old_ends = EndsOf(buckets_.bytes), new_ends = EndsOf(bytes_);
    std::vector<bool> kept(old.size(), false);
    for (std::size_t j = 0; j < bytes_.size(); ++j) {
      const std::uint32_t collective = NewCollective(step, j);
      made_[collective] = kNone;
      const std::size_t k = std::min(old.size() - 1, HolderOf(old_ends, new_ends[j]));
      if (old_ends[k] == new_ends[j]) {
        kept[k] = true;
        kept_as_[old[k]->item] = collective;
        continue;
      }
      // Its gradients are part of an old reduction's: their share of the kernels' time is their share of the bytes.
      const std::uint64_t before = old_ends[k] - buckets_.bytes[k];
      const double share = static_cast<double>(new_ends[j] - before) / static_cast<double>(buckets_.bytes[k]);
      const std::uint32_t ready = Within(k == 0 ? StepBegin(step) : old[k - 1]->ready, old[k]->ready, share);
      const std::uint32_t behind = ready == kNone ? old[k]->first : ready;
      added_[behind].push_back({collective, old[k]->item, ready});
      shift_[behind + 1] += cost_ns_;
    }
    for (std::size_t k = 0; k < old.size(); ++k) {
      // An item that waited for an old reduction waits for the new one that contains its last byte.
      instead_[old[k]->item] = NewCollective(step, HolderOf(new_ends, old_ends[k]));
      if (!kept[k]) Remove(*old[k]);
    }
  }

  // Removes it with the waits before it, and with the time that its launch took the thread.
  void Remove(const Old& old) {
    for (std::uint32_t i = old.first; i <= old.item; ++i) removed_.insert(i);
    if (old.item + 1 >= rank_.items.size() || old.first == 0) return;
    const std::int64_t apart_ns = rank_.items[old.item + 1].call_ns - rank_.items[old.first - 1].call_ns;
    shift_[old.item + 1] -= std::min(cost_ns_, std::max<std::int64_t>(0, apart_ns));
  }

  // The best estimate of the last kernel before the backward pass of the step: what the thread last waited for,
  // otherwise the step's first item. Gradients before the first bucket's end are computed at the rate of the following
  // ones.
  std::uint32_t StepBegin(std::uint32_t step) const {
    const std::uint32_t first = at_[buckets_.first[step]],
                        second = buckets_.bytes.size() > 1 ? at_[buckets_.first[step] + 1] : kNone;
    const std::uint32_t gate = rank_.gates[step];
    if (second == kNone || second >= old_.size() || old_[first].ready == kNone || old_[second].ready == kNone)
      return gate;
    // The kernel time per byte is that of the second bucket.
    const std::uint16_t lane = rank_.items[old_[first].ready].lane;
    std::int64_t pace = 0;
    for (std::uint32_t i = old_[first].ready + 1; i <= old_[second].ready; ++i)
      if (IsKernel(rank_.items[i]) && rank_.items[i].lane == lane) pace += Length(i);
    auto left = static_cast<std::int64_t>(static_cast<double>(pace) * static_cast<double>(buckets_.bytes[0]) /
                                          static_cast<double>(std::max<std::uint64_t>(1, buckets_.bytes[1])));
    std::uint32_t at = old_[first].ready;
    while (at > 0 && (gate == kNone || at > gate)) {
      if (IsKernel(rank_.items[at]) && rank_.items[at].lane == lane) {
        if (left <= Length(at) / 2) return at;
        left -= Length(at);
      }
      --at;
    }
    return at;
  }
  std::int64_t Length(std::uint32_t i) const { return rank_.items[i].end_ns - rank_.items[i].begin_ns; }

  // The kernel of (after, last] on last's stream at which `share` of their time is over.
  std::uint32_t Within(std::uint32_t after, std::uint32_t last, double share) const {
    if (last == kNone) return kNone;
    const std::uint32_t first = after == kNone || after >= last ? last : after + 1;
    const std::uint16_t lane = rank_.items[last].lane;
    double whole = 0, so_far = 0;
    for (std::uint32_t i = first; i <= last; ++i)
      if (IsKernel(rank_.items[i]) && rank_.items[i].lane == lane) whole += static_cast<double>(Length(i));
    for (std::uint32_t i = first; i <= last; ++i) {
      if (!IsKernel(rank_.items[i]) || rank_.items[i].lane != lane) continue;
      const auto length = static_cast<double>(Length(i));
      so_far += length;
      // Choose the kernel whose end is nearest.
      if (so_far + length / 2 > share * whole) return i;
    }
    return last;
  }

  // Writes the rank's items in their order: shifted on the host, without those removed, and with those added.
  GpuRank Rewrite() {
    out_ = rank_;
    out_.items.clear();
    moved_.assign(rank_.items.size(), kNone);
    last_of_lane_.assign(rank_.lanes.size(), kNone);
    std::int64_t shift_ns = 0;
    for (std::uint32_t i = 0; i < rank_.items.size(); ++i) {
      shift_ns += shift_[i];
      GpuItem item = Shifted(rank_.items[i], shift_ns);
      if (item.kind == GpuItem::kWait || item.kind == GpuItem::kTake) item.ref = NewItemOf(item.ref);
      if (item.kind == GpuItem::kSync) out_.syncs[item.ref].item = NewItemOf(out_.syncs[item.ref].item);
      item.after = NewItemOf(item.after);
      if (removed_.contains(i)) {
        // Items that waited for it wait for the previous item of its stream.
        moved_[i] = last_of_lane_[item.lane];
      } else if (const auto kept = kept_as_.find(i); kept != kept_as_.end()) {
        item.ref = kept->second;
        moved_[i] = made_[kept->second] = Append(item);
      } else {
        moved_[i] = Append(item);
      }
      std::int64_t call_ns = item.call_ns + offset_ns_;
      for (const New& each : added_[i]) {
        AddReduction(each, item.thread, call_ns);
        call_ns += cost_ns_;
      }
    }
    for (std::uint32_t& gate : out_.gates)
      if (gate != kNone) gate = moved_[gate];
    Order(out_);
    return std::move(out_);
  }

  static GpuItem Shifted(GpuItem item, std::int64_t shift_ns) {
    item.call_ns += shift_ns;
    // These are times of the host.
    if (item.kind == GpuItem::kSync || item.kind == GpuItem::kMpi) {
      item.begin_ns += shift_ns;
      item.end_ns += shift_ns;
    }
    if (item.kind == GpuItem::kTake && item.begin_ns != INT64_MIN) item.begin_ns += shift_ns;
    return item;
  }

  std::uint32_t Append(const GpuItem& item) {
    const auto made = static_cast<std::uint32_t>(out_.items.size());
    if (item.lane != GpuItem::kNoLane) last_of_lane_[item.lane] = made;
    out_.items.push_back(item);
    return made;
  }

  // The new item that replaces an old one.
  std::uint32_t NewItemOf(std::uint32_t old) const {
    if (old == kNone) return kNone;
    const auto at = instead_.find(old);
    if (at == instead_.end()) return moved_[old];
    const std::uint32_t made = made_.at(at->second);
    // It is not launched yet, so this is the last item of its stream.
    return made != kNone ? made : last_of_lane_[rank_.items[old].lane];
  }

  // Launches a reduction like the old one that contains its gradients, once its last gradient is ready.
  void AddReduction(const New& reduction, std::uint16_t thread, std::int64_t call_ns) {
    GpuItem made = rank_.items[reduction.like];
    made.after = kNone;
    made.delay_ns = 0;
    made.thread = thread;
    made.call_ns = call_ns;
    made.ref = reduction.collective;
    made.end_ns = made.begin_ns;
    if (reduction.ready != kNone) {
      GpuItem wait;
      wait.kind = GpuItem::kWait;
      wait.lane = made.lane;
      wait.thread = thread;
      wait.call_ns = call_ns;
      wait.ref = moved_[reduction.ready];
      out_.items[wait.ref].watched = true;
      Append(wait);
    }
    made_[reduction.collective] = Append(made);
  }

  // A thread requests nothing before what it requested earlier.
  static void Order(GpuRank& rank) {
    std::vector<std::int64_t> last(rank.threads, INT64_MIN);
    for (GpuItem& item : rank.items) {
      if (item.thread == GpuRank::kNobody) continue;
      item.call_ns = std::max(item.call_ns, last[item.thread]);
      last[item.thread] = item.call_ns;
    }
  }

  const GpuRank& rank_;
  const BucketSequence& buckets_;
  const std::vector<std::uint64_t>& bytes_;
  const std::uint32_t first_new_;
  std::vector<Old> old_;
  std::vector<std::uint32_t> at_;  // [index in buckets_.collectives]: index in old_.
  std::int64_t plain_ns_ = 0, cost_ns_ = 0, offset_ns_ = 0;
  std::vector<std::vector<New>> added_;  // After each item.
  std::vector<std::int64_t> shift_;      // The shift of the host's times from this item on.
  std::set<std::uint32_t> removed_;
  std::map<std::uint32_t, std::uint32_t> kept_as_, instead_;  // Old item to new collective.
  std::map<std::uint32_t, std::uint32_t> made_;               // New collective to its item.
  // Valid while the items are rewritten.
  GpuRank out_;
  std::vector<std::uint32_t> moved_, last_of_lane_;  // Old item to its new index; the last new item of each lane.
};

}  // namespace

std::vector<RecordedRun::Launch> GpuRun::LaunchesOfFirstRank() const {
  std::vector<Launch> launches;
  if (gpu_ranks.empty() || whole_window) return launches;
  const GpuRank& rank = gpu_ranks[0];
  auto gates = static_cast<std::uint32_t>(rank.FirstGate());  // The number that have been passed.
  for (std::size_t i = 0; i < rank.items.size(); ++i) {
    while (gates + 1 < rank.gates.size() && rank.gates[gates] == i) ++gates;
    if (rank.items[i].kind == GpuItem::kMember && !rank.EndsLastStep(i))
      launches.push_back({rank.items[i].ref, gates == 0 ? kNone : gates - 1});
  }
  return launches;
}

std::unique_ptr<RecordedRun> GpuRun::WithReductions(const BucketSequence& buckets,
                                                    const std::vector<std::uint64_t>& bytes,
                                                    std::uint32_t first_new) const {
  auto changed = std::make_unique<GpuRun>(*this);
  for (GpuRank& rank : changed->gpu_ranks) rank = GpuRankChange(rank, buckets, bytes, first_new).Make();
  return changed;
}

}  // namespace lockstep::replay
