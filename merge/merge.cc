#include "merge/merge.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "core/collective.h"
#include "core/rules/common.h"
#include "core/version.h"
#include "merge/clock/align.h"
#include "merge/fresh.h"
#include "merge/match/clock_bounds.h"
#include "merge/match/collectives.h"
#include "merge/match/order.h"
#include "merge/match/p2p.h"
#include "merge/match/p2p_waits.h"
#include "merge/pack.h"
#include "merge/parallel.h"
#include "merge/readers/outcome.h"
#include "merge/readers/run_files.h"
#include "merge/release.h"
#include "merge/rules/match.h"
#include "merge/saturated.h"
#include "merge/shards.h"
#include "merge/steps/steps.h"
#include "merge/timeline/assemble.h"
#include "merge/timeline/rank_pass.h"
#include "merge/timeline/step_rows.h"
#include "merge/windows/windows.h"
#include "trace/file/table_file.h"

namespace lockstep::merge {
namespace fs = std::filesystem;
namespace {

class Merger {
 public:
  explicit Merger(const MergeOptions& options) : options_(options) {}

  Result<schema::TimelineTables> Run() {
    Progress("read", 0);
    // Taken before anything is read: if a file changes or appears meanwhile, the result counts as an old timeline.
    inputs_ = InputsHash(options_.run_dir);
    LS_TRY(run_, OpenRun(
                     options_.run_dir, options_.jobs,
                     [&](double done) { Progress("read", rules::kProgressAlignFrom * done); }, options_.team));
    for (const RunRank& rank : run_.ranks) AddFileLosses(rank, run_.losses);
    for (RunLoss& loss : NumberCollectives(run_.ranks, options_.jobs)) run_.losses.push_back(std::move(loss));
    Progress("align", rules::kProgressAlignFrom);
    LS_CHECK(Align());
    LeaveOut();
    Windows();
    Progress("match", rules::kProgressMatchFrom);
    matched_ = MatchCollectives(ranks_, run_.missing.size() + run_.left_out.size(), options_.jobs);
    p2p_ = MatchP2p(ranks_, options_.jobs);
    steps_ = FindSteps(ranks_, matched_);
    windows_ = CommonWindows(ranks_, steps_);
    LS_CHECK(ChooseSteps());
    p2p_waits_ = FindP2pWaits(ranks_, p2p_, cluster_window_, options_.jobs);
    Pass();
    checks_ = FinishCollectives(matched_, options_.jobs);
    return Assemble();
  }

 private:
  void Progress(std::string_view phase, double done) const {
    if (options_.progress) options_.progress(phase, done);
  }

  Status Align() {
    std::vector<AlignRank> align(run_.ranks.size());
    bool one_domain = true;
    for (std::size_t r = 0; r < align.size(); ++r) {
      const schema::RankTables& head = run_.ranks[r].head;
      const Interval span = CapturedSpan(head);
      align[r].rank = run_.ranks[r].rank;
      align[r].domain = ingest::MetaValue(head, "clock_domain");
      align[r].bursts = &head.clock_bursts;
      align[r].snapshots = &head.clock_snapshots;
      align[r].imported = !ingest::MetaValue(head, "imported").empty();
      align[r].begin_ns = span.begin;
      align[r].end_ns = span.end;
      one_domain &= !align[r].domain.empty() && align[r].domain == align[0].domain;
    }
    // Ranks that share a clock need no bounds; matching checks them all the same.
    if (!one_domain && options_.clock != ClockChoice::kOff)
      ParallelFor(options_.jobs, align.size(),
                  [&](std::size_t r) { align[r].collectives = BoundsOf(run_.ranks[r].head); });
    LS_TRY(aligned_, AlignClocks(align, options_.clock, options_.jobs));
    for (const AlignLoss& loss : aligned_.losses)
      run_.losses.push_back(MakeLoss(loss.rank, loss.loss, loss.count, loss.detail));
    NoteUnmeasuredClocks();
    AddGpuClocks();
    for (RunRank& rank : run_.ranks) rank.head.clock_bursts = {}, rank.head.clock_snapshots = {};
    clocks_.reserve(run_.ranks.size());
    for (const RunRank& rank : run_.ranks) clocks_.emplace_back(aligned_.clock, rank.rank);
    return Ok();
  }

