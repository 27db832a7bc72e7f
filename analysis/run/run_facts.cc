// Describes what ran, and what is missing of it.

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "analysis/core/source.h"
#include "analysis/core_time.h"
#include "analysis/passes.h"
#include "analysis/rules/run.h"
#include "analysis/run/job_name.h"
#include "analysis/words/render.h"
#include "core/fact.h"
#include "core/loss.h"
#include "core/own_file.h"
#include "core/rules/common.h"
#include "core/shell_words.h"
#include "merge/timeline/node_cores.h"

namespace lockstep::analysis {
namespace {

// Ranks of one node on fewer cores than ranks. Files of older versions say how
// many cores a rank may use, but not which: there a mask of one core says nothing
// by itself, for the ranks' cores may differ (mpirun's default binding), and it
// takes proof that they waited for a core.
void FindSharedCores(const Context& context, RunFacts& run) {
  struct OffCpu {
    std::int64_t offcpu_ns = 0, span_ns = 0;
  };
  const auto& ranks = context.tables().ranks;
  const auto& totals = context.tables().rank_totals;
  std::map<std::string_view, OffCpu> off_cpu;
  std::map<std::int32_t, std::string_view> node_of;
  for (std::size_t p = 0; p < context.ranks().size(); ++p)
    node_of[ranks.rank[context.RankRow(p)]] = context.timeline().Text(ranks.node[context.RankRow(p)]);
  for (std::size_t i = 0; i < totals.rows(); ++i) {
    const auto at = node_of.find(totals.rank[i]);
    if (at == node_of.end() || totals.offcpu_ns[i] < 0) continue;
    off_cpu[at->second].offcpu_ns += totals.offcpu_ns[i];
    off_cpu[at->second].span_ns += SpanOf(totals, i);
  }
  for (const auto& [name, node] : merge::CoresOfNodes(context.timeline())) {
    if (node.cores == 0 || node.ranks <= node.cores) continue;
    const OffCpu& off = off_cpu[name];
    const bool proven = off.span_ns > 0 && !LittleOf(off.offcpu_ns, off.span_ns);
    if (node.cores == 1 && !node.known && !proven) continue;
    if (run.shared_cores != 0 && node.ranks * run.shared_cores <= run.ranks_sharing_cores * node.cores) continue;
    run.ranks_sharing_cores = node.ranks;
    run.shared_cores = node.cores;
  }
}

// Whether an end is another one's consequence: the launcher ends the ranks that are left.
bool EndedByLauncher(std::int32_t exit_code) { return exit_code == -SIGTERM || exit_code == 128 + SIGTERM; }

// The hosts, if these are all recorded ranks of a few hosts of several; else nothing.
Names WholeHosts(const Context& context, const std::vector<std::int32_t>& some) {
  const auto& ranks = context.tables().ranks;
  std::map<std::string_view, std::pair<std::size_t, std::size_t>>
      hosts;  // Name: how many of its ranks; how many it has.
  for (std::size_t p = 0; p < context.ranks().size(); ++p) {
    const std::size_t row = context.RankRow(p);
    auto& [of_these, all] = hosts[context.timeline().Text(ranks.node[row])];
    of_these += std::binary_search(some.begin(), some.end(), ranks.rank[row]);
    ++all;
  }
  std::vector<std::string> whole;
  for (const auto& [name, counts] : hosts) {
    if (counts.first != 0 && counts.first != counts.second) return {};
    if (counts.first != 0) whole.emplace_back(name);
  }
  if (whole.empty() || whole.size() == hosts.size() || whole.size() > rules::kHostsListed || whole.front().empty())
    return {};
  return {whole};
}

// One phrase for the ranks that ended alike, those first by which the job may have failed.
std::vector<std::string> Endings(const Context& context) {
  const auto& ranks = context.tables().ranks;
  std::map<std::pair<bool, std::int32_t>, std::vector<std::int32_t>> alike;
  for (std::size_t p = 0; p < context.ranks().size(); ++p) {
    const std::size_t row = context.RankRow(p);
    const std::int32_t code = ranks.exit_code[row];
    // The end of a rank that may still run, or whose recording ended before it did, is not known either.
    if (code == 0 || (code == schema::kNoExitCode && !ranks.ended_early[row])) continue;
    alike[{EndedByLauncher(code), code}].push_back(ranks.rank[row]);
  }
  std::vector<std::string> endings;
  std::string_view oom = FactValue(context.timeline().Meta("fact.oom_kills"), "text");
  for (auto& [how, list] : alike) {
    std::sort(list.begin(), list.end());
    const std::int32_t code = how.second;
    const bool vanished = code == schema::kNoExitCode;
    const int signal = code < 0 && !vanished ? -code : 0;
    endings.push_back(Told(vanished   ? Word::kRanksVanished
                           : code > 0 ? Word::kRanksExited
                                      : Word::kRanksKilled,
                           {{"ranks", Ranks{list}},
                            {"hosts", WholeHosts(context, list)},
                            {"code", Index{code}},
                            {"signal", Index{signal}},
                            {"signal_name", strsignal(signal)},
                            {"out_of_memory", std::string(vanished ? "" : std::exchange(oom, {}))}}));
  }
  return endings;
}

}  // namespace

void DescribeRun(const Context& context, Analysis& analysis) {
  const merge::Timeline& timeline = context.timeline();
  const auto& ranks = timeline.tables.ranks;
  RunFacts& run = analysis.run;
  analysis.run_dir = timeline.run_dir;
  run.run_id = timeline.Meta("run_id");
  run.command = timeline.Meta("command");
  run.job = JobName(run.command);
  run.classes = timeline.Meta("classes");
  run.merged_with = timeline.Meta("options");
  if (run.classes.empty()) run.classes = "lockstep";
  run.ranks = static_cast<std::int64_t>(context.ranks().size());

  std::set<std::string_view> nodes;
  for (std::size_t p = 0; p < context.ranks().size(); ++p) {
    const std::size_t row = context.RankRow(p);
    nodes.insert(timeline.Text(ranks.node[row]));
    run.gpu_ranks += ranks.gpu[row] != 0;
    if (ranks.ended_early[row]) run.ranks_ended_early.push_back(ranks.rank[row]);
  }
  run.endings = Endings(context);
  if (!nodes.contains("")) run.nodes = static_cast<std::int64_t>(nodes.size());

  std::vector<std::int32_t> missing;
  for (std::size_t row = 0; row < ranks.rows(); ++row)
    if (ranks.state[row] == schema::RankState::kMissing) missing.push_back(ranks.rank[row]);
  std::set<std::int32_t> left_out;
  for (std::size_t row = 0; row < ranks.rows(); ++row)
    if (ranks.state[row] == schema::RankState::kLeftOut) left_out.insert(ranks.rank[row]);
  run.ranks_left_out.assign(left_out.begin(), left_out.end());
  // A timeline may come from anywhere, so the number is limited to what merge accepts.
  const std::int64_t world = std::min<std::int64_t>(timeline.MetaNumber("world_size", -1), rules::kRanksCounted);
  for (std::int64_t r = 0; r < world; ++r)
    if (const auto rank = static_cast<std::int32_t>(r); context.Position(rank) == kNowhere && !left_out.contains(rank))
      missing.push_back(rank);
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  run.ranks_missing = std::move(missing);
  run.ranks_expected = std::max<std::int64_t>(world, run.ranks + static_cast<std::int64_t>(run.ranks_missing.size()));

  const auto& steps = timeline.tables.steps;
  for (const std::size_t row : context.steps()) {
    if (!context.InWindow(steps.index[row])) continue;
    if (!steps.complete[row]) {
      ++run.incomplete_steps;
      continue;
    }
    ++run.steps;
    run.warmup_steps += steps.warmup[row] != 0;
    if (!run.window.first_step) run.window.first_step = steps.index[row];
    run.window.last_step = steps.index[row];
  }
  const auto& totals = timeline.tables.rank_totals;
  for (std::size_t i = 0; i < totals.rows(); ++i)
    run.window.span_ns = std::max(run.window.span_ns.value_or(0), SpanOf(totals, i));
  FindSharedCores(context, run);
  run.cores_scarce = run.ranks_sharing_cores > 0 ||
                     WithoutCore(context).common_share(context.ranks().size()) >= rules::kCoresScarceShare;
  DescribeWindows(context, analysis);
}

namespace {
// Remedies of losses that depend on what recorded the run: those of core/loss.def are for runs of Lockstep, and for
// imports of any kind.
std::string RemedyOfLoss(const LossInfo& info, const Source& source) {
  const bool nsys = source.nsys;
  if (info.name == Info(Loss::kStepsUnmarked).name) return Rendered(ToMarkSteps(source));
  if (info.name == Info(Loss::kClockUnbounded).name && !source.imported.empty()) return Told(Word::kLossClockRemedy);
  if (info.name == Info(Loss::kImportGroupUnknown).name)
    return Told(nsys ? Word::kLossGroupRemedyNsys : Word::kLossGroupRemedy);
  return std::string(info.remedy);
}
}  // namespace

void CollectLosses(const Context& context, Analysis& analysis) {
  const merge::Timeline& timeline = context.timeline();
  const Source source = SourceOf(timeline);
  const auto& losses = timeline.tables.losses;
  for (std::size_t i = 0; i < losses.rows(); ++i) {
    LossRow row;
    row.name = timeline.Text(losses.name[i]);
    row.rank = losses.rank[i];
    row.count = losses.count[i];
    row.detail = timeline.Text(losses.detail[i]);
    if (const LossInfo* info = FindLoss(row.name)) {
      row.data_loss = info->severity == Severity::kDataLoss;
      row.sentence = info->sentence;
      row.remedy = RemedyOfLoss(*info, source);
    } else {
      row.sentence = Told(Word::kLossUnknown);
      row.remedy = Told(Word::kLossUnknownRemedy);
    }
    if (row.count > 0) analysis.losses.push_back(std::move(row));
  }
  std::stable_sort(analysis.losses.begin(), analysis.losses.end(), [](const LossRow& a, const LossRow& b) {
    if (a.data_loss != b.data_loss) return a.data_loss;
    if (a.name != b.name) return a.name < b.name;
    return a.rank != b.rank ? a.rank < b.rank : a.detail < b.detail;
  });
}

}  // namespace lockstep::analysis
