#include "cli/input/file_facts.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "analysis/core/format.h"
#include "cli/input/imported.h"
#include "core/loss.h"
#include "trace/decode/decode.h"
#include "trace/file/content_digest.h"
#include "trace/file/strings.h"
#include "trace/file/table_file.h"
#include "trace/spool/spool_facts.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using AnyJson = nlohmann::ordered_json;

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
    facts.notes.push_back(analysis::Count(static_cast<std::int64_t>(decoded.processes.size())) +
                          " processes; this is the first of them");
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
  const AnyJson json = AnyJson::parse(file, nullptr, false);
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
  const auto text = [](const AnyJson& value) {
    return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, AnyJson::error_handler_t::replace);
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

}  // namespace

bool IsTrace(const std::string& path) { return ingest::HoldsTraces(path) && ingest::LooksLikeTrace(path); }

Result<FileFacts> FactsOf(const std::string& path, bool digest) {
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

bool Suspicious(const FileFacts& facts) {
  if (!facts.complete || !facts.damaged.empty()) return true;
  return std::any_of(facts.losses.begin(), facts.losses.end(), [](const FileFacts::LossFacts& loss) {
    const LossInfo* info = FindLoss(loss.name);
    return info == nullptr || info->severity == Severity::kDataLoss;
  });
}

}  // namespace lockstep::cli
