#include "cli/commands/info_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "analysis/core/format.h"
#include "core/loss.h"
#include "core/order_statistics.h"
#include "core/printed.h"

namespace lockstep::cli {
namespace {

// What a run was; the other facts of a file are for who looks at that file.
constexpr std::string_view kFactsOfRank[] = {"command", "host",     "launcher",  "recording",
                                             "sources", "imported", "exit_code", "exit_signal"};
constexpr std::string_view kFactsOfTimeline[] = {"window_first_step", "window_last_step", "events", "dropped"};
// How the other tables' rows are stored.
constexpr std::string_view kHiddenTables[] = {"meta", "strings", "string_bytes"};

constexpr std::size_t kMostGroups = 6, kMostOutliers = 5, kMostValues = 3, kMostValueColumns = 40;

using Members = std::vector<const RankFile*>;

std::int64_t Size(const Members& members) { return static_cast<std::int64_t>(members.size()); }

// What ranks that do the same work have in common; rows differ by what happened.
std::string KindOfFile(const RankFile& file) {
  std::string kind =
      file.facts.format + (file.facts.complete ? "|complete" : "|cut") + (file.facts.recovered ? "|recovered" : "");
  for (const TableFacts& table : file.facts.tables)
    if (table.rows > 0) kind += "|" + table.name;
  std::set<std::string> losses;
  for (const FileFacts::LossFacts& loss : file.facts.losses) losses.insert(loss.name);
  for (const std::string& loss : losses) kind += "|lost " + loss;
  for (const std::string& damage : file.facts.damaged) kind += "|damaged " + damage;
  for (const std::string& column : file.facts.missing_columns) kind += "|without " + column;
  return kind;
}

std::string NamesOf(const Members& members) {
  std::vector<std::int32_t> ranks;
  std::string others;
  for (const RankFile* file : members) {
    if (file->rank >= 0)
      ranks.push_back(file->rank);
    else if (others.size() < 100)
      others += (others.empty() ? "" : ", ") + Printed(std::filesystem::path(file->facts.path).filename().string());
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string names;
  if (!ranks.empty()) names = (ranks.size() == 1 ? "rank " : "ranks ") + analysis::ShortRankList(ranks, 60);
  return names + (names.empty() || others.empty() ? "" : ", ") + others;
}

std::string StateOf(const FileFacts& facts) {
  return facts.format + ", " +
         (!facts.complete   ? "not complete: its writer did not finish"
          : facts.recovered ? "complete, recovered from what its agent left"
                            : "complete");
}

// 9 before 10.
bool NumbersFirst(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& text) { return text.find_first_not_of("0123456789") == std::string::npos; };
  return number(a) && number(b) && a.size() != b.size() ? a.size() < b.size() : a < b;
}

// "node0 (256 ranks), node1 (255) and 3 other values".
std::string ValuesOf(const std::map<std::string, Members>& values) {
  std::vector<std::pair<std::string, const Members*>> order;
  for (const auto& [value, members] : values) order.emplace_back(value, &members);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second->size() > b.second->size(); });
  std::size_t all = 0;
  for (const auto& [value, members] : order) all += members->size();
  if (order.size() > kMostValues && order.size() * 2 > all) {
    const auto less = [](const auto& a, const auto& b) { return NumbersFirst(a.first, b.first); };
    const auto [first, last] = std::minmax_element(order.begin(), order.end(), less);
    return fmt::format("another one on {}: {} .. {}", order.size() == all ? "each" : "most",
                       PrintedShort(Printed(first->first), kMostValueColumns),
                       PrintedShort(Printed(last->first), kMostValueColumns));
  }
  std::string text;
  const std::size_t shown = order.size() > kMostValues ? kMostValues - 1 : order.size();
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& [value, members] = order[i];
    const std::string name = PrintedShort(Printed(value), kMostValueColumns);
    text +=
        fmt::format("{}{} ({})", text.empty() ? "" : ", ", name,
                    members->size() <= kMostOutliers ? NamesOf(*members) : analysis::Plural(Size(*members), "rank"));
  }
  if (shown < order.size())
    text += " and " + analysis::Plural(static_cast<std::int64_t>(order.size() - shown), "other value");
  return text;
}

