// lockstep info: what a file or a run holds.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/run/ranks_recorded.h"
#include "cli/input/imported.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "core/hash.h"
#include "core/hex.h"
#include "core/loss.h"
#include "merge/readers/run_files.h"
#include "trace/decode/decode.h"
#include "trace/file/content_digest.h"
#include "trace/file/schema_text.h"
#include "trace/file/strings.h"
#include "trace/file/table_file.h"
#include "trace/spool/spool_facts.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
struct InfoFlags {
  std::string what, json;
  bool digest = false, schema = false;
};

struct TableFacts {
  std::string name;
  std::uint64_t rows = 0;
  std::optional<std::uint64_t> digest;
  std::vector<std::pair<std::string, std::uint64_t>> columns;  // With their digests.
};

// One rank file, timeline or spool.
struct FileFacts {
  std::string path, format, version;
  bool complete = false;
  std::vector<TableFacts> tables;
  std::vector<std::pair<std::string, std::string>> meta;
  struct LossFacts {
    std::string name, detail;
    std::uint64_t count;
  };
  std::vector<LossFacts> losses;
  std::vector<std::string> damaged, notes;
  bool recovered = false;                    // Made from the files that an agent left.
  std::vector<std::string> missing_columns;  // Columns newer than the file; they read as unknown.
  std::optional<std::uint64_t> digest;       // The digest of the whole content.
};

