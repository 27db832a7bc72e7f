#include "merge/timeline/assemble.h"

#include <algorithm>
#include <limits>
#include <map>

#include "ingest/rank_files/host_names.h"
#include "merge/timeline/step_length.h"

namespace lockstep::merge {
namespace {

ingest::HostNames HostsOf(const RunFiles& run) {
  std::map<std::int32_t, const schema::RankTables*> heads;
  for (const auto* ranks : {&run.ranks, &run.left_out})
    for (const RunRank& rank : *ranks) heads.emplace(rank.rank, &rank.head);
  std::vector<const schema::RankTables*> by_rank;
  for (const auto& [rank, head] : heads) by_rank.push_back(head);
  return ingest::HostNames(by_rank);
}

}  // namespace

schema::TlSteps JobStepTable(const std::vector<RankPassResult>& ranks, const std::vector<ClockMap>& clocks,
                             const JobSteps& steps, const schema::TlStepRanks& step_ranks) {
  struct Step {
    std::int64_t begin = 0, end = 0;
    std::uint32_t complete = 0;
    bool any = false, warmup = false, whole = true;
  };
  std::map<std::int64_t, Step> by_index;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const RankStep& on_rank : ranks[r].steps) {
      Step& step = by_index[on_rank.index];
      const std::int64_t begin = clocks[r].ToCluster(on_rank.window.begin);
      const std::int64_t end = clocks[r].ToCluster(on_rank.window.end);
      step.begin = step.any ? std::max(step.begin, begin) : begin;
      step.end = step.any ? std::max(step.end, end) : end;
      step.any = true;
      step.warmup |= on_rank.warmup;
      step.complete += on_rank.complete;
      step.whole &= on_rank.complete;
    }
  }
  schema::TlSteps table;
  std::vector<TermValues> terms;  // Of the ranks that have the whole step.
  std::size_t at = 0;
  for (const auto& [index, step] : by_index) {
    terms.clear();
    for (; at < step_ranks.rows() && step_ranks.index[at] <= index; ++at)
      if (step_ranks.index[at] == index && step_ranks.complete[at]) terms.push_back(TermsOfRow(step_ranks, at));
    schema::TlSteps::Row row;
    row.index = index;
    row.begin_ns = step.begin;
    row.end_ns = step.end;
    row.ranks = step.complete;
    row.complete = step.whole && std::binary_search(steps.common.begin(), steps.common.end(), index);
    row.warmup = step.warmup;
    row.source = static_cast<std::uint8_t>(steps.source);
    row.step_ns = row.complete ? MeanOfTerms(terms).length_ns : -1;
    table.Append(row);
  }
  return table;
}

std::uint64_t DroppedRecords(const schema::RankTables& head) {
  // A ring's drops are counted by the thread's row and by its loss, so the larger of the two is used.
  std::uint64_t by_thread = 0, by_ring = 0, elsewhere = 0;
  for (const std::uint64_t dropped : head.threads.dropped) by_thread += dropped;
  for (std::size_t i = 0; i < head.losses.rows(); ++i) {
    const std::string_view name = trace::TextOf(head, head.losses.name[i]);
    if (name == Info(Loss::kRingFull).name) by_ring += head.losses.count[i];
    if (name == Info(Loss::kNoRing).name || name == Info(Loss::kSpoolWrite).name) elsewhere += head.losses.count[i];
  }
  return std::max(by_thread, by_ring) + elsewhere;
}

void AddFileLosses(const RunRank& rank, std::vector<RunLoss>& losses) {
  const schema::Losses& own = rank.head.losses;
  for (std::size_t i = 0; i < own.rows(); ++i)
    losses.push_back({rank.rank, std::string(trace::TextOf(rank.head, own.name[i])), own.count[i],
                      std::string(trace::TextOf(rank.head, own.detail[i]))});
}

TimelineWriter::TimelineWriter(schema::TimelineTables& tables)
    : tables_(tables), strings_(tables.strings, tables.string_bytes) {}