  // GPU times are on the CPU's clock only as exactly as they were converted. What is compared across the ranks of a GPU
  // job are the GPUs' times, so that error is added to the error of the rank's clock.
  void AddGpuClocks() {
    std::map<std::int32_t, std::int64_t> errors;
    for (const RunRank& rank : run_.ranks) {
      for (auto& [key, largest] : gpu_clocks_most_) largest = std::max(largest, ingest::MetaNumber(rank.head, key, 0));
      if (const std::int64_t error = ingest::MetaNumber(rank.head, "gpu_clock_error_ns", 0); error > 0)
        errors[rank.rank] = error;
    }
    schema::Clock& clock = aligned_.clock;
    for (std::size_t i = 0; i < clock.rows(); ++i)
      if (const auto of_rank = errors.find(clock.rank[i]); of_rank != errors.end())
        clock.base_error_ns[i] = Sum(clock.base_error_ns[i], of_rank->second);
  }

  // The reason why clocks are related by collectives alone, in the words of the first such rank's agent.
  void NoteUnmeasuredClocks() {
    std::set<std::int32_t> ranks;
    for (std::size_t i = 0; i < aligned_.clock.rows(); ++i)
      if (aligned_.clock.method[i] == schema::ClockMethod::kCorridors) ranks.insert(aligned_.clock.rank[i]);
    for (const RunRank& rank : run_.ranks) {
      const std::string_view why = ingest::MetaValue(rank.head, "clock_service");
      if (!ranks.contains(rank.rank) || why.empty()) continue;
      unmeasured_clocks_ = "rank " + std::to_string(rank.rank) + ": " + std::string(why);
      if (ranks.size() > 1) unmeasured_clocks_ += "; " + std::to_string(ranks.size() - 1) + " more";
      return;
    }
  }

  // Ranks that were not to be recorded (--ranks): their clock exchanges were needed, but they have no other rows.
  void LeaveOut() {
    std::vector<RunRank> kept;
    std::vector<ClockMap> clocks;
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) {
      if (ingest::MetaValue(run_.ranks[r].head, "recording") == "none") {
        run_.left_out.push_back(std::move(run_.ranks[r]));
        continue;
      }
      kept.push_back(std::move(run_.ranks[r]));
      clocks.push_back(clocks_[r]);
    }
    if (kept.empty()) {  // No rank was recorded: these files are all there is.
      run_.ranks = std::move(run_.left_out);
      run_.left_out.clear();
      return;
    }
    run_.ranks = std::move(kept);
    clocks_ = std::move(clocks);
  }