std::string WithCommas(std::uint64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

template <typename Strings, typename Bytes, typename Meta, typename Losses>
void AddTexts(FileFacts& facts, const Strings& strings, const Bytes& bytes, const Meta& meta, const Losses& losses) {
  for (std::size_t i = 0; i < meta.rows(); ++i)
    facts.meta.emplace_back(trace::TextOf(strings, bytes, meta.key[i]), trace::TextOf(strings, bytes, meta.value[i]));
  for (std::size_t i = 0; i < losses.rows(); ++i)
    facts.losses.push_back({std::string(trace::TextOf(strings, bytes, losses.name[i])),
                            std::string(trace::TextOf(strings, bytes, losses.detail[i])), losses.count[i]});
}

template <typename Table>
Table ReadOrNote(const trace::TableFile& file, FileFacts& facts) {
  Result<Table> table = file.Read<Table>();
  if (table.ok()) return std::move(table).value();
  facts.damaged.push_back(table.error().what);
  return {};
}

void AddDigest(TableFacts& facts, const trace::TableFile::Digest& digest, bool rank_file) {
  facts.digest = digest.value;
  const auto add = [&](const auto& infos) {
    for (const schema::TableInfo& table : infos)
      for (std::size_t c = 0; table.name == facts.name && c < table.column_count; ++c)
        facts.columns.emplace_back(table.columns[c].name, digest.columns[c]);
  };
  if (rank_file)
    add(schema::kRankTableInfos);
  else
    add(schema::kTimelineTableInfos);
}

Result<FileFacts> LookAtTables(const std::string& path, bool digest) {
  LS_TRY(const trace::TableFile file, trace::TableFile::Open(path));
  FileFacts facts;
  facts.path = path;
  facts.format = file.format();
  facts.complete = file.complete();
  facts.recovered = file.Attribute("recovered", std::int64_t{0}) != 0;
  const bool rank_file = file.format() == schema::kRankFileFormat;
  const auto add_rows = [&](const auto& infos) {
    for (const schema::TableInfo& table : infos)
      facts.tables.push_back({std::string(table.name), file.Rows(table.name), {}});
  };
  if (rank_file) {
    add_rows(schema::kRankTableInfos);
    AddTexts(facts, ReadOrNote<schema::Strings>(file, facts), ReadOrNote<schema::StringBytes>(file, facts),
             ReadOrNote<schema::Meta>(file, facts), ReadOrNote<schema::Losses>(file, facts));
  } else {
    add_rows(schema::kTimelineTableInfos);
    AddTexts(facts, ReadOrNote<schema::TlStrings>(file, facts), ReadOrNote<schema::TlStringBytes>(file, facts),
             ReadOrNote<schema::TlMeta>(file, facts), ReadOrNote<schema::TlLosses>(file, facts));
  }
  if (digest) {
    LS_TRY(const std::vector<trace::TableFile::Digest> digests, file.Digests());
    for (std::size_t i = 0; i < facts.tables.size() && i < digests.size(); ++i)
      AddDigest(facts.tables[i], digests[i], rank_file);
    LS_TRY(facts.digest, trace::ContentDigest(file));
  }
  facts.missing_columns = file.MissingColumns();
  return facts;
}

// Shows a spool as the tables that it would become, of the slot's main process.
Result<FileFacts> LookAtSpool(const std::string& path) {
  LS_TRY(const trace::Decoded decoded, trace::DecodeSpool({path, trace::SegmentOfSpool(path)}));
  FileFacts facts;
  facts.path = path;
  facts.format = "spool, version 1";
  if (decoded.ended) facts.notes.push_back("the application's end was seen; its rank file was not made yet");
  if (decoded.recovered_from_rings > 0)
    facts.notes.push_back("still in shared memory only: " +
                          analysis::Plural(static_cast<std::int64_t>(decoded.recovered_from_rings), "record"));
  if (decoded.bad_blocks > 0)
    facts.notes.push_back("cannot be read: " +
                          analysis::Plural(static_cast<std::int64_t>(decoded.bad_blocks), "block"));
  if (decoded.processes.size() > 1)
    facts.notes.push_back(WithCommas(decoded.processes.size()) + " processes; this is the first of them");
  facts.notes.push_back("lockstep recover makes a rank file of it");
  const schema::RankTables& tables = decoded.processes.front().tables;
  tables.ForEachTable([&](const auto& table) {
    facts.tables.push_back({std::string(table.kInfo.name), table.rows(), {}});
  });
  AddTexts(facts, tables.strings, tables.string_bytes, tables.meta, tables.losses);
  return facts;
}

// analysis.json, manifest.json, a baseline, or the output of a command: its lists are shown as tables, its single
// values as facts.
Result<FileFacts> LookAtJson(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object() || !json.contains("schema") || !json["schema"].is_string())
    return Error{ErrorCode::kMalformed,
                 json.is_discarded() ? "the JSON is damaged or cut"
                                     : "neither a JSON file of Lockstep's nor a trace that it reads",
                 path,
                 "make it again, or name a run's directory or traces (lockstep import --help lists their formats)"};
  FileFacts facts;
  facts.path = path;
  facts.format = json["schema"].get<std::string>();
  facts.complete = true;
  const auto text = [](const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  for (const auto& [key, value] : json.items()) {
    if (key == "schema") continue;
    if (value.is_array()) {
      facts.tables.push_back({key, value.size(), {}, {}});
    } else if (value.is_object()) {
      for (const auto& [inner, part] : value.items())
        if (!part.is_structured()) facts.meta.emplace_back(key + "." + inner, text(part));
    } else {
      facts.meta.emplace_back(key, text(value));
    }
  }
  return facts;
}

// A trace of another tool, which is shown as the rank file that it becomes.
bool IsTrace(const std::string& path) { return ingest::HoldsTraces(path) && ingest::LooksLikeTrace(path); }

bool IsJson(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char first = 0;
  file >> first;  // White space is skipped.
  return first == '{';
}

// The signature stands at the begin of the file (HDF5 file format specification, superblock); Lockstep's files have no
// user block before it.
bool BeginsLikeHdf5(const std::string& path) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  std::ifstream file(path, std::ios::binary);
  char first[kSignature.size()] = {};
  file.read(first, sizeof first);
  return std::string_view(first, sizeof first) == kSignature;
}

Result<FileFacts> LookAtFile(const std::string& path, bool digest) {
  // A pipe would block, and could not be read twice.
  std::error_code absent;
  if (const fs::file_type type = fs::status(path, absent).type();
      type == fs::file_type::fifo || type == fs::file_type::socket || type == fs::file_type::character)
    return Error{ErrorCode::kMalformed, "not a regular file", path, "name a file or a run's directory"};
  if (IsJson(path)) return LookAtJson(path);
  if (fs::path(path).extension() == ".spool") return LookAtSpool(path);
  Result<FileFacts> facts = LookAtTables(path, digest);
  if (facts.ok() || facts.error().code != ErrorCode::kMalformed || BeginsLikeHdf5(path)) return facts;
  // Any file may be given, and a file of a run may have been replaced by anything.
  return Error{
      ErrorCode::kMalformed,
      fs::is_empty(path, absent) ? "the file is empty" : "neither a file of Lockstep's nor a trace that it reads", path,
      "name a rank file (ranks/rank-00000.h5), a spool, timeline.h5, a JSON file of Lockstep's, a run's "
      "directory, or traces; if it was one of these, copy it again from where it was recorded"};
}

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

