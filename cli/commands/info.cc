// lockstep info: what a file or a run holds.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/run/ranks_recorded.h"
#include "cli/commands/info_summary.h"
#include "cli/gather/command.h"
#include "cli/input/file_facts.h"
#include "cli/input/imported.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "core/hash.h"
#include "core/hex.h"
#include "core/loss.h"
#include "merge/readers/run_files.h"
#include "trace/file/schema_text.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
struct InfoFlags {
  std::string what, json, ranks;
  bool digest = false, schema = false;
};

// Files of a run in the order of their names, the timeline last.
std::vector<std::string> FilesOf(const std::string& run) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const char* folder : {"ranks", "."}) {
    std::vector<std::string> here;
    for (fs::directory_iterator at(fs::path(run) / folder, ignored), end; !ignored && at != end;
         at.increment(ignored)) {
      const std::string extension = at->path().extension().string();
      if (extension == ".h5" || extension == ".spool" || at->path().string().ends_with(".h5.part"))
        here.push_back(at->path().lexically_normal().string());
    }
    std::sort(here.begin(), here.end());
    files.insert(files.end(), here.begin(), here.end());
  }
  return files;
}

void PrintFile(const FileFacts& facts, bool digest) {
  Show("{}\n  {}, {}\n", facts.path, facts.format,
       !facts.complete   ? "not complete: its writer did not finish"
       : facts.recovered ? "complete, recovered from what its agent left"
                         : "complete");
  for (const std::string& note : facts.notes) Show("  {}\n", note);
  if (!facts.meta.empty()) Show("\n");
  for (const auto& [key, value] : facts.meta) Show("  {:<18} {}\n", key, value);
  Show("\n  {:<18} {:>14}{}\n", "table", "rows", digest ? "  digest" : "");
  for (const TableFacts& table : facts.tables) {
    if (table.rows == 0 && !digest) continue;
    Show("  {:<18} {:>14}{}\n", table.name, analysis::Count(static_cast<std::int64_t>(table.rows)),
         table.digest ? "  " + Hex(*table.digest) : "");
    for (const auto& [column, value] : table.columns)
      if (table.rows != 0) Show("    {:<31}  {}\n", column, Hex(value));
  }
  if (facts.digest) Show("  {:<18} {:>14}  {}\n", "content", "", Hex(*facts.digest));
  if (!facts.losses.empty()) Show("\n  not in this file\n");
  for (const FileFacts::LossFacts& loss : facts.losses) Show("  {}\n", TextOfLoss(loss));
  for (const std::string& damage : facts.damaged) Show("  damaged: {}\n", damage);
  if (!facts.missing_columns.empty())
    Show("  {} of this version missing in the file, read as unknown: {}\n",
         analysis::Plural(static_cast<std::int64_t>(facts.missing_columns.size()), "column"),
         fmt::join(facts.missing_columns, ", "));
}

Json FileJson(const FileFacts& facts) {
  Json json{{"file", facts.path}, {"format", facts.format}, {"complete", facts.complete}};
  json["recovered"] = facts.recovered;
  json["notes"] = facts.notes;
  Json tables = Json::object(), meta = Json::object(), losses = Json::array();
  for (const TableFacts& table : facts.tables) {
    tables[table.name] = {{"rows", table.rows}};
    if (table.digest) tables[table.name]["digest"] = Hex(*table.digest);
    for (const auto& [column, value] : table.columns) tables[table.name]["columns"][column] = Hex(value);
  }
  for (const auto& [key, value] : facts.meta) meta[key] = value;
  for (const FileFacts::LossFacts& loss : facts.losses) {
    losses.push_back({{"name", loss.name}, {"count", loss.count}});
    if (!loss.detail.empty()) losses.back()["detail"] = loss.detail;
  }
  json["tables"] = std::move(tables);
  if (facts.digest) json["digest"] = Hex(*facts.digest);
  json["meta"] = std::move(meta);
  json["losses"] = std::move(losses);
  json["damaged"] = facts.damaged;
  json["missing_columns"] = facts.missing_columns.size();
  json["unknown_columns"] = facts.missing_columns;
  return json;
}

