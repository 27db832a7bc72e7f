#include "analysis/replay/gpu/gpu_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "analysis/replay/graph/read_run.h"
#include "core/rules/common.h"
#include "merge/timeline/totals_row.h"

namespace lockstep::replay {
namespace {

class GpuReader {
 public:
  GpuReader(const merge::Timeline& timeline, const ReadRunOptions& options)
      : timeline_(timeline), t_(timeline.tables), options_(options) {}

  Result<GpuRun> Read() {
    LS_CHECK(ChooseRanksAndSteps(timeline_, options_, run_));
    if (run_.steps.empty())
      return Error{ErrorCode::kUnsupported, "nothing to replay: no GPU work was recorded", timeline_.run_dir,
                   "record with the GPU's source on: without lockstep run --gpu off"};
    chosen_.resize(run_.ranks.size());
    // Work that is launched in a step may begin in the next one.
    ChooseCollectives(timeline_, 1, run_, [&](std::size_t row, std::uint32_t position) {
      const auto& m = t_.collective_ranks;
      for (std::size_t k = timeline_.FirstMember(row); k < timeline_.FirstMember(row + 1); ++k)
        chosen_[run_.PositionOf(m.rank[k])].push_back({m.row[k], position});
    });
    for (auto& rank : chosen_) std::sort(rank.begin(), rank.end());
    LS_CHECK(Distill());
    Settle();
    MatchMessages();
    Describe();
    return std::move(run_);
  }

 private:
  Status Distill() {
    std::vector<std::size_t> rows;
    if (!run_.whole_window) {
      LS_TRY(rows, StepRows(timeline_, run_));
    }
    run_.gpu_ranks.resize(run_.ranks.size());
    return ReadRanks(
        timeline_, options_, run_,
        [&](std::size_t r, const schema::RankTables& tables, const merge::ClockMap& clock) {
          GpuRankRequest request;
          request.collectives = chosen_[r];
          request.clock_slack_ns =
              std::max(rules::kGpuClockSlackNs, timeline_.MetaNumber("gpu_clock_contradicts_ns", 0));
          const std::size_t steps = run_.steps.size();
          const schema::TlRankTotals& totals = t_.rank_totals;
          if (const std::size_t row = merge::TotalsRow(totals, run_.ranks[r]); rows.empty() && row < totals.rows())
            request.whole = {totals.begin_ns[row], totals.end_ns[row]};
          for (std::size_t s = 0; s < steps && !rows.empty(); ++s)
            request.bounds_ns.push_back(t_.step_ranks.begin_ns[rows[r * steps + s]]);
          if (!rows.empty()) request.bounds_ns.push_back(t_.step_ranks.end_ns[rows[(r + 1) * steps - 1]]);
          for (std::size_t mark = 0; mark < tables.steps.rows() && !rows.empty(); ++mark)
            if (tables.steps.index[mark] == run_.steps.back()) request.launched_before_ns = tables.steps.end_ns[mark];
          run_.gpu_ranks[r] = DistillGpuRank(tables, clock, request);
        },
        [&](std::size_t r) -> StepsOfRank {
          const std::size_t steps = run_.steps.size();
          if (rows.empty()) return {};
          return {{t_.step_ranks.begin_ns[rows[r * steps]], t_.step_ranks.end_ns[rows[(r + 1) * steps - 1]]}, steps};
        });
  }

  std::uint32_t Joint(std::uint32_t collective) {
    while (joint_[collective] != collective) collective = joint_[collective] = joint_[joint_[collective]];
    return collective;
  }

  // Only collectives whose members are all among the items are replayed; those that share kernels are combined.
  void Settle() {
    joint_.resize(run_.collectives.size());
    std::iota(joint_.begin(), joint_.end(), 0);
    for (const GpuRank& rank : run_.gpu_ranks)
      for (const auto& [a, b] : rank.same_kernel) joint_[std::max(Joint(a), Joint(b))] = std::min(Joint(a), Joint(b));
    std::vector<std::set<std::size_t>> members(joint_.size());
    for (std::size_t r = 0; r < chosen_.size(); ++r)
      for (const auto& [row, collective] : chosen_[r]) members[Joint(collective)].insert(r);
    std::vector<std::size_t> placed(joint_.size(), 0);
    const auto each_member = [&](auto&& f) {
      for (GpuRank& rank : run_.gpu_ranks)
        for (std::size_t i = 0; i < rank.items.size(); ++i) {
          GpuItem& item = rank.items[i];
          // Only the begin of the kernel after the last step is used.
          const bool behind = rank.EndsLastStep(i);
          if (item.kind == GpuItem::kMember || item.kind == GpuItem::kMpi) f(item, behind);
        }
    };
    each_member([&](const GpuItem& item, bool behind) { placed[Joint(item.ref)] += !behind; });
    std::vector<std::uint32_t> number(joint_.size(), kNone);
    std::vector<RunCollective> kept;
    for (std::uint32_t c = 0; c < joint_.size(); ++c) {
      const std::uint32_t joint = Joint(c);
      if (placed[joint] == 0) continue;
      if (placed[joint] != members[joint].size()) {
        run_.left_out += joint == c;
        continue;
      }
      if (joint == c) {
        number[c] = static_cast<std::uint32_t>(kept.size());
        kept.push_back(run_.collectives[c]);
      } else {
        kept[number[joint]].bytes += run_.collectives[c].bytes;
      }
    }
    each_member([&](GpuItem& item, bool) {
      item.ref = number[Joint(item.ref)];
      if (item.ref == kNone) item.kind = GpuItem::kFixed;  // On the host: a call with its recorded duration.
    });
    run_.collectives = std::move(kept);
  }

