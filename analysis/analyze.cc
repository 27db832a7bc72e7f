#include "analysis/analyze.h"

#include "analysis/analyze_with.h"
#include "analysis/passes.h"

namespace lockstep::analysis {
namespace {

Status CheckTables(const merge::Timeline& timeline) {
  const auto& t = timeline.tables;
  const auto broken = [&](const char* what) {
    return Error{ErrorCode::kMalformed, std::string("the timeline contradicts itself: ") + what,
                 timeline.run_dir + "/timeline.h5", "remove timeline.h5 and analyse again; the file is then rebuilt"};
  };
  if (timeline.first_member.size() != t.collectives.rows() + 1 ||
      timeline.first_member.back() != t.collective_ranks.rows())
    return broken("members of collectives and collectives do not agree");
  for (std::size_t c = 0; c + 1 < timeline.first_member.size(); ++c)
    for (std::size_t m = timeline.first_member[c]; m < timeline.first_member[c + 1]; ++m)
      if (t.collective_ranks.collective[m] != c) return broken("members are not sorted by collective");
  return Ok();
}

}  // namespace

Result<Analysis> AnalyzeWith(const merge::Timeline& timeline, const AnalyzeOptions& options,
                             const std::function<void(const Context&, const Analysis&)>& then) {
  LS_CHECK(CheckTables(timeline));
  Analysis analysis;
  const Context context(timeline, options);
  RunPasses(context, analysis);
  if (then) then(context, analysis);
  return analysis;
}

Result<Analysis> Analyze(const merge::Timeline& timeline, const AnalyzeOptions& options) {
  return AnalyzeWith(timeline, options, nullptr);
}

bool IncompleteInput(const merge::Timeline& timeline) {
  const AnalyzeOptions options;
  const Context context(timeline, options);
  Analysis analysis;
  DescribeRun(context, analysis);
  AssessTrust(context, analysis);
  CollectLosses(context, analysis);
  return analysis.incomplete();
}

}  // namespace lockstep::analysis
