#include "analysis/replay/questions/more_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/core/statistics.h"
#include "analysis/rules/replay.h"

namespace lockstep::replay {
namespace {

class Grower {
 public:
  Grower(const RecordedRun& run, const CostModel& costs, std::size_t ranks, LatencyGrowth growth, std::uint64_t seed)
      : run_(run), line_(costs.AlphaBeta()), from_(run.ranks.size()), to_(ranks), growth_(growth), random_(seed) {}

  Result<Job> Grow() {
    if (from_ < 2)
      return Error{ErrorCode::kUnsupported, "a run of one rank has no communication to extrapolate", "--ranks", ""};
    if (to_ < from_)
      return Error{ErrorCode::kUsage, fmt::format("the run has {} ranks already", from_), "--ranks",
                   "more ranks are predicted, fewer are not"};
    const Job job = run_.MakeJob();
    if (static_cast<double>(job.operations.size()) * static_cast<double>(to_) / static_cast<double>(from_) >
        rules::kMoreRanksMostOperations)
      return Error{ErrorCode::kUnsupported, fmt::format("{} ranks are more than can be replayed here", to_), "--ranks",
                   "ask for fewer, or record fewer steps"};
    for (const Graph::Need& need : job.graph.needs())
      blocks_ |= job.operations[need.earlier].rank != job.operations[need.operation].rank;
    for (const RunCollective& c : run_.collectives) blocks_ |= c.members < from_;
    if (blocks_ && to_ % from_ != 0)
      return Error{ErrorCode::kUnsupported, "groups of ranks and messages are repeated as a whole", "--ranks",
                   fmt::format("ask for a multiple of {}", from_)};
    DrawDeviations(job);
    for (std::uint32_t r = 0; r < to_; ++r) AddRank(job, r);
    return std::move(grown_);
  }

 private:
  // The logarithm of a rank's work in a step relative to the median rank's.
  void DrawDeviations(const Job& job) {
    std::vector<std::vector<double>> work(run_.steps.size(), std::vector<double>(from_, 0));
    for (std::size_t i = 0; i < job.operations.size(); ++i) {
      const JobOperation& about = job.operations[i];
      if (about.step < work.size() && about.rank < from_ && Works(job, i))
        work[about.step][about.rank] += static_cast<double>(job.graph.operations()[i].duration_ns);
    }
    std::vector<double> pool;
    own_.assign(run_.steps.size(), std::vector<double>(from_, 0));
    for (std::size_t s = 0; s < work.size(); ++s) {
      const double middle = LowerMedian(work[s]);
      for (std::size_t r = 0; r < from_; ++r) {
        if (middle <= 0 || work[s][r] <= 0) continue;
        own_[s][r] = std::log(work[s][r] / middle);
        pool.push_back(own_[s][r]);
      }
    }
    drawn_.assign(run_.steps.size(), std::vector<double>(to_, 0));
    if (pool.empty()) return;
    for (auto& step : drawn_)
      for (double& each : step) each = pool[random_.Below(pool.size())];
  }

  static bool Works(const Job& job, std::size_t i) {
    return job.operations[i].role == Role::kWork || job.graph.operations()[i].activity == Activity::kCompute;
  }

  double Retimed(const RunCollective& c) const {
    if (c.members < from_) return 1;
    const auto n = static_cast<double>(from_), more = static_cast<double>(to_);
    const double bytes = static_cast<double>(c.bytes);
    const double alpha = line_ ? line_->alpha_ns : 0, beta = line_ ? line_->beta_ns_per_byte * bytes : bytes;
    const double hops =
        growth_ == LatencyGrowth::kRing ? (more - 1) / (n - 1) : std::log2(more) / std::max(1.0, std::log2(n));
    const double share = ((more - 1) / more) / ((n - 1) / n);
    return alpha + beta > 0 ? (alpha * hops + beta * share) / (alpha + beta) : hops;
  }

