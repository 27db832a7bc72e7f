// Another bucketing of a GPU run: its ranks' items without the old reductions and with others.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/core/statistics.h"
#include "analysis/replay/gpu/gpu_run.h"

namespace lockstep::replay {
namespace {

// A reduction of the recorded run with what belongs to it on one rank.
struct Old {
  std::uint32_t item, first;    // From `first` on: the waits of its stream before it.
  std::uint32_t ready = kNone;  // The last kernel that its gradients come from.
};

class RankChange {
 public:
  RankChange(const GpuRank& rank, const BucketSequence& buckets, const std::vector<std::uint64_t>& bytes,
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
    std::uint32_t collective, like;  // Of the run; the old item that it takes after.
    std::uint32_t ready;
  };

  static bool IsKernel(const GpuItem& item) { return item.kind == GpuItem::kKernel; }

  void FindOld() {
    std::map<std::uint32_t, std::uint32_t> place;
    for (std::uint32_t i = 0; i < buckets_.collectives.size(); ++i) place[buckets_.collectives[i]] = i;
    at_.assign(buckets_.collectives.size(), kNone);
    std::map<std::uint16_t, std::uint32_t> last_kernel;  // Per device, of any stream that computes.
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

  // What a launch costs its thread: how much further two kernels' launches are from each other with it between them.
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

  void Plan(std::uint32_t step) {
    const std::size_t n = buckets_.bytes.size();
    std::vector<const Old*> old;
    for (std::size_t k = 0; k < n; ++k) {
      const std::uint32_t at = at_[buckets_.first[step] + k];
      if (at == kNone) return;
      old.push_back(&old_[at]);
    }
    std::vector<bool> kept(n, false);
    std::uint64_t done = 0, before = 0;  // New ones' bytes; old ones' before the k-th.
    std::size_t k = 0;
    std::vector<std::uint64_t> ends;  // Of the new ones.
    for (std::size_t j = 0; j < bytes_.size(); ++j) {
      done += bytes_[j];
      ends.push_back(done);
      const std::uint32_t collective =
          first_new_ + step * static_cast<std::uint32_t>(bytes_.size()) + static_cast<std::uint32_t>(j);
      while (k + 1 < n && before + buckets_.bytes[k] < done) before += buckets_.bytes[k++];
      if (before + buckets_.bytes[k] == done) {
        kept[k] = true;
        kept_as_[old[k]->item] = collective;
      } else {
        // Its gradients are some of an old one's: their kernels are taken for as long as they are many.
        const double share = static_cast<double>(done - before) / static_cast<double>(buckets_.bytes[k]);
        const std::uint32_t ready = Within(k == 0 ? StepBegin(step) : old[k - 1]->ready, old[k]->ready, share);
        const std::uint32_t behind = ready == kNone ? old[k]->first : ready;
        added_[behind].push_back({collective, old[k]->item, ready});
        shift_[behind + 1] += cost_ns_;
      }
      made_[collective] = kNone;
    }
    for (std::size_t i = 0; i < n; ++i) {
      // Who waited for an old one waits for what carries its last byte.
      std::uint64_t end = 0;
      for (std::size_t m = 0; m <= i; ++m) end += buckets_.bytes[m];
      const auto carries = std::lower_bound(ends.begin(), ends.end(), end) - ends.begin();
      instead_[old[i]->item] =
          first_new_ + step * static_cast<std::uint32_t>(bytes_.size()) + static_cast<std::uint32_t>(carries);
      if (kept[i]) continue;
      for (std::uint32_t m = old[i]->first; m <= old[i]->item; ++m) removed_.insert(m);
      if (old[i]->item + 1 < rank_.items.size() && old[i]->first > 0)
        shift_[old[i]->item + 1] -= std::min(
            cost_ns_,
            std::max<std::int64_t>(0, rank_.items[old[i]->item + 1].call_ns - rank_.items[old[i]->first - 1].call_ns));
    }
  }

  // The last kernel before the backward pass of the step, for all that is known: what the thread last waited for, else
  // the step's first item. Gradients before the first bucket's end come at the pace of what follows.
  std::uint32_t StepBegin(std::uint32_t step) const {
    const std::uint32_t first = at_[buckets_.first[step]],
                        second = buckets_.bytes.size() > 1 ? at_[buckets_.first[step] + 1] : kNone;
    const std::uint32_t gate = rank_.gates[step];
    if (second == kNone || second >= old_.size() || old_[first].ready == kNone || old_[second].ready == kNone)
      return gate;
    // As many ns of kernels per byte as in the second bucket.
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
      // Whose end is nearest.
      if (so_far + length / 2 > share * whole) return i;
    }
    return last;
  }