  // The time that each rank's file covers, and which ranks ended early.
  void Windows() {
    recorded_.resize(run_.ranks.size());
    std::vector<std::int64_t> first, last;
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) {
      const Interval span = CapturedSpan(run_.ranks[r].head);
      first.push_back(clocks_[r].ToCluster(span.begin));
      last.push_back(clocks_[r].ToCluster(span.end));
    }
    outcomes_ = FindOutcomes(run_.ranks, first, last);
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) {
      const RunRank& rank = run_.ranks[r];
      if (outcomes_[r].ended_early)
        run_.losses.push_back(MakeLoss(rank.rank, Loss::kRankEndedEarly, 1, outcomes_[r].why));
      const bool all = !RecordedInParts(rank.head);
      // A profiler's trace always covers a part of its process's life.
      const bool piece = !ingest::MetaValue(rank.head, "imported").empty();
      recorded_[r] = WindowsOf(rank.head);
      MatchRank match;
      match.rank = rank.rank;
      match.tables = &rank.head;
      match.clock = &clocks_[r];
      match.window = {first[r], last[r]};
      match.cut_begin = !all || piece;
      match.cut_end = !all || piece || outcomes_[r].ended_early || rank.state != RankState::kComplete ||
                      (outcomes_[r].exit_code != 0 && outcomes_[r].exit_code != kExitUnknown) ||
                      HasLoss(rank.head, Loss::kBytesLimit);
      match.in_parts = !all;
      if (rank.head.windows.rows() > 0 || !all) match.windows = &recorded_[r];
      ranks_.push_back(match);
    }
  }

  // The analysis window: complete steps, narrowed by --steps; GPU traces of others
  // without --steps count from their first to their last event.
  Status ChooseSteps() {
    if (options_.window == "hta") {
      FindHtaWindow();
      return Ok();
    }
    if (windows_.in_parts)
      parts_ = AnalysisParts(windows_, ranks_, steps_, options_.first_step >= 0 ? options_.first_step : schema::kNoTime,
                             options_.last_step >= 0 ? options_.last_step : INT64_MAX);
    const bool imported = std::any_of(run_.ranks.begin(), run_.ranks.end(), [](const RunRank& rank) {
      return !ingest::MetaValue(rank.head, "imported").empty();
    });
    const bool asked = options_.first_step >= 0 || options_.last_step >= 0;
    if (imported && !asked) return Ok();
    const std::int64_t low = options_.first_step >= 0 ? options_.first_step : schema::kNoTime;
    const std::int64_t high = options_.last_step >= 0 ? options_.last_step : INT64_MAX;
    bool any = false;
    for (const std::int64_t index : steps_.common) {
      if (index < low || index > high) continue;
      if (!any) first_step_ = index;
      last_step_ = index;
      any = true;
    }
    if (!any) return asked ? Status(NoSuchSteps()) : Ok();
    bool begin_known = false, end_known = false;
    for (std::size_t r = 0; r < steps_.ranks.size(); ++r) {
      for (const RankStep& step : steps_.ranks[r]) {
        const std::int64_t begin = clocks_[r].ToCluster(step.window.begin), end = clocks_[r].ToCluster(step.window.end);
        if (step.index == first_step_) {
          cluster_window_.begin = begin_known ? std::max(cluster_window_.begin, begin) : begin;
          begin_known = true;
        }
        if (step.index == last_step_) {
          cluster_window_.end = end_known ? std::max(cluster_window_.end, end) : end;
          end_known = true;
        }
      }
    }
    return Ok();
  }

  Error NoSuchSteps() const {
    if (steps_.common.empty())
      return Error{ErrorCode::kUsage, "the run has no steps that are complete on all ranks", options_.run_dir,
                   "leave --steps out; to have steps, mark them (lockstep_step(), --step-range)"};
    return Error{
        ErrorCode::kUsage, "none of these steps is complete on all ranks", options_.run_dir,
        "--steps within " + std::to_string(steps_.common.front()) + ":" + std::to_string(steps_.common.back() + 1)};
  }

  // Holistic Trace Analysis (f4d0062) omits what was launched in a rank's last profiler step, if all ranks together
  // name more than one.
  void FindHtaWindow() {
    std::set<std::int64_t> named;
    hta_until_ns_.assign(run_.ranks.size(), schema::kNoTime);
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) {
      const schema::Steps& steps = run_.ranks[r].head.steps;
      for (std::size_t i = 0; i < steps.rows(); ++i) {
        if (steps.source[i] != static_cast<std::uint8_t>(StepSource::kProfilerStep)) continue;
        named.insert(steps.index[i]);
        hta_until_ns_[r] = std::max(hta_until_ns_[r], steps.begin_ns[i]);
      }
      // The step's mark on the GPU's track is one more row of the same name, and begins later.
      if (hta_until_ns_[r] != schema::kNoTime)
        hta_until_ns_[r] = std::max(hta_until_ns_[r],
                                    ingest::MetaNumber(run_.ranks[r].head, "last_profiler_step_ns", schema::kNoTime));
    }
    if (named.size() < 2) hta_until_ns_.assign(run_.ranks.size(), schema::kNoTime);
  }

  void Pass() {
    passed_.resize(run_.ranks.size());
    std::mutex mutex;
    std::size_t done = 0;
    ParallelFor(options_.jobs, run_.ranks.size(), [&](std::size_t r) {
      if (!run_.ranks[r].mine) return;
      RankPassInput input;
      input.index = r, input.rank = &run_.ranks[r];
      input.clock = &clocks_[r];
      input.p2p = &p2p_;
      input.p2p_waits = &p2p_waits_[r];
      input.steps = &steps_.ranks[r];
      input.times = steps_.times;
      input.hta = options_.classes == "hta";
      input.hta_window = options_.window == "hta";
      if (input.hta_window) input.hta_until_ns = hta_until_ns_[r];
      input.first_step = first_step_;
      input.last_step = last_step_;
      input.cluster_window = cluster_window_;
      input.parts = parts_.empty() ? nullptr : &parts_;
      passed_[r] = PassRank(input, matched_);
      if (options_.team == nullptr) LeaveOutZeros(passed_[r].step_ranks);
      ForgetOperations(r);
      const std::lock_guard lock(mutex);
      Progress("break down", rules::kProgressBreakDownFrom +
                                 (rules::kProgressWriteFrom - rules::kProgressBreakDownFrom) *
                                     static_cast<double>(++done) / static_cast<double>(run_.ranks.size()));
    });
    if (options_.team != nullptr) SharePasses();
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) {
      const auto whole = [](const std::vector<RankStep>& steps) {
        return static_cast<std::uint64_t>(std::ranges::count(steps, true, &RankStep::complete));
      };
      if (const std::uint64_t marked = whole(steps_.ranks[r]), found = whole(passed_[r].steps); found < marked)
        run_.losses.push_back(MakeLoss(run_.ranks[r].rank, Loss::kStepWithoutKernel, marked - found, ""));
      Release(steps_.ranks[r]);
      if (static_cast<double>(passed_[r].unexplained_ns) >
          rules::kWorthShare * static_cast<double>(passed_[r].steps_ns))
        run_.losses.push_back(
            MakeLoss(run_.ranks[r].rank, Loss::kComputeUnexplained, 1,
                     std::to_string(passed_[r].unexplained_ns * 100 / passed_[r].steps_ns) + " % of its steps"));
      if (!passed_[r].gpu && ingest::MetaValue(run_.ranks[r].head, "blocked") != "on")
        run_.losses.push_back(MakeLoss(run_.ranks[r].rank, Loss::kBlockedNotRecorded, 1, ""));
      if (passed_[r].damaged.empty()) continue;
      run_.ranks[r].state = RankState::kCutShort;
      for (const std::string& damage : passed_[r].damaged)
        run_.losses.push_back(MakeLoss(run_.ranks[r].rank, Loss::kRankCutShort, 1, run_.ranks[r].file + ": " + damage));
    }
  }

  // They are in `matched_` and in the rank's terms now.
  void ForgetOperations(std::size_t r) {
    run_.ranks[r].head.collectives = {};
    run_.ranks[r].head.p2p = {};
    run_.ranks[r].head.mpi_requests = {};
    // The samples of GPUs are told apart by the steps (rank_gpus.cc).
    if (run_.ranks[r].head.gpu_samples.rows() == 0) run_.ranks[r].head.steps = {};
    Release(p2p_.partner_begin_ns[r]);
    Release(p2p_.partner[r]);
    p2p_waits_[r] = {};
    if (options_.team == nullptr) Release(matched_.member_of[r]);
  }

  // Shares the results of the passes of each process's ranks with all processes.
  void SharePasses() {
    schema::TlCollectiveRanks& members = matched_.members;
    const auto each_column = [&](const auto& f) {
      f(members.end_low_ns), f(members.end_high_ns), f(members.wait_ns), f(members.transfer_ns), f(members.step);
      f(members.censored);
    };
    Packer packer;
    for (std::size_t r = 0; r < passed_.size(); ++r) {
      if (!run_.ranks[r].mine) continue;
      const RankPassResult& rank = passed_[r];
      packer.Put(r, rank.gpu, rank.steps, rank.unexplained_ns, rank.steps_ns, rank.damaged);
      packer.PutTable(rank.step_ranks);
      packer.PutTable(rank.totals);
      packer.PutTable(rank.phases);
      for (const std::uint32_t member : matched_.member_of[r])
        if (member != schema::kNone) each_column([&](const auto& column) { packer.Put(column[member]); });
    }
    const std::vector<std::string> all = options_.team->Share(packer.Take());
    for (const std::string& bytes : all) {
      for (Unpacker from(bytes); !from.done();) {
        const auto r = from.Take<std::size_t>();
        RankPassResult& rank = passed_[r];
        rank = {};
        from.Take(rank.gpu, rank.steps, rank.unexplained_ns, rank.steps_ns, rank.damaged);
        from.TakeTable(rank.step_ranks);
        from.TakeTable(rank.totals);
        from.TakeTable(rank.phases);
        for (const std::uint32_t member : matched_.member_of[r])
          if (member != schema::kNone) each_column([&](auto& column) { from.Take(column[member]); });
        if (!run_.ranks[r].mine) ForgetOperations(r);
      }
    }
    for (auto& of_rank : matched_.member_of) Release(of_rank);
  }

  schema::TimelineTables Assemble() {
    schema::TimelineTables tables;
    TimelineWriter writer(tables);
    writer.Ranks(run_, outcomes_, passed_);
    tables.clock = std::move(aligned_.clock);
    tables.step_ranks = StepRankTable(passed_);
    tables.steps = JobStepTable(passed_, clocks_, steps_, tables.step_ranks);
    tables.step_phases = StepPhaseTable(passed_);
    writer.Facts(run_);
    writer.Settings(run_);
    if (!unmeasured_clocks_.empty()) writer.Meta("clock_by_collectives", unmeasured_clocks_);
    writer.Gpus(run_);
    for (const auto& [key, largest] : gpu_clocks_most_)
      if (largest > 0) writer.Meta(key, largest);
    for (const RankPassResult& rank : passed_) tables.rank_totals.Append(rank.totals.Get(0));

    std::vector<RunLoss> losses = std::move(run_.losses);
    // If there are steps, they report this already.
    if (matched_.outside > 0 && windows_.outside_steps == 0 && tables.steps.rows() == 0)
      losses.push_back(MakeLoss(-1, Loss::kWindowDiffers, matched_.outside, "collectives, there are no steps"));
    for (auto* more : {&matched_.losses, &p2p_.losses, &steps_.losses, &windows_.losses})
      losses.insert(losses.end(), more->begin(), more->end());
    if (checks_.violations > 0) losses.push_back(MakeLoss(-1, Loss::kClockViolation, checks_.violations, ""));
    writer.Losses(std::move(losses));

    std::uint64_t events = 0, dropped = 0;
    for (const std::uint64_t of_rank : tables.ranks.events) events += of_rank;
    for (const std::uint64_t of_rank : tables.ranks.dropped) dropped += of_rank;
    std::vector<std::uint32_t> nodes = tables.ranks.node;
    std::erase(nodes, schema::kNone);
    std::sort(nodes.begin(), nodes.end());
    const auto distinct = std::unique(nodes.begin(), nodes.end()) - nodes.begin();
    const bool gpu = std::any_of(passed_.begin(), passed_.end(), [](const auto& rank) { return rank.gpu; });

    writer.Meta("lockstep_version", LOCKSTEP_VERSION);
    writer.Meta("run_id", run_.run_id);
    writer.Meta("command", run_.command);
    writer.Meta("imported", run_.ranks.empty() ? "" : ingest::MetaValue(run_.ranks[0].head, "imported"));
    writer.Meta("world_size", run_.world_size);
    writer.Meta("ranks_expected", run_.world_size);
    writer.Meta("ranks", static_cast<std::int64_t>(run_.ranks.size()));
    writer.Meta("outside_steps", windows_.outside_steps);
    writer.Meta("recording", windows_.in_parts ? ingest::MetaValue(run_.ranks[0].head, "recording") : "all");
    writer.Meta("nodes", distinct);
    writer.Meta("gpu", gpu ? 1 : 0);
    writer.Meta("classes", options_.classes);
    writer.Meta("clock_choice", ClockName(options_.clock));
    writer.Meta("step_source", StepSourceName(tables.steps.rows() > 0));
    writer.Meta("window_first_step", first_step_ <= last_step_ ? first_step_ : -1);
    writer.Meta("window_last_step", first_step_ <= last_step_ ? last_step_ : -1);
    writer.Meta("window", WindowName(gpu));
    writer.Meta("events", static_cast<std::int64_t>(events));
    writer.Meta("dropped", static_cast<std::int64_t>(dropped));
    writer.Meta("unmatched_collectives", static_cast<std::int64_t>(matched_.unmatched));
    writer.Meta("cut_collectives", static_cast<std::int64_t>(matched_.cut));
    writer.Meta("mismatches", static_cast<std::int64_t>(matched_.mismatched));
    writer.Meta("clock_violations", static_cast<std::int64_t>(checks_.violations));
    writer.Meta("clock_free_checked", static_cast<std::int64_t>(checks_.free_checked));
    writer.Meta("clock_free_disagreed", static_cast<std::int64_t>(checks_.free_disagreed));
    writer.Meta("corridors_checked", static_cast<std::int64_t>(aligned_.corridors_checked));
    writer.Meta("corridors_violated", static_cast<std::int64_t>(aligned_.corridors_violated));
    writer.Meta("p2p_matched", static_cast<std::int64_t>(p2p_.matched));
    writer.Meta("p2p_unmatched", static_cast<std::int64_t>(p2p_.unmatched));
    writer.Meta("p2p_unplaced", static_cast<std::int64_t>(p2p_.unplaced));
    writer.Meta("options", OptionsHash(options_));
    writer.Meta("inputs", inputs_);
    tables.windows = std::move(windows_.table);
    tables.collectives = std::move(matched_.collectives);
    tables.collective_ranks = std::move(matched_.members);
    tables.p2p_pairs = std::move(p2p_.pairs);
    tables.message_numbers = std::move(p2p_.numbers);
    return tables;
  }

  std::string_view WindowName(bool gpu) const {
    if (options_.window == "hta") return "hta";
    if (first_step_ <= last_step_) return "steps";
    return gpu ? "gpu_events" : "captured";
  }

  std::string_view StepSourceName(bool any) const {
    if (!any) return "none";
    switch (steps_.source) {
      case StepSource::kMark:
        return "lockstep_step";
      case StepSource::kRange:
        return "step range";
      case StepSource::kTorch:
        return "torch hook";
      case StepSource::kProfilerStep:
        return "ProfilerStep";
      case StepSource::kSignature:
        return "signature";
    }
    return "none";
  }

  const MergeOptions& options_;
  std::string inputs_;
  RunFiles run_;
  AlignResult aligned_;
  std::string unmeasured_clocks_;
  std::map<std::string, std::int64_t> gpu_clocks_most_{
      {"gpu_clock_error_ns", 0}, {"gpu_clock_moved_ns", 0}, {"gpu_clock_contradicts_ns", 0}, {"gpu_overlap_ns", 0}};
  std::vector<ClockMap> clocks_;
  std::vector<RankOutcome> outcomes_;
  std::vector<std::vector<RecordedWindow>> recorded_;
  std::vector<std::int64_t> hta_until_ns_;  // One per rank.
  std::vector<MatchRank> ranks_;
  MatchedCollectives matched_;
  MatchedP2p p2p_;
  std::vector<RankP2pWaits> p2p_waits_;
  JobSteps steps_;
  JobWindows windows_;
  std::vector<AnalysisPart> parts_;
  std::int64_t first_step_ = 0, last_step_ = -1;  // The analysis window; first > last: none.
  Interval cluster_window_{0, 0};
  std::vector<RankPassResult> passed_;
  CollectiveChecks checks_;
};

}  // namespace

Result<Timeline> MergeRun(const MergeOptions& options) {
  if (options.classes != "lockstep" && options.classes != "hta")
    return Error{ErrorCode::kUsage, "unknown classes '" + options.classes + "'", "--classes",
                 "--classes lockstep or --classes hta"};
  std::string seen = SeenFiles(options.run_dir);
  LS_TRY(schema::TimelineTables tables, Merger(options).Run());
  if (options.write && options.team != nullptr) {
    LS_CHECK(WriteShards(options, tables));
  } else if (options.write) {
    if (options.progress) options.progress("write", rules::kProgressWriteFrom);
    LS_CHECK(trace::WriteTimelineFile(
        (fs::path(options.run_dir) / "timeline.h5").string(), tables,
        [&](std::size_t n, const std::function<void(std::size_t)>& f) { ParallelFor(options.jobs, n, f); }));
  }
  if (options.write && options.team == nullptr) RemoveShards(options.run_dir);
  Timeline timeline = MakeTimeline(options.run_dir, std::move(tables));
  timeline.seen_files = std::move(seen);
  return timeline;
}

}  // namespace lockstep::merge