bool Among(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void AddMeta(const Members& members, std::span<const std::string_view> facts, std::string& out) {
  std::vector<std::string> keys;
  std::map<std::string, std::map<std::string, Members>> values;
  for (const RankFile* file : members)
    for (const auto& [key, value] : file->facts.meta) {
      if (!Among(facts, key) || value.empty() || (key == "exit_code" && value == "0")) continue;
      if (!values.contains(key)) keys.push_back(key);
      values[key][value].push_back(file);
    }
  if (!keys.empty()) out += '\n';
  for (const std::string& key : keys) {
    const auto& of_key = values[key];
    const bool same = of_key.size() == 1 && of_key.begin()->second.size() == members.size();
    out += fmt::format("  {:<18} {}\n", Printed(key), same ? Printed(of_key.begin()->first) : ValuesOf(of_key));
  }
}

struct TableOfAll {
  std::string name;
  std::vector<std::pair<std::uint64_t, const RankFile*>> rows;
};

// Ranks of which a table has far more or fewer rows than of the others; the furthest first.
std::vector<std::string> OutliersOf(const TableOfAll& table, std::uint64_t median) {
  const auto distance = [&](std::uint64_t rows) { return rows > median ? rows - median : median - rows; };
  std::vector<std::uint64_t> distances;
  for (const auto& each : table.rows) distances.push_back(distance(each.first));
  const std::uint64_t usual = UpperMedian(std::move(distances));
  std::vector<std::pair<std::uint64_t, const RankFile*>> far;
  for (const auto& each : table.rows)
    if (distance(each.first) > 10 * usual && distance(each.first) * 20 > median) far.push_back(each);
  std::stable_sort(far.begin(), far.end(),
                   [&](const auto& a, const auto& b) { return distance(a.first) > distance(b.first); });
  std::vector<std::string> lines;
  for (const auto& [rows, file] : far)
    lines.push_back(fmt::format("{}: {} rows in {}, others {}", NamesOf({file}),
                                analysis::Count(static_cast<std::int64_t>(rows)), table.name,
                                analysis::Count(static_cast<std::int64_t>(median))));
  return lines;
}

void AddTables(const Members& members, std::string& out) {
  std::vector<TableOfAll> tables;
  for (const TableFacts& table : members.front()->facts.tables)
    if (table.rows > 0 && !Among(kHiddenTables, table.name)) tables.push_back({table.name, {}});
  if (tables.empty()) return;
  for (TableOfAll& table : tables)
    for (const RankFile* file : members)
      for (const TableFacts& each : file->facts.tables)
        if (each.name == table.name) table.rows.emplace_back(each.rows, file);
  out += fmt::format("\n  {:<18} {:>14} {:>14} {:>14}\n", "rows of table", "median", "fewest", "most");
  std::vector<std::string> outliers;
  for (TableOfAll& table : tables) {
    std::vector<std::uint64_t> rows;
    for (const auto& each : table.rows) rows.push_back(each.first);
    const auto [fewest, most] = std::minmax_element(rows.begin(), rows.end());
    const std::uint64_t median = LowerMedian(rows);
    const bool differ = *fewest != *most;
    out += fmt::format("  {:<18} {:>14}", table.name, analysis::Count(static_cast<std::int64_t>(median)));
    out += differ ? fmt::format(" {:>14} {:>14}\n", analysis::Count(static_cast<std::int64_t>(*fewest)),
                                analysis::Count(static_cast<std::int64_t>(*most)))
                  : "\n";
    for (std::string& line : OutliersOf(table, median)) outliers.push_back(std::move(line));
  }
  if (outliers.empty()) return;
  out += '\n';
  for (std::size_t i = 0; i < std::min(kMostOutliers, outliers.size()); ++i) out += "  " + outliers[i] + "\n";
  if (outliers.size() > kMostOutliers) out += fmt::format("  and {} like these\n", outliers.size() - kMostOutliers);
}

void AddLosses(const Members& members, std::string& out) {
  std::map<std::string, std::pair<FileFacts::LossFacts, Members>> losses;
  for (const RankFile* file : members)
    for (const FileFacts::LossFacts& loss : file->facts.losses) {
      auto& [sum, where] = losses[loss.name];
      sum.name = loss.name;
      sum.count += loss.count;
      if (sum.detail.empty()) sum.detail = loss.detail;
      if (where.empty() || where.back() != file) where.push_back(file);
    }
  if (!losses.empty()) out += "\n  not in these files\n";
  for (const auto& [name, each] : losses) out += "  " + Printed(TextOfLoss(each.first)) + "\n";
}

// `kin`: the files of the largest group, of which this one is described by what is different; null for that itself.
void AddGroup(const Members& members, const Members* kin, std::string& out) {
  const FileFacts& facts = members.front()->facts;
  out += fmt::format("\n{}\n  {}\n", NamesOf(members), Printed(StateOf(facts)));
  for (const std::string& note : facts.notes)
    if (std::all_of(members.begin(), members.end(), [&](const RankFile* file) {
          return std::find(file->facts.notes.begin(), file->facts.notes.end(), note) != file->facts.notes.end();
        }))
      out += "  " + Printed(note) + "\n";
  if (kin == nullptr) {
    const bool timeline = facts.format.starts_with("lockstep.timeline");
    AddMeta(members, timeline ? std::span<const std::string_view>(kFactsOfTimeline) : kFactsOfRank, out);
    if (!timeline) AddTables(members, out);
  } else {
    std::set<std::string> here, there;
    for (const TableFacts& table : facts.tables)
      if (table.rows > 0) here.insert(table.name);
    for (const TableFacts& table : kin->front()->facts.tables)
      if (table.rows > 0) there.insert(table.name);
    std::string more, fewer;
    for (const std::string& name : here)
      if (!there.contains(name)) more += (more.empty() ? "" : ", ") + name;
    for (const std::string& name : there)
      if (!here.contains(name)) fewer += (fewer.empty() ? "" : ", ") + name;
    if (!more.empty()) out += "  with " + more + ", which the others lack\n";
    if (!fewer.empty()) out += "  without " + fewer + "\n";
  }
  AddLosses(members, out);
  for (const std::string& damage : facts.damaged) out += "  damaged: " + Printed(damage) + "\n";
  if (!facts.missing_columns.empty())
    out += fmt::format("  {} of this version missing in the files, read as unknown\n",
                       analysis::Plural(static_cast<std::int64_t>(facts.missing_columns.size()), "column"));
}

}  // namespace

