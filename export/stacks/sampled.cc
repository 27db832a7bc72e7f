#include "export/stacks/sampled.h"

#include <algorithm>

#include "merge/timeline/charged.h"
#include "trace/file/strings.h"

namespace lockstep::exporters {

using schema::kNone;

std::uint32_t SampledFunction::line() const {
  std::uint64_t most = 0;
  std::uint32_t best = 0;
  for (const auto& [line, count] : lines)
    if (line > 0 && count > most) most = count, best = line;
  return best;
}

std::uint32_t SampledFunctions::NumberOf(std::string name, std::string file) {
  if (name.empty()) name = "(unknown)";
  const auto [at, fresh] =
      numbers_.try_emplace({std::move(file), std::move(name)}, static_cast<std::uint32_t>(functions_.size()));
  if (fresh) functions_.push_back({.name = at->first.second, .file = at->first.first, .lines = {}});
  return at->second;
}

std::vector<SampledThread> SampledFunctions::Take(const ExportRun& run, const ExportRank& rank) {
  const schema::RankTables& head = *rank.head;
  const schema::Stacks& stacks = head.stacks;
  const schema::Samples& samples = head.samples;
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < samples.rows(); ++row) {
    const std::int64_t at = rank.clock->ToCluster(samples.time_ns[row]);
    if (run.all_steps || (at >= run.window.begin && at < run.window.end)) rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [&](std::size_t a, std::size_t b) { return samples.time_ns[a] < samples.time_ns[b]; });
  const IntervalSet awaited = merge::ChargedTo(*run.timeline, rank.rank);
  std::vector<std::uint32_t> of_row(stacks.rows(), kNone);  // Its function.
  std::map<std::uint32_t, SampledThread> threads;
  for (const std::size_t row : rows) {
    SampledThread& thread = threads[samples.thread[row]];
    std::vector<std::uint32_t>& stack = thread.stacks.emplace_back();
    // A caller's row comes before: what a damaged file says besides must not go round in a ring.
    for (std::uint32_t frame = samples.stack[row]; frame < stacks.rows();
         frame = stacks.parent[frame] < frame ? stacks.parent[frame] : kNone) {
      if (of_row[frame] == kNone)
        of_row[frame] = NumberOf(std::string(trace::TextOf(head, stacks.function[frame])),
                                 std::string(trace::TextOf(head, stacks.file[frame])));
      ++functions_[of_row[frame]].lines[stacks.line[frame]];
      stack.push_back(of_row[frame]);
    }
    if (stack.empty()) {
      stack.push_back(NumberOf("(inside communication)", ""));
      ++functions_[stack.back()].lines[0];
    }
    std::reverse(stack.begin(), stack.end());
    thread.late.push_back(merge::Within(awaited, rank.clock->ToCluster(samples.time_ns[row])));
  }
  std::vector<SampledThread> result;
  for (auto& [number, thread] : threads) {
    if (threads.size() > 1) {
      thread.name = "thread " + std::to_string(number);
      if (number == kNone) thread.name = "another thread";
      if (number < head.threads.rows())
        if (const std::string_view name = trace::TextOf(head, head.threads.name[number]); !name.empty())
          thread.name = "thread " + std::to_string(number) + " " + std::string(name);
    }
    result.push_back(std::move(thread));
  }
  return result;
}

Error NoSamples(const ExportRun& run) {
  return {ErrorCode::kNotFound, "there is no sample of a stack in what was chosen", run.timeline->run_dir,
          "record with --stacks all:50, or with --stacks late, which takes them while a rank is late"};
}

}  // namespace lockstep::exporters
