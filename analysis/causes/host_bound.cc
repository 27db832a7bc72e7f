// Exposed communication is not always a cost: a job whose GPU waits for its host gains nothing from hiding it. The part
// of it on the ranks' critical paths is an upper bound of the gain.

#include "analysis/causes/cause.h"

namespace lockstep::analysis {
namespace {

struct OnPath {
  RankCost communication;
  void Add(OnPath&& next) { communication.Add(std::move(next.communication)); }
};

class HostBoundComm : public CauseOf<OnPath> {
 public:
  std::optional<OnPath> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    OnPath on_path{RankCost::OfPaths(events)};
    for (std::size_t p = 0; p < events.paths().size(); ++p)
      for (const gpu::CriticalPathFinder::Share& share : events.path_finder().Shares(events.paths()[p].path))
        if (share.category == gpu::PathCategory::kCommunication) on_path.communication.ns[p] += share.ns;
    return on_path;
  }

  void Report(const Context& context, Analysis& analysis) override {
    std::vector<RankCost> costs;
    for (const OnPath* one : found()) costs.push_back(one->communication);
    if (costs.empty()) return;
    const Cost cost = CostOf(costs, analysis.summary.terms.Sum(), context.options().seed);
    analysis.comm_on_path_ns = cost.ns;
  }
};

}  // namespace

std::unique_ptr<Cause> MakeHostBoundComm() { return std::make_unique<HostBoundComm>(); }

}  // namespace lockstep::analysis