// Which ranks of the job are there, and in which files: a file may contain another rank than the number in its name, if
// several processes of one agent are ranks.
struct RanksThere {
  std::int64_t expected = 0;
  std::vector<std::pair<std::int32_t, std::string>> files;
  std::vector<std::int32_t> missing;
  std::vector<FileFacts::LossFacts> losses;  // Of the run: files that are in none of these.
};

std::optional<RanksThere> LookAtRanks(const std::string& run) {
  const Result<merge::RunFiles> files = merge::OpenRun(run, 1);
  if (!files.ok()) return std::nullopt;  // Its files are shown one by one, each with its error.
  RanksThere there{files.value().world_size, {}, files.value().missing};
  for (const merge::RunRank& rank : files.value().ranks) there.files.emplace_back(rank.rank, rank.file);
  // Missing ranks have a line of their own.
  for (const merge::RunLoss& loss : files.value().losses)
    if (const LossInfo* info = FindLoss(loss.name);
        info != nullptr && info->severity == Severity::kDataLoss && loss.name != Info(Loss::kRankMissing).name)
      there.losses.push_back({loss.name, loss.detail, loss.count});
  return there;
}

void PrintRanks(const RanksThere& there, bool summarised) {
  Show("{}\n", analysis::RanksRecorded(static_cast<std::int64_t>(there.files.size()), there.expected, there.missing));
  if (summarised) {
    Show("  {} to {}\n", there.files.front().second, there.files.back().second);
  } else {
    for (const auto& [rank, file] : there.files) Show("  rank {:<6} {}\n", rank, file);
  }
  for (const FileFacts::LossFacts& loss : there.losses) Show("  {}\n", TextOfLoss(loss));
  if (!summarised) Show("\n");
}

// File -> the rank whose it is.
std::map<std::string, std::int32_t> RanksOfFiles(const std::string& run, const std::optional<RanksThere>& there) {
  std::map<std::string, std::int32_t> ranks;
  if (there)
    for (const auto& [rank, file] : there->files)
      ranks.emplace((fs::path(run) / file).lexically_normal().string(), rank);
  return ranks;
}

// Leaves the files of the ranks that were asked for.
Status ChooseRanks(const InfoFlags& flags, const std::map<std::string, std::int32_t>& rank_of,
                   std::vector<std::string>& files) {
  if (flags.ranks.empty() || flags.ranks == "all") return Ok();
  Result<std::vector<std::int32_t>> ranks = ParseRanks(flags.ranks, "--ranks");
  if (!ranks.ok()) {
    Error error = ranks.error();
    error.hint += ", or --ranks all";
    return error;
  }
  std::vector<std::string> chosen;
  for (const std::int32_t rank : ranks.value()) {
    const auto at = std::find_if(rank_of.begin(), rank_of.end(), [&](const auto& each) { return each.second == rank; });
    if (at == rank_of.end())
      return Error{ErrorCode::kUsage, fmt::format("nothing is there of rank {}", rank), "--ranks",
                   "lockstep info RUN says which ranks are there"};
    chosen.push_back(at->first);
  }
  files = std::move(chosen);
  return Ok();
}