  void AddRank(const Job& job, std::uint32_t rank) {
    const auto model = static_cast<std::uint32_t>(rank % from_);
    if (model == 0) {
      made_.assign(job.operations.size(), kNone);
      lanes_.clear();
      groups_.clear();
    }
    for (std::uint32_t i = 0; i < job.operations.size(); ++i) {
      const JobOperation& about = job.operations[i];
      if (about.rank != model) continue;
      Operation operation = job.graph.operations()[i];
      if (operation.lane != kNone) {
        const auto [at, fresh] = lanes_.try_emplace(operation.lane, 0);
        if (fresh) at->second = grown_.graph.AddLane(job.graph.queued_lanes()[operation.lane]);
        operation.lane = at->second;
      }
      if (operation.collective != kNone) {
        const RunCollective& c = run_.collectives[about.collective];
        auto& known = c.members < from_ ? groups_ : everyones_;
        const auto [at, fresh] = known.try_emplace(operation.collective, 0);
        if (fresh) at->second = grown_.graph.AddCollective();
        operation.collective = at->second;
      }
      if (about.role == Role::kMember || about.role == Role::kExit)
        operation.duration_ns =
            std::llround(static_cast<double>(operation.duration_ns) *
                         (about.collective == kNone ? 1 : Retimed(run_.collectives[about.collective])));
      else if (Works(job, i) && about.step < own_.size())
        operation.duration_ns = std::llround(static_cast<double>(operation.duration_ns) *
                                             std::exp(drawn_[about.step][rank] - own_[about.step][model]));
      operation.rank = static_cast<std::int32_t>(rank);
      operation.enqueues = operation.peers = kNone;
      made_[i] = grown_.graph.Add(operation);
      JobOperation copy = about;
      copy.rank = rank;
      grown_.operations.push_back(copy);
    }
    for (std::uint32_t i = 0; i < job.operations.size(); ++i)
      if (job.operations[i].rank == model && job.graph.operations()[i].enqueues != kNone)
        grown_.graph.operations()[made_[i]].enqueues = made_[job.graph.operations()[i].enqueues];
    if (rank == 0) grown_.step_ends.assign(run_.steps.size(), std::vector<std::uint32_t>(to_, kNone));
    grown_.starts.push_back(made_[job.starts[model]]);
    for (std::size_t s = 0; s < job.step_ends.size(); ++s)
      if (job.step_ends[s][model] != kNone) grown_.step_ends[s][rank] = made_[job.step_ends[s][model]];
    // After the block is complete; without messages between ranks a part of one suffices.
    if (model + 1 != from_ && rank + 1 != to_) return;
    AddPeers(job.graph);
    for (const Graph::Need& need : job.graph.needs())
      if (made_[need.earlier] != kNone && made_[need.operation] != kNone)
        grown_.graph.Needs(made_[need.operation], made_[need.earlier], need.lag_ns);
  }

  // Those of the ranks that were made last wait for each other as their models do.
  void AddPeers(const Graph& graph) {
    std::vector<std::uint32_t> sets(graph.peer_sets()), peers;
    for (std::uint32_t set = 0; set < sets.size(); ++set) {
      peers.clear();
      for (const std::uint32_t peer : graph.PeersOf(set))
        if (made_[peer] != kNone) peers.push_back(made_[peer]);
      const std::uint32_t also = graph.AlsoOf(set);
      sets[set] = grown_.graph.AddPeers(peers, also == kNone ? kNone : sets[also]);
    }
    for (std::uint32_t i = 0; i < made_.size(); ++i)
      if (const std::uint32_t set = graph.operations()[i].peers; set != kNone && made_[i] != kNone)
        grown_.graph.WaitsFor(made_[i], sets[set]);
  }

  const RecordedRun& run_;
  const std::optional<CostModel::Line> line_;
  const std::size_t from_, to_;
  const LatencyGrowth growth_;
  analysis::SeededRandom random_;
  bool blocks_ = false;
  std::vector<std::vector<double>> own_, drawn_;  // [step][rank]
  Job grown_;
  // For the block that is being added: the copies of the recorded operations.
  std::vector<std::uint32_t> made_;
  std::map<std::uint32_t, std::uint32_t> lanes_, groups_, everyones_;
};

}  // namespace

Result<Job> WithMoreRanks(const RecordedRun& run, const CostModel& costs, std::size_t ranks, LatencyGrowth growth,
                          std::uint64_t seed) {
  return Grower(run, costs, ranks, growth, seed).Grow();
}

}  // namespace lockstep::replay