bool Suspicious(const FileFacts& facts) {
  if (!facts.complete || !facts.damaged.empty()) return true;
  return std::any_of(facts.losses.begin(), facts.losses.end(), [](const FileFacts::LossFacts& loss) {
    const LossInfo* info = FindLoss(loss.name);
    return info == nullptr || info->severity == Severity::kDataLoss;
  });
}

void ShowLoss(const FileFacts::LossFacts& loss) {
  const LossInfo* info = FindLoss(loss.name);
  Show("  {}{}{}\n", analysis::CountOf(loss.count, info != nullptr ? info->sentence : std::string_view(loss.name)),
       loss.detail.empty() ? "" : "; ", loss.detail);
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
    Show("  {:<18} {:>14}{}\n", table.name, WithCommas(table.rows), table.digest ? "  " + Hex(*table.digest) : "");
    for (const auto& [column, value] : table.columns)
      if (table.rows != 0) Show("    {:<31}  {}\n", column, Hex(value));
  }
  if (facts.digest) Show("  {:<18} {:>14}  {}\n", "content", "", Hex(*facts.digest));
  if (!facts.losses.empty()) Show("\n  not in this file\n");
  for (const FileFacts::LossFacts& loss : facts.losses) ShowLoss(loss);
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

void PrintRanks(const RanksThere& there) {
  Show("{}\n", analysis::RanksRecorded(static_cast<std::int64_t>(there.files.size()), there.expected, there.missing));
  for (const auto& [rank, file] : there.files) Show("  rank {:<6} {}\n", rank, file);
  for (const FileFacts::LossFacts& loss : there.losses) ShowLoss(loss);
  Show("\n");
}

Result<int> Info(const InfoFlags& flags) {
  if (flags.schema) {
    ShowText(trace::SchemaMarkdown());
    return kOk;
  }
  std::vector<std::string> files;
  std::optional<RanksThere> there;
  std::error_code ignored;
  if (!flags.what.empty() && fs::is_regular_file(flags.what, ignored) && !IsTrace(flags.what)) {
    files.push_back(flags.what);
  } else {
    LS_TRY(const std::string run, ResolveOne(flags.what, {}));
    files = FilesOf(run);
    if (files.empty())
      return Error{ErrorCode::kNotFound, "no rank files and no timeline here", run,
                   "lockstep info DIR, where DIR holds manifest.json and ranks/"};
    there = LookAtRanks(run);
  }
  int code = there && !(there->missing.empty() && there->losses.empty()) ? kIncomplete : kOk;
  if (there && flags.json != "-") PrintRanks(*there);
  std::size_t readable = 0;
  Json all = Json::array();
  std::vector<std::uint64_t> digests;
  for (const std::string& path : files) {
    const Result<FileFacts> facts = LookAtFile(path, flags.digest);
    if (!facts.ok()) {
      const int failed = PrintError(facts.error());
      code = readable == 0 && path == files.back() ? failed : static_cast<int>(kIncomplete);
      continue;
    }
    ++readable;
    if (Suspicious(facts.value())) code = kIncomplete;
    all.push_back(FileJson(facts.value()));
    if (facts.value().digest) digests.push_back(*facts.value().digest);
    if (flags.json == "-") continue;
    if (readable > 1) Show("\n");
    PrintFile(facts.value(), flags.digest);
  }
  if (readable == 0) return code;
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
    if (flags.json != "-") Show("\ntotal {}\n", Hex(total.value()));
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
      "  lockstep info RUN/ranks/rank-00003.h5    tables and rows of one file\n"
      "  lockstep info RUN --digest               checksums that do not depend on how files were written");
  info->add_option("FILE_OR_RUN", flags->what,
                   "rank file, timeline.h5, spool, analysis.json or another JSON file of Lockstep's, a run's directory "
                   "(default: the latest run), or traces of other tools");
  info->add_flag("--digest", flags->digest,
                 "checksums of the values: each table, each dataset, the file, all; they do not depend on how the "
                 "files were written");
  info->add_flag("--schema", flags->schema, "print all tables and columns as Markdown");
  info->add_option("--json", flags->json, "write the same as JSON to FILE, - for stdout");
  info->callback([flags, &chosen] { chosen = [flags] { return Info(*flags); }; });
}

}  // namespace lockstep::cli