Result<int> Info(const InfoFlags& flags) {
  if (flags.schema) {
    ShowText(trace::SchemaMarkdown());
    return kOk;
  }
  std::vector<std::string> files;
  std::optional<RanksThere> there;
  std::string run;
  std::error_code ignored;
  if (!flags.what.empty() && fs::is_regular_file(flags.what, ignored) && !IsTrace(flags.what)) {
    files.push_back(flags.what);
  } else {
    LS_TRY(run, ResolveOne(flags.what, {}));
    files = FilesOf(run);
    if (files.empty()) LS_CHECK(MayBeRead(run + "/ranks"));
    if (files.empty())
      return Error{ErrorCode::kNotFound, "no rank files and no timeline here", run,
                   "lockstep info DIR, where DIR holds manifest.json and ranks/"};
    there = LookAtRanks(run);
  }
  const std::map<std::string, std::int32_t> rank_of = RanksOfFiles(run, there);
  LS_CHECK(ChooseRanks(flags, rank_of, files));
  const bool text = flags.json != "-";
  const bool summarised = text && there && there->files.size() > kMostInFull && flags.ranks.empty() && !flags.digest;
  int code = there && !(there->missing.empty() && there->losses.empty()) ? kIncomplete : kOk;
  if (there && text) PrintRanks(*there, summarised);
  std::vector<RankFile> of_ranks, others;
  std::size_t readable = 0;
  Json all = Json::array();
  std::vector<std::uint64_t> digests;
  for (const std::string& path : files) {
    const Result<FileFacts> facts = FactsOf(path, flags.digest);
    if (!facts.ok()) {
      const int failed = PrintError(facts.error());
      code = readable == 0 && path == files.back() ? failed : static_cast<int>(kIncomplete);
      continue;
    }
    ++readable;
    if (Suspicious(facts.value())) code = kIncomplete;
    all.push_back(FileJson(facts.value()));
    if (facts.value().digest) digests.push_back(*facts.value().digest);
    if (!text) continue;
    if (summarised) {
      const auto at = rank_of.find(path);
      const bool of_rank = fs::path(path).parent_path().filename() == "ranks";
      (of_rank ? of_ranks : others).push_back({at == rank_of.end() ? -1 : at->second, facts.value()});
      continue;
    }
    if (readable > 1) Show("\n");
    PrintFile(facts.value(), flags.digest);
  }
  if (there && !there->missing.empty())
    if (const std::string where = WhereOthersAre(run, static_cast<std::int32_t>(there->expected)); !where.empty())
      Note("{}\n", where);
  if (readable == 0) return code;
  for (const std::vector<RankFile>* kind : {&of_ranks, &others})
    if (!kind->empty()) ShowLines(SummaryOf(*kind));
  if (summarised) Show("\n  every file:  lockstep info {}--ranks all\n", flags.what.empty() ? "" : flags.what + " ");
  Json whole{{"schema", "lockstep.info/1"}, {"files", std::move(all)}};
  if (there) {
    whole["world_size"] = there->expected;
    whole["ranks"] = Json::array();
    for (const auto& [rank, file] : there->files) whole["ranks"].push_back({{"rank", rank}, {"file", file}});
    whole["ranks_missing"] = there->missing;
    whole["losses"] = Json::array();
    for (const FileFacts::LossFacts& loss : there->losses)
      whole["losses"].push_back({{"name", loss.name}, {"count", loss.count}, {"detail", loss.detail}});
  }
  if (flags.digest) {
    // The result does not depend on the files' names.
    std::sort(digests.begin(), digests.end());
    Hash64 total;
    for (const std::uint64_t one : digests) total.Add(one);
    whole["digest"] = Hex(total.value());
    if (text) Show("\ntotal {}\n", Hex(total.value()));
  }
  if (!flags.json.empty()) LS_CHECK(WriteOrShow(flags.json, JsonText(whole), ShowJson));
  return code;
}

}  // namespace

void AddInfo(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<InfoFlags>();
  CLI::App* info = root.add_subcommand("info", "Show what a rank file, a timeline or a run holds");
  info->footer(
      "Examples:\n"
      "  lockstep info                            the latest run\n"
      "  lockstep info RUN --ranks 0-3,7          the files of these ranks\n"
      "  lockstep info RUN/ranks/rank-00003.h5    tables and rows of one file\n"
      "  lockstep info RUN --digest               checksums that do not depend on how files were written");
  info->add_option("FILE_OR_RUN", flags->what,
                   "rank file, timeline.h5, spool, analysis.json or another JSON file of Lockstep's, a run's directory "
                   "(default: the latest run), or traces of other tools");
  info->add_option(
          "--ranks", flags->ranks,
          "show the files of these ranks; all: every file in full (default: a summary of several ranks' files)")
      ->type_name("0-3,7");
  info->add_flag("--digest", flags->digest,
                 "checksums of the values: each table, each dataset, the file, all; they do not depend on how the "
                 "files were written");
  info->add_flag("--schema", flags->schema, "print all tables and columns as Markdown");
  info->add_option("--json", flags->json, "write the same as JSON to FILE, - for stdout");
  info->callback([flags, &chosen] { chosen = [flags] { return Info(*flags); }; });
}

}  // namespace lockstep::cli