  // Messages whose other end is in the replay become a collective of two ranks.
  void MatchMessages() {
    using Key = std::tuple<std::uint64_t, std::int32_t, std::int32_t, std::int32_t, std::uint64_t>;
    // Messages whose other end is not found yet: the collective, and whether it is the send.
    std::map<Key, std::pair<std::uint32_t, bool>> open;
    run_.of_message.resize(run_.ranks.size());
    for (std::size_t r = 0; r < run_.gpu_ranks.size(); ++r) {
      GpuRank& rank = run_.gpu_ranks[r];
      run_.of_message[r].assign(rank.messages.size(), kNone);
      for (std::uint32_t i = 0; i < rank.items.size(); ++i) {
        if (rank.items[i].kind != GpuItem::kMessages || rank.EndsLastStep(i)) continue;
        const std::uint32_t kernel = rank.messages[rank.items[i].ref].item;
        for (std::uint32_t m = rank.items[i].ref; m < rank.messages.size() && rank.messages[m].item == kernel; ++m) {
          const GpuMessage& message = rank.messages[m];
          const Key key{message.comm, message.source, message.destination, message.tag, message.seq};
          const auto other = open.find(key);
          if (other != open.end() && other->second.second != message.send) {
            run_.of_message[r][m] = other->second.first;
            ++run_.collectives[other->second.first].members;
            open.erase(other);
            continue;
          }
          run_.of_message[r][m] = static_cast<std::uint32_t>(run_.collectives.size());
          open[key] = {run_.of_message[r][m], message.send};
          run_.collectives.push_back({kNone, message.comm, CollectiveKind::kSendRecv, message.bytes, 1});
        }
      }
    }
  }

  void Describe() {
    GpuResiduals sum;
    for (const GpuRank& rank : run_.gpu_ranks) {
      const GpuResiduals& each = rank.residuals;
      sum.operations += each.operations;
      sum.negative += each.negative;
      sum.dropped_waits += each.dropped_waits;
      sum.guessed_waits += each.guessed_waits;
      sum.unlaunched += each.unlaunched;
      sum.after_launch_ns += each.after_launch_ns;
      sum.after_stream_ns += each.after_stream_ns;
      sum.after_wait_ns += each.after_wait_ns;
    }
    const auto note = [&](std::string text) { run_.notes.push_back(std::move(text)); };
    if (sum.unlaunched > 0)
      note(fmt::format(
          "{} of {} GPU operations have no launching call: their distance to the previous operation is kept",
          sum.unlaunched, sum.operations));
    if (sum.guessed_waits > 0)
      note(fmt::format("the trace does not contain what streams waited for: {} waits were inferred from times",
                       sum.guessed_waits));
    if (sum.negative > 0)
      note(fmt::format("{} of {} GPU operations began before the operation that they should have waited for",
                       sum.negative, sum.operations));
    if (sum.dropped_waits > 0)
      note(fmt::format("{} recorded waits of streams contradict the times and are left out", sum.dropped_waits));
    const std::int64_t gaps = sum.after_launch_ns + sum.after_stream_ns + sum.after_wait_ns;
    const double steps = static_cast<double>(run_.steps.size() * std::max<std::size_t>(1, run_.ranks.size()));
    std::vector<std::int64_t> lengths = run_.measured_step_ns;
    std::sort(lengths.begin(), lengths.end());
    if (static_cast<double>(gaps) / steps > rules::kWorthShare * static_cast<double>(lengths[lengths.size() / 2]))
      note(fmt::format(
          "unexplained before GPU operations, per rank and step: {:.1f} us after launches, {:.1f} us between "
          "neighbours on a stream, {:.1f} us after waits; kept as recorded",
          static_cast<double>(sum.after_launch_ns) / 1e3 / steps,
          static_cast<double>(sum.after_stream_ns) / 1e3 / steps,
          static_cast<double>(sum.after_wait_ns) / 1e3 / steps));
    if (run_.left_out > 0)
      note(fmt::format("collectives that lack members: {}; their recorded durations are kept", run_.left_out));
  }

  const merge::Timeline& timeline_;
  const schema::TimelineTables& t_;
  const ReadRunOptions& options_;
  GpuRun run_;
  std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> chosen_;  // Per rank: row and collective.
  std::vector<std::uint32_t> joint_;
};

}  // namespace

Result<GpuRun> ReadGpuRun(const merge::Timeline& timeline, const ReadRunOptions& options) {
  return GpuReader(timeline, options).Read();
}

}  // namespace lockstep::replay
