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

// By what a file says of the job; files that say nothing belong to the run with the most files.
template <typename Value>
std::vector<Files> ByFact(std::span<const RunClue> clues, const Files& files, Value RunClue::*fact) {
  std::map<Value, Files> told;
  Files silent;
  for (const std::size_t i : files) (clues[i].*fact != Value{} ? told[clues[i].*fact] : silent).push_back(i);
  std::vector<Files> runs;
  for (auto& [value, of_value] : told) runs.push_back(std::move(of_value));
  if (runs.empty()) return {silent};
  const auto most =
      std::max_element(runs.begin(), runs.end(), [](const Files& a, const Files& b) { return a.size() < b.size(); });
  most->insert(most->end(), silent.begin(), silent.end());
  return runs;
}

// A group that `a` names, of which the rank of `b` is a member and does not know of: they are of different jobs. What a
// group is called says nothing, as ranks may number their groups by themselves.
const ToldGroup* Contradicting(const RunClue& a, const RunClue& b) {
  if (b.told_rank < 0 || b.groups.empty()) return nullptr;
  for (const ToldGroup& group : a.groups)
    if (std::find(group.ranks.begin(), group.ranks.end(), b.told_rank) != group.ranks.end() &&
        std::none_of(b.groups.begin(), b.groups.end(), [&](const ToldGroup& own) { return own.ranks == group.ranks; }))
      return &group;
  return nullptr;
}

// A file is of the first run none of whose files contradicts it.
std::vector<Files> ByGroups(std::span<const RunClue> clues, const Files& files) {
  std::vector<Files> runs;
  for (const std::size_t i : files) {
    const auto own = std::find_if(runs.begin(), runs.end(), [&](const Files& run) {
      return std::none_of(run.begin(), run.end(), [&](std::size_t k) {
        return Contradicting(clues[i], clues[k]) != nullptr || Contradicting(clues[k], clues[i]) != nullptr;
      });
    });
    if (own == runs.end())
      runs.push_back({i});
    else
      own->push_back(i);
  }
  return runs;
}

bool IsCopy(const RunClue& a, const RunClue& b) {
  return a.told_rank == b.told_rank && a.begin_ns == b.begin_ns && a.end_ns == b.end_ns;
}

bool AnyRankTwice(std::span<const RunClue> clues, const Files& files) {
  std::map<std::pair<std::string, std::int32_t>, std::size_t> ranks;
  for (const std::size_t i : files) {
    if (clues[i].told_rank < 0) continue;
    const auto [at, fresh] = ranks.emplace(std::pair(clues[i].format, clues[i].told_rank), i);
    if (!fresh && !IsCopy(clues[i], clues[at->second])) return true;
  }
  return false;
}

// "/jobs/a/rank_3.json" is "/jobs/a/rank_#.json".
std::string WithoutNumbers(const std::string& path) {
  std::string text;
  for (const char c : path) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit)
      text += c;
    else if (text.empty() || text.back() != '#')
      text += '#';
  }
  return text;
}

// Files that have this in common are of one run, and so are several such sets as long as no rank occurs twice.
template <typename Common>
std::vector<Files> ByCommon(std::span<const RunClue> clues, const Files& files, Common&& common) {
  std::map<std::string, Files> sets;
  for (const std::size_t i : files) sets[common(clues[i])].push_back(i);
  std::vector<Files> order;
  for (auto& [text, set] : sets) order.push_back(std::move(set));
  std::stable_sort(order.begin(), order.end(), [](const Files& a, const Files& b) { return a.size() > b.size(); });
  std::vector<Files> runs;
  for (Files& set : order) {
    const auto own = std::find_if(runs.begin(), runs.end(), [&](const Files& run) {
      Files both = run;
      both.insert(both.end(), set.begin(), set.end());
      return !AnyRankTwice(clues, both);
    });
    if (own == runs.end())
      runs.push_back(std::move(set));
    else
      own->insert(own->end(), set.begin(), set.end());
  }
  return runs;
}

// Of files that overlap in time, where a rank occurs twice.
std::vector<Files> ByWhereTheyAre(std::span<const RunClue> clues, const Files& files) {
  const auto tells = [&](const std::vector<Files>& runs) {
    return std::none_of(runs.begin(), runs.end(), [&](const Files& run) { return AnyRankTwice(clues, run); });
  };
  if (std::vector<Files> runs = ByCommon(clues, files, [](const RunClue& c) { return WithoutNumbers(c.path); });
      tells(runs))
    return runs;
  if (std::vector<Files> runs = ByCommon(clues, files, [](const RunClue& c) { return c.host; }); tells(runs))
    return runs;
  return {files};
}

std::string Span(std::int64_t ns) {
  constexpr std::int64_t kSecond = 1'000'000'000, kMinute = 60 * kSecond, kHour = 60 * kMinute, kDay = 24 * kHour;
  for (const auto& [unit, name] : {std::pair{kDay, "days"}, {kHour, "hours"}, {kMinute, "minutes"}})
    if (ns >= 2 * unit) return fmt::format("{} {}", ns / unit, name);
  return fmt::format("{} s", ns / kSecond);
}