std::string TextOfLoss(const FileFacts::LossFacts& loss) {
  const LossInfo* info = FindLoss(loss.name);
  return analysis::CountOf(loss.count, info != nullptr ? info->sentence : std::string_view(loss.name)) +
         (loss.detail.empty() ? "" : "; " + loss.detail);
}

std::string SummaryOf(const std::vector<RankFile>& files) {
  std::map<std::string, Members> kinds;
  for (const RankFile& file : files) kinds[KindOfFile(file)].push_back(&file);
  std::vector<Members> groups;
  for (auto& [kind, members] : kinds) groups.push_back(std::move(members));
  // Of two of one size the one with the first file.
  std::sort(groups.begin(), groups.end(), [](const Members& a, const Members& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  std::string out;
  for (std::size_t i = 0; i < std::min(kMostGroups, groups.size()); ++i)
    AddGroup(groups[i], i == 0 ? nullptr : &groups.front(), out);
  if (groups.size() > kMostGroups) {
    Members rest;
    for (std::size_t i = kMostGroups; i < groups.size(); ++i)
      rest.insert(rest.end(), groups[i].begin(), groups[i].end());
    out +=
        fmt::format("\n{} ({}): each differs from those above\n", NamesOf(rest), analysis::Plural(Size(rest), "file"));
  }
  return out;
}

}  // namespace lockstep::cli
