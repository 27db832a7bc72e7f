#include "export/export.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <utility>

#include "export/common/cluster.h"
#include "export/common/describe.h"
#include "merge/parallel.h"

namespace lockstep::exporters {
namespace {

using schema::kNoTime;

constexpr std::int64_t kMostShortNs = 100'000'000;  // To meet a budget no detail longer than this is left out.
constexpr int kTries = 6;

Result<std::vector<std::int32_t>> ChooseRanks(const merge::Timeline& timeline, const ExportOptions& options) {
  std::vector<std::int32_t> present = timeline.PresentRanks();
  if (!options.ranks) return present;
  std::vector<std::int32_t> chosen = *options.ranks;
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  for (const std::int32_t rank : chosen)
    if (!std::binary_search(present.begin(), present.end(), rank))
      return Error{ErrorCode::kUsage, "this run has nothing of rank " + std::to_string(rank), "--ranks",
                   present.empty()
                       ? "lockstep info RUN shows what it has"
                       : "ranks from " + std::to_string(present.front()) + " to " + std::to_string(present.back())};
  return chosen;
}

// Cluster time of the chosen steps on all these ranks; where GPUs run behind their hosts, on both.
Result<Interval> WindowOf(const merge::Timeline& timeline, const RankIndex& index,
                          const std::vector<std::int32_t>& ranks, std::int64_t first, std::int64_t last,
                          unsigned jobs) {
  if (first < 0 && last < 0) return Interval{INT64_MIN, INT64_MAX};
  const auto chosen = [&](std::int64_t step) { return step >= first && (last < 0 || step <= last); };
  const schema::TlStepRanks& steps = timeline.tables.step_ranks;
  Interval window{INT64_MAX, INT64_MIN};
  std::int64_t least = INT64_MAX, most = INT64_MIN;
  std::mutex mutex;
  merge::ParallelFor(jobs, ranks.size(), [&](std::size_t i) {
    const merge::ClockMap clock(timeline.tables.clock, ranks[i]);
    Interval mine{INT64_MAX, INT64_MIN};
    std::int64_t low = INT64_MAX, high = INT64_MIN;
    const auto extend = [&](std::int64_t begin, std::int64_t end) {
      if (begin == kNoTime || end < begin) return;
      mine = {std::min(mine.begin, clock.ToCluster(begin)), std::max(mine.end, clock.ToCluster(end))};
    };
    for (const std::uint32_t row : index.Steps(ranks[i])) {
      low = std::min(low, steps.index[row]);
      high = std::max(high, steps.index[row]);
      if (chosen(steps.index[row])) extend(steps.begin_ns[row], steps.end_ns[row]);
    }
    const auto row = static_cast<std::size_t>(timeline.RankRow(ranks[i]));
    if (timeline.tables.ranks.gpu[row] != 0) {
      if (const auto events = RankEvents::Open(timeline, index, ranks[i]); events.ok()) {
        const schema::Steps& host = events.value()->rank().head->steps;
        for (std::size_t s = 0; s < host.rows(); ++s)
          if (chosen(host.index[s])) extend(host.begin_ns[s], host.end_ns[s]);
      }
    }
    const std::lock_guard<std::mutex> lock(mutex);
    window = {std::min(window.begin, mine.begin), std::max(window.end, mine.end)};
    least = std::min(least, low);
    most = std::max(most, high);
  });
  if (window.begin <= window.end) return Interval{window.begin, window.end + 1};
  return Error{
      ErrorCode::kUsage, least > most ? "this run has no steps" : "this run has none of these steps", "--steps",
      least > most ? "leave --steps out" : "steps from " + std::to_string(least) + " to " + std::to_string(most)};
}

// The least duration with which no more than so many details remain, over all ranks; at most kMostShortNs.
std::int64_t LeastFor(const std::vector<Extent>& extents, std::uint64_t details_allowed, std::int64_t at_least) {
  std::uint64_t sum = 0;
  for (std::size_t bin = kBins; bin-- > 0;) {
    for (const Extent& extent : extents) sum += extent.details[bin];
    if (sum <= details_allowed) continue;
    const std::int64_t least = bin + 1 < kBins ? FirstOf(bin + 1) : kMostShortNs;
    return std::min(std::max(least, at_least), kMostShortNs);
  }
  return at_least;
}

class Exporter {
 public:
  Exporter(const merge::Timeline& timeline, const ExportOptions& options)
      : timeline_(timeline), options_(options), index_(timeline) {}