std::string RankList(const std::vector<std::int32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0, end = 0; i < ranks.size(); i = end) {
    for (end = i + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(ranks[i]);
    if (end - i > 1) text += fmt::format("-{}", ranks[end - 1]);
  }
  return text;
}

std::string Joined(const std::set<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : ", ") + text;
  return joined;
}

// What files of a run say of it; "" if they do not.
template <typename Value>
Value Said(std::span<const RunClue> clues, const Files& files, Value RunClue::*fact) {
  Value said{};
  for (const std::size_t i : files) said = std::max(said, clues[i].*fact);
  return said;
}

std::string WhatTells(std::span<const RunClue> clues, const Files& first, const Files& other) {
  const auto extent = [&](const Files& files) {
    std::pair at{clues[files[0]].begin_ns, clues[files[0]].end_ns};
    for (const std::size_t i : files) {
      at.first = std::min(at.first, clues[i].begin_ns);
      at.second = std::max(at.second, clues[i].end_ns);
    }
    return at;
  };
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const auto [begin, end] = extent(first);
  const auto [own_begin, own_end] = extent(other);
  if (const std::int64_t after = Gap(end, own_begin); after > 0)
    add(fmt::format("recorded {} after", Span(after)));
  else if (const std::int64_t before = Gap(own_end, begin); before > 0)
    add(fmt::format("recorded {} before", Span(before)));
  if (const std::int64_t own = Said(clues, other, &RunClue::told_world_size),
      size = Said(clues, first, &RunClue::told_world_size);
      own > 0 && size > 0 && own != size)
    add(fmt::format("says the job has {} ranks, not {}", own, size));
  for (const auto& [what, fact] : {std::pair{"its backend is", &RunClue::backend}, {"NCCL is", &RunClue::nccl_version}})
    if (const std::string own = Said(clues, other, fact), its = Said(clues, first, fact);
        !own.empty() && !its.empty() && own != its)
      add(fmt::format("says {} {}, not {}", what, own, its));
  const ToldGroup *unknown_there = nullptr, *unknown_here = nullptr;
  for (const std::size_t i : other)
    for (const std::size_t k : first) {
      if (unknown_there == nullptr) unknown_there = Contradicting(clues[i], clues[k]);
      if (unknown_here == nullptr) unknown_here = Contradicting(clues[k], clues[i]);
    }
  if (unknown_there != nullptr)
    add(fmt::format("has a process group of the ranks {}, which the others do not know",
                    RankList(unknown_there->ranks)));
  else if (unknown_here != nullptr)
    add(fmt::format("does not know the others' process group of the ranks {}", RankList(unknown_here->ranks)));
  if (!text.empty()) return text;
  std::set<std::int32_t> ranks;
  std::vector<std::int32_t> twice;
  std::set<std::string> hosts, first_hosts;
  for (const std::size_t i : first) ranks.insert(clues[i].told_rank), first_hosts.insert(clues[i].host);
  for (const std::size_t i : other) {
    if (clues[i].told_rank >= 0 && ranks.contains(clues[i].told_rank)) twice.push_back(clues[i].told_rank);
    hosts.insert(clues[i].host);
  }
  std::sort(twice.begin(), twice.end());
  if (!twice.empty())
    add(fmt::format("{} {} a second time, at the same time", twice.size() == 1 ? "rank" : "ranks", RankList(twice)));
  if (hosts != first_hosts && !hosts.contains("") && !first_hosts.contains(""))
    add(fmt::format("recorded on {}, not {}", Joined(hosts), Joined(first_hosts)));
  return text;
}

}  // namespace

std::vector<RunOfFiles> TellRunsApart(std::span<const RunClue> clues) {
  Files all;
  for (std::size_t i = 0; i < clues.size(); ++i) all.push_back(i);
  std::vector<Files> runs = {all};
  const auto divide = [&](auto&& into) {
    std::vector<Files> divided;
    for (const Files& run : runs)
      for (Files& piece : into(run)) divided.push_back(std::move(piece));
    runs = std::move(divided);
  };
  divide([&](const Files& run) { return ByTime(clues, run, kFarApartNs); });
  divide([&](const Files& run) { return ByFact(clues, run, &RunClue::told_world_size); });
  divide([&](const Files& run) { return ByFact(clues, run, &RunClue::backend); });
  divide([&](const Files& run) { return ByFact(clues, run, &RunClue::nccl_version); });
  divide([&](const Files& run) { return ByGroups(clues, run); });
  divide([&](const Files& run) { return AnyRankTwice(clues, run) ? ByTime(clues, run, 0) : std::vector<Files>{run}; });
  divide([&](const Files& run) {
    return AnyRankTwice(clues, run) ? ByWhereTheyAre(clues, run) : std::vector<Files>{run};
  });
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