std::uint32_t TimelineWriter::Intern(std::string_view text) {
  return text.empty() ? schema::kNone : strings_.Intern(text);
}

void TimelineWriter::Meta(std::string_view key, std::string_view value) {
  tables_.meta.Append({.key = strings_.Intern(key), .value = strings_.Intern(value)});
}

void TimelineWriter::Ranks(const RunFiles& run, const std::vector<RankOutcome>& outcomes,
                           const std::vector<RankPassResult>& passed) {
  const ingest::HostNames hosts = HostsOf(run);
  std::size_t r = 0;
  auto missing = run.missing.begin();
  auto left_out = run.left_out.begin();
  const auto next = [&] {
    std::int32_t rank = std::numeric_limits<std::int32_t>::max();
    if (r < run.ranks.size()) rank = run.ranks[r].rank;
    return missing != run.missing.end() ? std::min(rank, *missing) : rank;
  };
  while (r < run.ranks.size() || missing != run.missing.end() || left_out != run.left_out.end()) {
    schema::TlRanks::Row row;
    row.file = row.node = row.domain = row.allowed_cpus = schema::kNone;
    row.app_cpu_ns = row.agent_cpu_ns = -1;
    row.exit_code = kExitUnknown;
    if (left_out != run.left_out.end() && left_out->rank < next()) {
      row.rank = left_out->rank;
      row.file = Intern(left_out->file);
      row.node = Intern(hosts.Of(left_out->head));
      row.domain = Intern(ingest::MetaValue(left_out->head, "clock_domain"));
      row.state = RankState::kLeftOut;
      tables_.ranks.Append(row);
      ++left_out;
      continue;
    }
    if (r == run.ranks.size() || (missing != run.missing.end() && *missing < run.ranks[r].rank)) {
      row.rank = *missing++;
      row.state = RankState::kMissing;
      tables_.ranks.Append(row);
      continue;
    }
    const RunRank& rank = run.ranks[r];
    row.rank = rank.rank;
    row.file = Intern(rank.file);
    row.node = Intern(hosts.Of(rank.head));
    row.domain = Intern(ingest::MetaValue(rank.head, "clock_domain"));
    row.state = rank.state;
    row.ended_early = outcomes[r].ended_early;
    row.gpu = passed[r].gpu;
    row.allowed_cores =
        static_cast<std::uint32_t>(std::max<std::int64_t>(ingest::MetaNumber(rank.head, "allowed_cores", 0), 0));
    row.allowed_cpus = Intern(ingest::MetaValue(rank.head, "allowed_cpus"));
    row.events = rank.source == nullptr ? 0 : rank.source->EventRows();
    row.dropped = DroppedRecords(rank.head);
    row.app_cpu_ns = ingest::MetaNumber(rank.head, "app_cpu_ns", -1);
    row.agent_cpu_ns = ingest::MetaNumber(rank.head, "agent_cpu_ns", -1);
    row.exit_code = outcomes[r].exit_code;
    tables_.ranks.Append(row);
    ++r;
  }
}

void TimelineWriter::Losses(std::vector<RunLoss> losses) {
  const auto key = [](const RunLoss& loss) { return std::tie(loss.rank, loss.name, loss.detail); };
  std::sort(losses.begin(), losses.end(), [&](const RunLoss& a, const RunLoss& b) {
    return std::tuple_cat(key(a), std::tie(a.count)) < std::tuple_cat(key(b), std::tie(b.count));
  });
  for (std::size_t i = 0; i < losses.size();) {
    std::uint64_t count = 0;
    std::size_t end = i;
    for (; end < losses.size() && key(losses[end]) == key(losses[i]); ++end) count += losses[end].count;
    tables_.losses.Append(
        {.rank = losses[i].rank, .name = Intern(losses[i].name), .count = count, .detail = Intern(losses[i].detail)});
    i = end;
  }
}

}  // namespace lockstep::merge