  Result<ExportResult> Run() {
    LS_TRY(ranks_, ChooseRanks(timeline_, options_));
    LS_TRY(run_.window, WindowOf(timeline_, index_, ranks_, options_.first_step, options_.last_step, options_.jobs));
    LS_CHECK(LookAtRanks());
    instances_ = InstancesIn(timeline_, run_.window, options_.ranks ? &ranks_ : nullptr);
    Bound();
    run_.timeline = &timeline_;
    run_.output = options_.output;
    run_.ranks = ranks_;
    run_.all_steps = options_.first_step < 0 && options_.last_step < 0;
    selection_.window = run_.window;
    FindMembers();
    run_.flow_ends = ChooseFlows(timeline_, instances_, ranks_, options_.flows, selection_);
    selection_.least_ns = options_.least_ns;
    for (int attempt = 1;; ++attempt) {
      LS_CHECK(WriteAll());
      if (options_.budget_bytes == 0 || result_.bytes <= options_.budget_bytes) break;
      result_.over_budget = selection_.least_ns >= kMostShortNs || attempt == kTries;
      if (result_.over_budget) break;
      Shorten();
    }
    return std::move(result_);
  }

 private:
  Status LookAtRanks() {
    extents_.assign(ranks_.size(), {});
    std::vector<std::string> errors(ranks_.size());
    std::mutex mutex;
    std::size_t done = 0;
    merge::ParallelFor(options_.jobs, ranks_.size(), [&](std::size_t i) {
      auto events = RankEvents::Open(timeline_, index_, ranks_[i]);
      if (events.ok())
        extents_[i] = options_.format->samples_only ? Extent() : events.value()->Look(run_.window);
      else
        errors[i] = events.error().what + (events.error().where.empty() ? "" : " (" + events.error().where + ")");
      const std::lock_guard<std::mutex> lock(mutex);
      Progress("look", 0.2 * static_cast<double>(++done) / static_cast<double>(ranks_.size()));
    });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (!errors[i].empty()) {
        result_.troubles.push_back("rank " + std::to_string(ranks_[i]) + ": " + errors[i]);
        continue;
      }
      ranks_[kept] = ranks_[i];
      extents_[kept++] = extents_[i];
    }
    ranks_.resize(kept);
    extents_.resize(kept);
    if (kept == 0)
      return Error{ErrorCode::kNotFound, "no rank of this run can be read", timeline_.run_dir,
                   "lockstep info RUN says what is there"};
    return Ok();
  }

  void FindMembers() {
    const schema::TlCollectives& c = timeline_.tables.collectives;
    for (std::size_t row = 0; row < c.rows(); ++row) {
      std::vector<std::int32_t>& members = run_.comm_members[c.comm_id[row]];
      const std::size_t first = timeline_.FirstMember(row), end = timeline_.FirstMember(row + 1);
      if (end - first <= members.size()) continue;
      const auto& ranks = timeline_.tables.collective_ranks.rank;
      members.assign(ranks.begin() + static_cast<std::ptrdiff_t>(first),
                     ranks.begin() + static_cast<std::ptrdiff_t>(end));
      std::sort(members.begin(), members.end());
    }
  }

  // The output is too large: leaves out as many details as necessary by its bytes per event, and some more.
  void Shorten() {
    std::uint64_t details = 0;
    for (std::size_t kind = 0; kind < kEventKinds; ++kind)
      if (IsDetail(static_cast<EventKind>(kind))) details += result_.written[kind];
    const double per_event =
        static_cast<double>(result_.bytes) / static_cast<double>(std::max<std::uint64_t>(result_.events(), 1));
    const double excess = static_cast<double>(result_.bytes - options_.budget_bytes) / per_event * 1.05;
    const auto allowed = static_cast<std::uint64_t>(std::max(0.0, static_cast<double>(details) - excess));
    const std::int64_t least = LeastFor(extents_, allowed, options_.least_ns);
    // The limit grows by an eighth at least, so that this ends.
    const std::int64_t further = selection_.least_ns + selection_.least_ns / 8 + 2;
    selection_.least_ns = std::min(std::max(least, further), kMostShortNs);
  }

  // Finds the first and last moment of everything that will be written.
  void Bound() {
    std::int64_t first = INT64_MAX, last = INT64_MIN;
    for (const Extent& extent : extents_) {
      first = std::min(first, extent.first_ns);
      last = std::max(last, extent.last_ns);
    }
    for (const std::uint32_t row : instances_) {
      first = std::min(first, timeline_.tables.collectives.first_arrival_ns[row]);
      last = std::max(last, timeline_.tables.collectives.end_ns[row]);
    }
    for (std::size_t row = 0; row < timeline_.tables.steps.rows(); ++row) {
      const std::int64_t begin = timeline_.tables.steps.begin_ns[row];
      const std::int64_t end = std::max(begin, timeline_.tables.steps.end_ns[row]);
      if (begin == kNoTime || end < run_.window.begin || begin >= run_.window.end) continue;
      first = std::min(first, begin);
      last = std::max(last, end);
    }
    if (first > last) first = last = 0;
    run_.base_ns = first;
    if (run_.window.begin == INT64_MIN) run_.window = {first, last + 1};
    result_.begin_ns = 0;
    result_.end_ns = last - first;
  }

