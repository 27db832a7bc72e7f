#include "runtime/agent/slot/estimate.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/byte_text.h"
#include "core/own_file.h"
#include "core/rank_name.h"

namespace lockstep::agent {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxRows = 8;

std::string PathOf(const RunDir& dir, std::int32_t slot) {
  return dir.absolute + "/ranks/.estimate-" + FiveDigits(slot);
}

// Bytes that the requested window needs on this rank; -1 if unknown.
double Needed(const RankEstimate& rank, const WindowPlan& plan) {
  WindowSpec spec{};
  FillSpec(plan, spec);
  if (const std::int64_t steps = StepsWanted(spec); steps > 0)
    return rank.steps > 0 ? static_cast<double>(rank.step_bytes_p50) * static_cast<double>(steps) : -1;
  if (plan.kind == WindowKind::kTrigger && rank.steps > 0)
    return static_cast<double>(rank.step_bytes_p50) * static_cast<double>(plan.trigger_steps);
  const bool timed = plan.duration_ns > 0 && (plan.kind == WindowKind::kTimer || plan.kind == WindowKind::kTrigger);
  if (timed && rank.wall_ns > 0)
    return static_cast<double>(rank.bytes) * static_cast<double>(plan.duration_ns) / static_cast<double>(rank.wall_ns);
  return plan.kind == WindowKind::kAll ? static_cast<double>(rank.bytes) : -1;
}

// Removes only files that agents make, so that a directory with other files stays.
void Remove(const RunDir& dir) {
  std::error_code ignored;
  for (const std::string& sub : {dir.absolute + "/ranks", dir.absolute}) {
    for (const auto& entry : fs::directory_iterator(sub, ignored)) {
      const std::string name = entry.path().filename().string();
      for (const char* ours : {".agent-", ".estimate-", ".launch-", ".clock", ".window-", ".run-id"})
        if (name.starts_with(ours)) RemoveOwn(entry.path().string());
    }
    ::rmdir(sub.c_str());
  }
  const fs::path base = fs::path(dir.absolute).parent_path();
  for (const auto& entry : fs::directory_iterator(base, ignored)) {
    if (!entry.path().filename().string().starts_with(".id-") || !entry.is_symlink(ignored)) continue;
    if (fs::read_symlink(entry.path(), ignored) == fs::path(dir.absolute).filename())
      RemoveOwnLink(entry.path().string());
  }
  ::rmdir(base.c_str());  // Removed as well if it was made for this purpose only.
}

}  // namespace

void StepBytes::Add(std::int64_t next_step, std::uint64_t bytes) {
  if (next_step == 0) {  // What comes before the first step belongs to no step.
    last_step_ = 0;
    last_bytes_ = bytes;
    return;
  }
  if (next_step > last_step_ && last_step_ >= 0) {
    const std::int64_t steps = next_step - last_step_;
    samples_.push_back({static_cast<std::int64_t>(bytes - last_bytes_) / steps, steps});
    steps_ += steps;
  }
  if (next_step > last_step_ || last_step_ < 0) {
    last_step_ = next_step;
    last_bytes_ = bytes;
  }
}

std::int64_t StepBytes::Median() const {
  std::vector<Sample> sorted = samples_;
  std::sort(sorted.begin(), sorted.end(), [](const Sample& a, const Sample& b) { return a.step_bytes < b.step_bytes; });
  std::int64_t seen = 0;
  for (const Sample& sample : sorted) {
    seen += sample.steps;
    if (2 * seen >= steps_) return sample.step_bytes;
  }
  return 0;
}

void WriteEstimate(const RunDir& dir, const RankEstimate& estimate) {
  std::ostringstream text;
  text << estimate.records << ' ' << estimate.bytes << ' ' << estimate.wall_ns << ' ' << estimate.steps << ' '
       << estimate.step_bytes_p50 << '\n';
  ReplaceFile(PathOf(dir, estimate.rank), text.str(), 0666);  // If this fails, rank 0 reports which ranks are missing.
}

std::vector<RankEstimate> CollectEstimates(const RunDir& dir, std::int32_t slots, std::int64_t wait_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  std::vector<RankEstimate> ranks;
  for (std::int32_t slot = 0; slot < slots;) {
    RankEstimate rank;
    rank.rank = slot;
    std::ifstream file(PathOf(dir, slot));
    if (file >> rank.records >> rank.bytes >> rank.wall_ns >> rank.steps >> rank.step_bytes_p50) {
      ranks.push_back(rank);
      ++slot;
    } else if (std::chrono::steady_clock::now() >= end) {
      ++slot;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  Remove(dir);
  return ranks;
}

std::vector<std::string> DescribeEstimates(const std::vector<RankEstimate>& ranks, std::int32_t slots,
                                           const WindowPlan& plan, std::uint64_t max_bytes, std::uint64_t free_bytes) {
  std::vector<std::string> lines;
  char line[256];
  std::snprintf(line, sizeof line, "estimate, nothing was written (%zu of %d ranks)", ranks.size(), slots);
  lines.emplace_back(line);
  std::snprintf(line, sizeof line, "%6s %14s %14s %10s %14s", "rank", "records/s", "bytes/step", "steps",
                plan.kind == WindowKind::kAll ? "whole run" : "the window");
  lines.emplace_back(line);
  std::vector<RankEstimate> sorted = ranks;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  double all = 0, largest = 0, per_second = 0;
  std::int64_t per_step = 0, steps = 0;
  bool known = !ranks.empty();
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const RankEstimate& rank = sorted[i];
    const double needed = plan.Includes(rank.rank) ? Needed(rank, plan) : 0;
    const double rate =
        rank.wall_ns > 0 ? static_cast<double>(rank.records) * 1e9 / static_cast<double>(rank.wall_ns) : 0;
    known = known && needed >= 0;
    all += std::max(needed, 0.0);
    largest = std::max(largest, needed);
    per_second += rate;
    per_step += rank.step_bytes_p50;
    steps = std::max(steps, rank.steps);
    if (i >= kMaxRows) continue;
    std::snprintf(line, sizeof line, "%6d %14.0f %14s %10" PRId64 " %14s", rank.rank, rate,
                  rank.steps > 0 ? std::to_string(rank.step_bytes_p50).c_str() : "-", rank.steps,
                  needed >= 0 ? ByteText(needed).c_str() : "unknown");
    lines.emplace_back(line);
  }
  if (sorted.size() > kMaxRows) lines.push_back("   ... " + std::to_string(sorted.size() - kMaxRows) + " smaller ones");
  std::snprintf(line, sizeof line, "%6s %14.0f %14s %10" PRId64 " %14s", "all", per_second,
                steps > 0 ? std::to_string(per_step).c_str() : "-", steps, known ? ByteText(all).c_str() : "unknown");
  lines.emplace_back(line);
  if (!known) {
    lines.emplace_back("what the window needs is not known: no steps were live, or it has no fixed length");
    return lines;
  }
  std::string verdict = plan.text + ": at most " + ByteText(largest) + " per rank, --max-bytes is " +
                        ByteText(static_cast<double>(max_bytes)) +
                        (largest > static_cast<double>(max_bytes) ? ": it would be cut short" : ": enough");
  if (free_bytes > 0)
    verdict += "; " + ByteText(static_cast<double>(free_bytes)) + " free on disk here" +
               (all > static_cast<double>(free_bytes) ? ": not enough if all ranks write here" : "");
  lines.push_back(verdict);
  return lines;
}

}  // namespace lockstep::agent
