#include "ingest/map/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "ingest/map/names.h"
#include "trace/file/strings.h"

namespace lockstep::ingest {
namespace {

constexpr std::size_t kNamesSaid = 8;

// The first number in a name: "step 12", "iteration=12", "step 3/100"; -1: none.
std::int64_t NumberIn(std::string_view text) {
  const std::size_t begin = text.find_first_of("0123456789");
  if (begin == std::string_view::npos) return -1;
  std::int64_t number = -1;
  const auto [at, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  return error == std::errc() ? number : -1;
}

struct StepName {
  std::size_t order = 0;  // The place among the words that users call steps by.
  std::string word;
  std::int64_t number = -1;
};

std::optional<StepName> StepNameOf(std::string_view name, std::string_view step_range) {
  if (step_range.empty()) {
    const int word = StepWord(name);
    if (word < 0) return std::nullopt;
    return StepName{static_cast<std::size_t>(word), Letters(name), NumberIn(name)};
  }
  if (!name.starts_with(step_range)) return std::nullopt;
  const std::string_view rest = name.substr(step_range.size());
  const std::int64_t number = NumberIn(rest);
  if (!rest.empty() && (number < 0 || !Letters(rest).empty())) return std::nullopt;
  return StepName{0, std::string(step_range), number};
}

bool MayBeStep(const schema::Ranges& ranges, std::size_t i) {
  return (ranges.source[i] == schema::RangeSource::kNvtx || ranges.source[i] == schema::RangeSource::kTorch) &&
         ranges.kind[i] != schema::RangeKind::kMark;
}

}  // namespace

std::string StepsFromRanges(MappedTrace& trace, std::string_view step_range) {
  schema::RankTables& t = trace.tables;
  const schema::Ranges& ranges = t.ranges;
  std::vector<std::uint8_t> seen(t.strings.rows(), 0);
  std::map<std::uint32_t, StepName> names;  // By text.
  // By order, domain, word, thread: rows of ranges.
  std::map<std::tuple<std::size_t, std::uint32_t, std::string_view, std::uint32_t>, std::vector<std::size_t>>
      candidates;
  for (std::size_t i = 0; i < ranges.rows(); ++i) {
    const std::uint32_t text = ranges.name[i];
    if (text >= seen.size() || !MayBeStep(ranges, i)) continue;
    if (seen[text] == 0) {
      seen[text] = 1;
      if (auto name = StepNameOf(lockstep::trace::TextOf(t, text), step_range)) names.emplace(text, *std::move(name));
    }
    if (const auto at = names.find(text); at != names.end())
      candidates[{at->second.order, ranges.domain[i], at->second.word, ranges.thread[i]}].push_back(i);
  }
  if (candidates.empty()) return "";
  // Chooses the most reliable word, and of the threads that use it the one that does so most.
  auto best = candidates.begin();
  for (auto at = candidates.begin(); at != candidates.end(); ++at) {
    if (std::get<0>(at->first) != std::get<0>(best->first)) break;
    if (at->second.size() > best->second.size()) best = at;
  }
  std::vector<std::size_t>& rows = best->second;
  std::stable_sort(rows.begin(), rows.end(), [&](std::size_t a, std::size_t b) {
    return std::tuple(ranges.begin_ns[a], -ranges.duration_ns[a]) <
           std::tuple(ranges.begin_ns[b], -ranges.duration_ns[b]);
  });
  bool numbered = true;
  std::int64_t before = -1;
  for (const std::size_t row : rows) {
    const std::int64_t number = names[ranges.name[row]].number;
    numbered = numbered && number > before;
    before = number;
  }
  std::int64_t ordinal = 0, end = schema::kNoTime;
  for (const std::size_t row : rows) {
    if (ranges.begin_ns[row] < end) continue;  // It is inside another step.
    end = ranges.begin_ns[row] + ranges.duration_ns[row];
    const StepMark mark{numbered ? names[ranges.name[row]].number : ordinal, ranges.begin_ns[row], end,
                        ranges.thread[row]};
    ++ordinal;
    trace.steps.push_back(mark);
    t.steps.Append({.index = mark.index,
                    .begin_ns = mark.begin_ns,
                    .end_ns = mark.end_ns,
                    .source = schema::StepSource::kRange,
                    .complete = static_cast<std::uint8_t>(ranges.open[row] == 0),
                    .warmup = 0,
                    .thread = mark.thread,
                    .cpu_ns = -1});
  }
  return std::string(lockstep::trace::TextOf(t, ranges.name[rows.front()]));
}

std::string NamesOfRanges(const schema::RankTables& tables) {
  std::map<std::string, std::uint64_t> times;
  for (std::size_t i = 0; i < tables.ranges.rows(); ++i)
    if (MayBeStep(tables.ranges, i)) {
      std::string_view name = lockstep::trace::TextOf(tables, tables.ranges.name[i]);
      name = name.substr(0, name.find_last_not_of("0123456789 #=:") + 1);
      if (!name.empty() && !name.starts_with("nccl")) ++times[std::string(name)];
    }
  std::vector<std::pair<std::uint64_t, std::string>> names;
  for (const auto& [name, count] : times) names.emplace_back(count, name);
  std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string said;
  for (std::size_t i = 0; i < names.size() && i < kNamesSaid; ++i)
    said += fmt::format("{}{} ({})", i == 0 ? "" : ", ", names[i].second,
                        names[i].first == 1 ? "once" : fmt::format("{} times", names[i].first));
  if (names.size() > kNamesSaid) said += fmt::format(" and {} more", names.size() - kNamesSaid);
  return said;
}

}  // namespace lockstep::ingest