  void Progress(std::string_view phase, double done) const {
    if (options_.progress) options_.progress(phase, done);
  }

  Status WriteAll() {
    result_.output = options_.output;
    result_.written = {};
    result_.left_out = {};
    result_.least_ns = selection_.least_ns;
    result_.ranks = ranks_.size();
    std::vector<std::string> troubles = result_.troubles;
    run_.remarks.clear();
    run_.comm_names.clear();
    const std::unique_ptr<Writer> writer = options_.format->make(options_.writer);
    LS_CHECK(writer->Begin(run_));
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      auto opened = RankEvents::Open(timeline_, index_, ranks_[i]);
      if (!opened.ok()) return opened.error();
      RankEvents& events = *opened.value();
      const schema::Comms& comms = events.rank().head->comms;
      for (std::uint32_t c = 0; c < comms.rows(); ++c)
        if (comms.global_id[c] != 0) run_.comm_names.try_emplace(comms.global_id[c], CommTitle(*events.rank().head, c));
      LS_CHECK(writer->BeginRank(events.rank()));
      if (!options_.format->samples_only)
        LS_CHECK(events.Walk(
            selection_, extents_[i],
            [&](const Event& event) {
              if (!writer->Takes(event.kind)) return Ok();
              ++result_.written[static_cast<std::size_t>(event.kind)];
              return writer->Write(event);
            },
            result_.left_out));
      LS_CHECK(writer->EndRank());
      for (const std::string& line : events.Damaged())
        troubles.push_back("rank " + std::to_string(ranks_[i]) + ": " + line);
      Progress("export", 0.2 + 0.75 * static_cast<double>(i + 1) / static_cast<double>(ranks_.size()));
    }
    for (std::size_t kind = 0; kind < kEventKinds; ++kind)
      if (!writer->Takes(static_cast<EventKind>(kind))) result_.left_out[kind] = 0;
    for (std::size_t kind = 0; kind < kEventKinds; ++kind)
      if (result_.left_out[kind] > 0)
        run_.remarks.push_back(std::to_string(result_.left_out[kind]) + " " +
                               std::string(NounOf(static_cast<EventKind>(kind), result_.left_out[kind])) + " below " +
                               std::to_string(selection_.least_ns) + " ns left out");
    if (writer->wants_cluster()) LS_CHECK(WriteCluster(*writer));
    LS_CHECK(writer->Finish());
    result_.bytes = writer->bytes();
    result_.samples = writer->samples();
    if (std::string trouble = writer->trouble(); !trouble.empty()) troubles.push_back(std::move(trouble));
    result_.troubles = std::move(troubles);
    Progress("export", 1);
    return Ok();
  }

  Status WriteCluster(Writer& writer) {
    static const schema::RankTables kNothing;
    const merge::ClockMap clock(schema::Clock{}, -1);
    ExportRank cluster;
    cluster.title = "cluster";
    cluster.head = &kNothing;
    cluster.clock = &clock;
    LS_CHECK(writer.BeginRank(cluster));
    LS_CHECK(WalkCluster(timeline_, instances_, run_.window, options_.findings, [&](const Event& event) {
      ++result_.written[static_cast<std::size_t>(event.kind)];
      return writer.Write(event);
    }));
    return writer.EndRank();
  }

  const merge::Timeline& timeline_;
  const ExportOptions& options_;
  RankIndex index_;
  ExportRun run_;
  Selection selection_;
  std::vector<std::int32_t> ranks_;
  std::vector<Extent> extents_;
  std::vector<std::uint32_t> instances_;
  ExportResult result_;
};

}  // namespace

std::uint64_t ExportResult::events() const {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : written) sum += count;
  return sum;
}

Result<ExportResult> Export(const merge::Timeline& timeline, const ExportOptions& given) {
  ExportOptions options = given;
  if (options.format->make == nullptr)
    return Error{ErrorCode::kUnsupported, "this lockstep was built without " + std::string(options.format->name),
                 "--format", std::string(options.format->missing)};
  if (options.output.empty())
    options.output = (std::filesystem::path(timeline.run_dir) /
                      (options.writer.split ? "timeline.tar" : options.format->default_output))
                         .string();
  return Exporter(timeline, options).Run();
}

Result<Interval> StepWindow(const merge::Timeline& timeline, std::int64_t step, unsigned jobs) {
  return WindowOf(timeline, RankIndex(timeline), timeline.PresentRanks(), step, step, jobs);
}

}  // namespace lockstep::exporters