  GpuRank Rewrite() {
    GpuRank out = rank_;
    out.items.clear();
    std::vector<std::uint32_t> moved(rank_.items.size(), kNone), last_of_lane(rank_.lanes.size(), kNone);
    std::int64_t shift = 0;
    const auto put = [&](GpuItem item) {
      if (item.lane != GpuItem::kNoLane) last_of_lane[item.lane] = static_cast<std::uint32_t>(out.items.size());
      out.items.push_back(item);
      return static_cast<std::uint32_t>(out.items.size() - 1);
    };
    const auto map = [&](std::uint32_t old) {
      if (old == kNone) return kNone;
      if (const auto at = instead_.find(old); at != instead_.end()) {
        const std::uint32_t made = made_.at(at->second);
        // Not launched yet: whatever its stream does last.
        return made != kNone ? made : last_of_lane[rank_.items[old].lane];
      }
      return moved[old];
    };
    for (std::uint32_t i = 0; i < rank_.items.size(); ++i) {
      shift += shift_[i];
      GpuItem item = rank_.items[i];
      item.call_ns += shift;
      if (item.kind == GpuItem::kSync || item.kind == GpuItem::kMpi) {
        item.begin_ns += shift;
        item.end_ns += shift;
      }
      if (item.kind == GpuItem::kTake && item.begin_ns != INT64_MIN) item.begin_ns += shift;
      if (item.kind == GpuItem::kWait || item.kind == GpuItem::kTake) item.ref = map(item.ref);
      if (item.kind == GpuItem::kSync) out.syncs[item.ref].item = map(out.syncs[item.ref].item);
      item.after = map(item.after);
      if (removed_.contains(i)) {
        // Waits for it wait for what is before it on its stream.
        moved[i] = last_of_lane[item.lane];
      } else {
        if (const auto kept = kept_as_.find(i); kept != kept_as_.end()) item.ref = kept->second;
        moved[i] = put(item);
        if (const auto kept = kept_as_.find(i); kept != kept_as_.end()) made_[kept->second] = moved[i];
      }
      std::int64_t later = 0;
      for (const New& each : added_[i]) {
        const GpuItem& like = rank_.items[each.like];
        GpuItem made = like;
        made.after = kNone;
        made.delay_ns = 0;
        made.thread = item.thread;
        made.call_ns = item.call_ns + offset_ns_ + later;
        made.ref = each.collective;
        made.end_ns = made.begin_ns;
        later += cost_ns_;
        if (each.ready != kNone) {
          GpuItem wait;
          wait.kind = GpuItem::kWait;
          wait.lane = like.lane;
          wait.thread = item.thread;
          wait.call_ns = made.call_ns;
          wait.ref = moved[each.ready];
          out.items[wait.ref].watched = true;
          put(wait);
        }
        made_[each.collective] = put(made);
      }
    }
    for (std::uint32_t& gate : out.gates)
      if (gate != kNone) gate = moved[gate];
    Order(out);
    return out;
  }

  // Nobody asks for something before what he asked for earlier.
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
  std::vector<std::uint32_t> at_;  // [place in buckets_.collectives]: of old_.
  std::int64_t plain_ns_ = 0, cost_ns_ = 0, offset_ns_ = 0;
  std::vector<std::vector<New>> added_;  // Behind each item.
  std::vector<std::int64_t> shift_;      // Of the host's times from this item on.
  std::set<std::uint32_t> removed_;
  std::map<std::uint32_t, std::uint32_t> kept_as_, instead_;  // Old item -> new collective.
  std::map<std::uint32_t, std::uint32_t> made_;               // New collective -> its item.
};

}  // namespace

std::optional<BucketSequence> GpuRun::FindBuckets() const {
  if (gpu_ranks.empty() || whole_window) return std::nullopt;
  // On the first rank, per communicator and step, in the order in which they are launched.
  const GpuRank& rank = gpu_ranks[0];
  const auto reduces = [&](std::size_t i) {
    const GpuItem& item = rank.items[i];
    if (item.kind != GpuItem::kMember || rank.EndsLastStep(i)) return false;
    const RunCollective& c = this->collectives[item.ref];
    return c.kind == CollectiveKind::kAllReduce && c.members == ranks.size() && c.bytes > 0;
  };
  std::map<std::uint64_t, std::uint64_t> carried;
  for (std::size_t i = 0; i < rank.items.size(); ++i)
    if (reduces(i)) carried[this->collectives[rank.items[i].ref].comm] += this->collectives[rank.items[i].ref].bytes;
  if (carried.empty()) return std::nullopt;
  const std::uint64_t comm = std::max_element(carried.begin(), carried.end(), [](const auto& a, const auto& b) {
                               return a.second < b.second;
                             })->first;
  BucketSequence buckets;
  buckets.comm = comm;
  std::vector<std::uint64_t> bytes;
  std::size_t gate = 0;
  const auto close = [&] {
    if (buckets.first.size() == 1) buckets.bytes = bytes;
    const bool alike = !bytes.empty() && bytes == buckets.bytes;
    bytes.clear();
    return alike;
  };
  for (std::size_t i = 0; i < rank.items.size(); ++i) {
    for (; gate + 1 < rank.gates.size() && rank.gates[gate] == i; ++gate) {
      if (gate > 0 && !close()) return std::nullopt;
      buckets.first.push_back(static_cast<std::uint32_t>(buckets.collectives.size()));
    }
    if (!reduces(i) || this->collectives[rank.items[i].ref].comm != comm || gate == 0) continue;
    bytes.push_back(this->collectives[rank.items[i].ref].bytes);
    buckets.collectives.push_back(rank.items[i].ref);
  }
  if (!close() || buckets.first.size() != steps.size()) return std::nullopt;
  return buckets;
}

Result<std::unique_ptr<RecordedRun>> GpuRun::Rebucket(const BucketSequence& buckets,
                                                      const std::vector<std::uint64_t>& bytes, const CostModel& costs,
                                                      const ReductionTimes& times) const {
  auto changed = std::make_unique<GpuRun>(*this);
  const auto first_new = static_cast<std::uint32_t>(collectives.size());
  LS_TRY(const std::vector<RunCollective> reductions,
         NewReductions(buckets, bytes, costs, times, ranks.size(),
                       "record steps whose reductions do not all take no time"));
  changed->collectives.insert(changed->collectives.end(), reductions.begin(), reductions.end());
  for (std::size_t r = 0; r < gpu_ranks.size(); ++r)
    changed->gpu_ranks[r] = RankChange(gpu_ranks[r], buckets, bytes, first_new).Make();
  return std::unique_ptr<RecordedRun>(std::move(changed));
}

}  // namespace lockstep::replay
