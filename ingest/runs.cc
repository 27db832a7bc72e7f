#include "ingest/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace lockstep::ingest {
namespace {

using Files = std::vector<std::size_t>;

// Traces of one run are no further apart than this: clocks do not differ that much, and ranks are not recorded that far
// apart.
constexpr std::int64_t kFarApartNs = 600'000'000'000;

std::int64_t Gap(std::int64_t from, std::int64_t to) {
  std::int64_t gap = 0;
  return __builtin_sub_overflow(to, from, &gap) ? (to > from ? INT64_MAX : INT64_MIN) : gap;
}

// A gap of more than `gap_ns` without a recording begins another run.
std::vector<Files> ByTime(std::span<const RunClue> clues, Files files, std::int64_t gap_ns) {
  std::stable_sort(files.begin(), files.end(),
                   [&](std::size_t a, std::size_t b) { return clues[a].begin_ns < clues[b].begin_ns; });
  std::vector<Files> runs;
  std::int64_t end = 0;
  for (const std::size_t i : files) {
    if (runs.empty() || Gap(end, clues[i].begin_ns) > gap_ns) runs.emplace_back(), end = clues[i].end_ns;
    runs.back().push_back(i);
    end = std::max(end, clues[i].end_ns);
  }
  return runs;
}

// Files without a world size belong to the run with the most files.
std::vector<Files> ByWorldSize(std::span<const RunClue> clues, const Files& files) {
  std::map<std::int64_t, Files> told;
  Files silent;
  for (const std::size_t i : files)
    (clues[i].told_world_size > 0 ? told[clues[i].told_world_size] : silent).push_back(i);
  std::vector<Files> runs;
  for (auto& [size, of_size] : told) runs.push_back(std::move(of_size));
  if (runs.empty()) return {silent};
  const auto most =
      std::max_element(runs.begin(), runs.end(), [](const Files& a, const Files& b) { return a.size() < b.size(); });
  most->insert(most->end(), silent.begin(), silent.end());
  return runs;
}

bool AnyRankTwice(std::span<const RunClue> clues, const Files& files) {
  std::set<std::int32_t> ranks;
  for (const std::size_t i : files)
    if (clues[i].told_rank >= 0 && !ranks.insert(clues[i].told_rank).second) return true;
  return false;
}

std::string Span(std::int64_t ns) {
  constexpr std::int64_t kSecond = 1'000'000'000, kMinute = 60 * kSecond, kHour = 60 * kMinute, kDay = 24 * kHour;
  for (const auto& [unit, name] : {std::pair{kDay, "days"}, {kHour, "hours"}, {kMinute, "minutes"}})
    if (ns >= 2 * unit) return fmt::format("{} {}", ns / unit, name);
  return fmt::format("{} s", ns / kSecond);
}

std::string WhatTells(std::span<const RunClue> clues, const Files& first, const Files& other) {
  const auto world = [&](const Files& files) {
    std::int64_t size = 0;
    for (const std::size_t i : files) size = std::max(size, clues[i].told_world_size);
    return size;
  };
  const auto extent = [&](const Files& files) {
    std::pair at{clues[files[0]].begin_ns, clues[files[0]].end_ns};
    for (const std::size_t i : files) {
      at.first = std::min(at.first, clues[i].begin_ns);
      at.second = std::max(at.second, clues[i].end_ns);
    }
    return at;
  };
  std::string text;
  const auto [begin, end] = extent(first);
  const auto [own_begin, own_end] = extent(other);
  if (const std::int64_t after = Gap(end, own_begin); after > 0)
    text = fmt::format("recorded {} after", Span(after));
  else if (const std::int64_t before = Gap(own_end, begin); before > 0)
    text = fmt::format("recorded {} before", Span(before));
  const std::int64_t own = world(other), size = world(first);
  if (own > 0 && size > 0 && own != size)
    text += fmt::format("{}says the job has {} ranks, not {}", text.empty() ? "" : ", ", own, size);
  return text;
}

}  // namespace

std::vector<RunOfFiles> TellRunsApart(std::span<const RunClue> clues) {
  Files all;
  for (std::size_t i = 0; i < clues.size(); ++i) all.push_back(i);
  std::vector<Files> runs;
  for (const Files& within : ByTime(clues, all, kFarApartNs))
    for (Files& of_size : ByWorldSize(clues, within)) {
      if (!AnyRankTwice(clues, of_size)) {
        runs.push_back(std::move(of_size));
        continue;
      }
      for (Files& piece : ByTime(clues, std::move(of_size), 0)) runs.push_back(std::move(piece));
    }
  for (Files& run : runs) std::sort(run.begin(), run.end());
  std::stable_sort(runs.begin(), runs.end(), [](const Files& a, const Files& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  std::vector<RunOfFiles> told;
  for (Files& run : runs) {
    std::string apart = told.empty() ? "" : WhatTells(clues, told.front().files, run);
    told.push_back({std::move(run), std::move(apart)});
  }
  return told;
}

}  // namespace lockstep::ingest
