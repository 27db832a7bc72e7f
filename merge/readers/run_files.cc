#include "merge/readers/run_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "merge/pack.h"
#include "merge/parallel.h"
#include "merge/readers/command_line.h"
#include "merge/readers/rank_file_name.h"
#include "merge/release.h"
#include "merge/rules/match.h"
#include "trace/file/strings.h"
#include "trace/spool/spool_facts.h"

namespace lockstep::merge {
namespace fs = std::filesystem;
namespace {

struct FileCandidate {
  std::string file;  // Relative to the run directory.
  RankFileName name;
};

// One process that was read.
struct Found {
  const FileCandidate* candidate = nullptr;
  std::unique_ptr<ingest::RankSource> source;
  ingest::ReadTables head;
  std::int32_t rank = -1;
  int certainty = 0;            // How certain the rank is; larger is more certain.
  std::int64_t world_size = 0;  // As the process knew it, 0 unknown.
  bool mine = true;
};

// MPI's own answer is preferred to a process group's, that to NCCL's, that to the environment's, and that to the slot's
// number.
enum Certainty : int { kUnsaid, kBySlot, kByLauncher, kByNccl, kByGroup, kByMpi };
constexpr int kTalks = kByNccl;  // From here on it is the rank that the communication itself uses.

int RankCertainty(const schema::RankTables& tables) {
  const std::string_view text = ingest::MetaValue(tables, "rank_source");
  if (text == "mpi" || text == "1") return kByMpi;
  if (text == "group" || text == "5") return kByGroup;
  if (text == "nccl" || text == "3") return kByNccl;
  if (text == "env" || text == "2") return kByLauncher;
  if (text == "slot" || text == "4") return kBySlot;
  for (std::size_t i = 0; i < tables.processes.rows(); ++i) {
    static constexpr int kOfSource[] = {kUnsaid, kByMpi, kByLauncher, kByNccl, kBySlot, kByGroup};
    if (tables.processes.world_rank[i] >= 0 && tables.processes.rank_source[i] < std::size(kOfSource))
      return kOfSource[tables.processes.rank_source[i]];
  }
  return 0;
}

fs::path RanksDir(const std::string& run_dir) {
  std::error_code ignored;
  const fs::path ranks = fs::path(run_dir) / "ranks";
  return fs::is_directory(ranks, ignored) ? ranks : fs::path(run_dir);
}

std::vector<FileCandidate> ListCandidates(const std::string& run_dir) {
  std::vector<FileCandidate> candidates;
  std::error_code error;
  const fs::path dir = RanksDir(run_dir);
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (name.starts_with('.') || !at->is_regular_file(ignored)) continue;
    const RankFileName parsed = ParseRankFileName(name);
    if (parsed.kind == RankFileName::kOther || name == "timeline.h5" || name == "timeline.h5.part") continue;
    candidates.push_back({at->path().lexically_relative(run_dir).string(), parsed});
  }
  std::sort(candidates.begin(), candidates.end(), [](const FileCandidate& a, const FileCandidate& b) {
    return std::tie(a.name.slot, a.name.process, a.name.kind, a.file) <
           std::tie(b.name.slot, b.name.process, b.name.kind, b.file);
  });
  return candidates;
}

// Empties columns that only operations of GPUs or of PyTorch's backends have, where nothing is in them: a sixth of what
// a merge holds of each operation of all ranks.
void ForgetUnknown(schema::RankTables& head) {
  const auto forget = [](auto& column, auto unknown) {
    if (std::ranges::all_of(column, [&](auto value) { return value == unknown; })) Release(column);
  };
  forget(head.collectives.kernel, schema::kNone);
  forget(head.collectives.kernel_operations, 0u);
  forget(head.collectives.enqueue_begin_ns, schema::kNoTime);
  forget(head.collectives.user_tag, std::uint64_t{0});
  forget(head.p2p.kernel, schema::kNone);
  forget(head.p2p.user_tag, std::uint64_t{0});
}

// All files of one slot. The finished file wins; otherwise the spool is authoritative, and a .part file is at best as
// good.
struct SlotFiles {
  std::int64_t slot = -1;
  std::vector<Found> found;
  std::vector<RunLoss> losses;
  bool unreadable = false;
};

SlotFiles OpenSlot(const std::string& run_dir, const std::vector<const FileCandidate*>& files) {
  SlotFiles slot;
  const auto open = [&](const FileCandidate& candidate) {
    auto sources = ingest::OpenRankSources((fs::path(run_dir) / candidate.file).string());
    if (!sources.ok()) return std::optional<Error>(sources.error());
    for (auto& source : sources.value()) {
      Found found;
      found.candidate = &candidate;
      found.head = source->ReadHead();
      ForgetUnknown(found.head.tables);
      found.source = std::move(source);
      found.rank = ingest::WorldRankOf(found.head.tables);
      found.certainty = RankCertainty(found.head.tables);
      found.world_size = ingest::ToldSize(ingest::MetaNumber(found.head.tables, "world_size", 0));
      std::int64_t highest = ingest::MetaNumber(found.head.tables, "rank", -1);
      for (const std::int32_t of_process : found.head.tables.processes.world_rank)
        highest = std::max<std::int64_t>(highest, of_process);
      if (highest >= ingest::kMostRanks)
        found.head.damaged.push_back("rank " + std::to_string(highest) + " is impossible");
      slot.found.push_back(std::move(found));
    }
    return std::optional<Error>();
  };
  // A damaged file beside a good one of the same slot is reported as well.
  const auto open_all = [&](RankFileName::Kind kind) {
    bool opened = false;
    for (const FileCandidate* candidate : files) {
      if (candidate->name.kind != kind) continue;
      if (const auto error = open(*candidate))
        slot.losses.push_back(MakeLoss(-1, Loss::kFileUnreadable, 1, candidate->file + ": " + error->what));
      else
        opened |= candidate->name.process == 1 || candidate->name.slot < 0;
    }
    return opened;
  };
  if (!open_all(RankFileName::kH5) && !open_all(RankFileName::kSpool)) open_all(RankFileName::kPart);
  slot.unreadable = slot.found.empty() && !slot.losses.empty();
  return slot;
}

// Another process has opened the file; its head was shared.
class SharedSource final : public ingest::RankSource {
 public:
  SharedSource(std::uint64_t rows, bool complete) : rows_(rows), complete_(complete) {}
  std::uint64_t EventRows() const override { return rows_; }
  bool complete() const override { return complete_; }

 private:
  ingest::ReadTables LoadHead() const override { return {}; }
  std::unique_ptr<ingest::EventReader> LoadEvents() const override {
    return ingest::ReadFromMemory({}, {"events are read by another process"});
  }
  ingest::ReadTables LoadAll() const override { return {{}, {"read by another process"}}; }
  std::uint64_t rows_;
  bool complete_;
};

// One line for each missing rank, or, where a job is large and few of its traces are there, one for each row of
// consecutive ranks.
void AddMissing(const std::string& run_dir, const std::vector<std::int32_t>& ranks, std::vector<RunLoss>& losses) {
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    if (ranks.size() > rules::kMissingRanksLines)
      while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end == i + 1)
      losses.push_back(MakeLoss(ranks[i], Loss::kRankMissing, 1, trace::SpoolElsewhere(run_dir, ranks[i])));
    else
      losses.push_back(MakeLoss(-1, Loss::kRankMissing, end - i,
                                "ranks " + std::to_string(ranks[i]) + " to " + std::to_string(ranks[end - 1])));
    i = end;
  }
}

// All processes use the first process's listing of the directory, so that a file that appears meanwhile appears to all
// or to none.
std::vector<FileCandidate> AgreeOn(MergeTeam& team, const std::vector<FileCandidate>& candidates) {
  std::vector<std::string> names;
  for (const FileCandidate& candidate : candidates) names.push_back(candidate.file);
  Packer packer;
  packer.Put(names);
  const std::string first = team.Share(packer.Take())[0];
  Unpacker(first).Take(names);
  std::vector<FileCandidate> agreed;
  for (const std::string& name : names) agreed.push_back({name, ParseRankFileName(fs::path(name).filename().string())});
  return agreed;
}

// Shares what each process found in its slots with all processes.
void ShareSlots(MergeTeam& team, const std::vector<FileCandidate>& candidates, std::vector<SlotFiles>& slots) {
  Packer packer;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!IsMine(&team, i)) continue;
    const SlotFiles& slot = slots[i];
    packer.Put(slot.unreadable);
    packer.Put(slot.losses.size());
    for (const RunLoss& loss : slot.losses) packer.Put(loss.rank, loss.name, loss.count, loss.detail);
    packer.Put(slot.found.size());
    for (const Found& found : slot.found) {
      packer.Put(found.candidate - candidates.data(), found.source->EventRows(), found.source->complete());
      packer.Put(found.rank, found.certainty, found.world_size, found.head.damaged);
      found.head.tables.ForEachTable([&](const auto& table) { packer.PutTable(table); });
    }
  }
  const std::vector<std::string> all = team.Share(packer.Take());
  std::vector<Unpacker> from(all.begin(), all.end());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (IsMine(&team, i)) continue;
    Unpacker& bytes = from[i % team.count()];
    SlotFiles& slot = slots[i];
    bytes.Take(slot.unreadable);
    slot.losses.resize(bytes.Take<std::size_t>());
    for (RunLoss& loss : slot.losses) bytes.Take(loss.rank, loss.name, loss.count, loss.detail);
    const auto count = bytes.Take<std::size_t>();
    for (std::size_t n = 0; n < count; ++n) {
      Found& found = slot.found.emplace_back();
      found.candidate = &candidates[bytes.Take<std::ptrdiff_t>()];
      const auto rows = bytes.Take<std::uint64_t>();
      found.source = std::make_unique<SharedSource>(rows, bytes.Take<bool>());
      bytes.Take(found.rank, found.certainty, found.world_size, found.head.damaged);
      found.head.tables.ForEachTable([&](auto& table) { bytes.TakeTable(table); });
      found.mine = false;
    }
  }
}

// Opens all files, slot by slot: those with one number belong together.
std::vector<SlotFiles> OpenSlots(const std::string& run_dir, const std::vector<FileCandidate>& candidates,
                                 unsigned jobs, const std::function<void(double)>& progress, const MergeTeam* team) {
  std::vector<std::vector<const FileCandidate*>> files;
  for (const FileCandidate& candidate : candidates) {
    if (files.empty() || candidate.name.slot < 0 || files.back()[0]->name.slot != candidate.name.slot)
      files.emplace_back();
    files.back().push_back(&candidate);
  }
  std::vector<SlotFiles> slots(files.size());
  std::mutex mutex;
  std::size_t done = 0;
  ParallelFor(jobs, slots.size(), [&](std::size_t i) {
    if (IsMine(team, i)) slots[i] = OpenSlot(run_dir, files[i]);
    slots[i].slot = files[i][0]->name.slot;
    if (!progress) return;
    const std::lock_guard lock(mutex);
    progress(static_cast<double>(++done) / static_cast<double>(slots.size()));
  });
  return slots;
}

// For a run without a manifest: the run id that most files have.
std::string MostFrequentRunId(const std::vector<SlotFiles>& slots) {
  std::map<std::string_view, std::size_t> files;
  for (const SlotFiles& slot : slots)
    for (const Found& found : slot.found)
      if (const auto id = ingest::MetaValue(found.head.tables, "run_id"); !id.empty()) ++files[id];
  const auto most = std::ranges::max_element(files, {}, [](const auto& of_id) { return of_id.second; });
  return most == files.end() ? "" : std::string(most->first);
}

// Several groups have the same ranks, each in slots of its own: a job of several worlds. None of them is the run's
// world, so the ranks that the launcher gave are used: these are distinct.
void UseLaunchRanksOfSeveralWorlds(std::vector<SlotFiles>& slots) {
  std::map<std::int32_t, const SlotFiles*> slot_of;
  bool doubled = false;
  const auto of_group = [](const Found& found) { return found.certainty == kByGroup && found.rank >= 0; };
  for (const SlotFiles& slot : slots)
    for (const Found& found : slot.found)
      if (of_group(found)) doubled = doubled || slot_of.try_emplace(found.rank, &slot).first->second != &slot;
  if (!doubled) return;
  for (SlotFiles& slot : slots)
    for (Found& found : slot.found) {
      const auto launched = ingest::ToldRank(ingest::MetaNumber(found.head.tables, "launch_rank", -1));
      if (!of_group(found) || launched < 0) continue;
      found.rank = launched;
      found.certainty = kByLauncher;
      found.world_size = ingest::ToldSize(ingest::MetaNumber(found.head.tables, "launch_world_size", 0));
    }
}

// Decides which file belongs to which rank. Takes over the losses of the slots, and adds files of other runs and
// doubled ranks.
std::map<std::int32_t, Found> ChooseRanks(std::vector<SlotFiles>& slots, RunFiles& run) {
  struct Seen {
    std::size_t slot;
    Found* found;
  };
  std::vector<Seen> all;
  std::map<std::string, std::vector<std::string>, std::less<>> others;  // Run -> files.
  for (std::size_t i = 0; i < slots.size(); ++i) {
    run.losses.insert(run.losses.end(), slots[i].losses.begin(), slots[i].losses.end());
    for (Found& found : slots[i].found) {
      const auto id = ingest::MetaValue(found.head.tables, "run_id");
      if (!id.empty() && !run.run_id.empty() && id != run.run_id)
        others[std::string(id)].push_back(found.candidate->file);
      else
        all.push_back({i, &found});
    }
  }
  for (const auto& [id, files] : others) {
    std::string names;
    for (std::size_t k = 0; k < std::min(files.size(), rules::kMixedFilesNamed); ++k)
      names += (k == 0 ? "" : ", ") + files[k];
    if (files.size() > rules::kMixedFilesNamed)
      names += " and " + std::to_string(files.size() - rules::kMixedFilesNamed) + " more";
    run.losses.push_back(
        MakeLoss(-1, Loss::kRunMixed, files.size(), names + ": recorded in run " + id + ", this is run " + run.run_id));
  }
  std::ranges::stable_sort(all, std::greater<>(), [](const Seen& seen) { return seen.found->certainty; });
  std::map<std::int32_t, Found> chosen;
  std::vector<Found> unranked;
  std::set<std::pair<std::size_t, std::int32_t>> of_slot;
  for (const auto& [slot, seen] : all) {
    Found& found = *seen;
    if (found.rank < 0) {
      unranked.push_back(std::move(found));
      continue;
    }
    // Helper processes of a rank inherit its environment: such a file is not a doubled rank, only not the main one.
    if (!of_slot.insert({slot, found.rank}).second) continue;
    const std::int32_t rank = found.rank;
    const std::string& file = found.candidate->file;
    const auto [at, fresh] = chosen.try_emplace(rank, std::move(found));
    if (!fresh)
      run.losses.push_back(MakeLoss(
          rank, Loss::kRankDuplicated, 1,
          file + ": rank " + std::to_string(rank) + " was read from " + at->second.candidate->file + " instead"));
  }
  // No source knew a rank (no MPI, no launcher), so the slot's number is used.
  for (Found& found : unranked) {
    const RankFileName& name = found.candidate->name;
    if (name.slot < 0 || name.slot >= ingest::kMostRanks || name.process != 1) continue;
    const auto rank = static_cast<std::int32_t>(name.slot);
    if (run.world_size == 0 || rank < run.world_size) chosen.try_emplace(rank, std::move(found));
  }
  return chosen;
}

// The number of ranks of the job. `manifest`: what the launcher told the agents, 0 nothing. The size that ranks
// communicated in wins; an agent that was told of no other rank (1) knows less than a process that a launcher below it
// started.
std::int32_t WorldSizeOf(const std::map<std::int32_t, Found>& chosen, std::int32_t manifest) {
  std::int64_t talked = 0, told = 0;
  for (const auto& [rank, found] : chosen) {
    if (found.certainty >= kTalks) talked = std::max(talked, found.world_size);
    told = std::max(told, found.world_size);
  }
  return static_cast<std::int32_t>(talked > 0     ? talked
                                   : manifest > 1 ? manifest
                                                  : std::max<std::int64_t>(manifest, told));
}

Error NothingReadable(const std::string& run_dir, const RunFiles& run) {
  std::string first;
  for (const RunLoss& loss : run.losses)
    if (first.empty()) first = loss.detail;
  for (std::int32_t rank = 0; first.empty() && rank < std::max(run.world_size, 1); ++rank)
    if (const std::string where = trace::SpoolElsewhere(run_dir, rank); !where.empty())
      first = "rank " + std::to_string(rank) + ": " + where;
  const fs::path ranks = RanksDir(run_dir);
  std::error_code trouble;
  fs::directory_iterator(ranks, trouble);
  for (const FileCandidate& candidate : ListCandidates(run_dir))
    if (::access((fs::path(run_dir) / candidate.file).c_str(), R_OK) != 0 && errno == EACCES)
      trouble = std::make_error_code(std::errc::permission_denied);
  if (trouble)
    return {ErrorCode::kIo, "the rank files cannot be read: " + trouble.message(), ranks.string(),
            "sudo, or have its owner allow you to read it"};
  const std::string unreadable(Info(Loss::kFileUnreadable).name);
  const bool damaged = std::ranges::any_of(run.losses, [&](const RunLoss& loss) { return loss.name == unreadable; });
  return {ErrorCode::kNotFound, first.empty() ? "there is no rank file here" : "no rank file could be read: " + first,
          ranks.string(),
          damaged ? "lockstep recover " + run_dir + ", if spools are left; else copy the files from their hosts again"
                  : "lockstep gather HOST:DIR... -o RUN, if the hosts of the job share no directory"};
}

void AddRank(const std::string& run_dir, std::int32_t rank, Found found, RunFiles& run) {
  RunRank entry;
  entry.rank = rank;
  entry.file = found.candidate->file;
  entry.state = found.source->complete() ? RankState::kComplete : RankState::kRecovered;
  if (!found.source->complete())
    run.losses.push_back(MakeLoss(rank, Loss::kRankUnfinished, 1,
                                  entry.file + (trace::SpoolIsHeld((fs::path(run_dir) / entry.file).string())
                                                    ? ": still running, what is there so far"
                                                    : "")));
  for (const std::string& damage : found.head.damaged) {
    entry.state = RankState::kCutShort;
    run.losses.push_back(MakeLoss(rank, Loss::kRankCutShort, 1, entry.file + ": " + damage));
  }
  entry.mine = found.mine;
  entry.source = std::move(found.source);
  entry.head = std::move(found.head.tables);
  run.ranks.push_back(std::move(entry));
}

}  // namespace

bool HasLoss(const schema::RankTables& head, Loss loss) {
  return std::ranges::any_of(head.losses.name,
                             [&](std::uint32_t name) { return trace::TextOf(head, name) == Info(loss).name; });
}

ManifestFacts ReadManifest(const std::string& run_dir) {
  ManifestFacts facts;
  std::error_code absent;
  if (!fs::is_regular_file(fs::path(run_dir) / "manifest.json", absent)) return facts;
  std::ifstream file(fs::path(run_dir) / "manifest.json");
  if (!file) return facts;
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object()) return facts;
  if (const auto at = json.find("run_id"); at != json.end() && at->is_string()) facts.run_id = *at;
  if (const auto at = json.find("world_size"); at != json.end() && at->is_number_integer()) {
    const auto size = at->get<std::int64_t>();
    if (size > 0 && size <= ingest::kMostRanks) facts.world_size = static_cast<std::int32_t>(size);
  }
  if (const auto at = json.find("command"); at != json.end() && at->is_array())
    facts.command = CommandLine(*at, json.contains("imported"));
  if (const auto at = json.find("losses"); at != json.end() && at->is_array())
    for (const auto& loss : *at) {
      if (!loss.is_object() || !loss.contains("name") || !loss["name"].is_string()) continue;
      const auto number = [&](const char* key, std::int64_t fallback) {
        const auto found = loss.find(key);
        return found != loss.end() && found->is_number_integer() ? found->get<std::int64_t>() : fallback;
      };
      const auto detail = loss.find("detail");
      facts.losses.push_back({ingest::ToldRank(number("rank", -1)), loss["name"].get<std::string>(),
                              static_cast<std::uint64_t>(std::max<std::int64_t>(number("count", 1), 0)),
                              detail != loss.end() && detail->is_string() ? detail->get<std::string>() : ""});
    }
  return facts;
}

std::vector<std::string> ListRunFiles(const std::string& run_dir) {
  std::vector<std::string> files;
  for (const FileCandidate& candidate : ListCandidates(run_dir)) files.push_back(candidate.file);
  std::error_code ignored;
  if (fs::exists(fs::path(run_dir) / "manifest.json", ignored)) files.push_back("manifest.json");
  return files;
}

Result<RunFiles> OpenRun(const std::string& run_dir, unsigned jobs, const std::function<void(double)>& progress,
                         MergeTeam* team) {
  std::error_code ignored;
  if (!fs::is_directory(run_dir, ignored))
    return Error{ErrorCode::kNotFound, "no such run directory", run_dir,
                 "name the directory that holds manifest.json and ranks/"};
  std::vector<FileCandidate> candidates = ListCandidates(run_dir);
  if (team != nullptr) candidates = AgreeOn(*team, candidates);
  RunFiles run;
  ManifestFacts manifest = ReadManifest(run_dir);
  run.run_id = std::move(manifest.run_id);
  run.command = std::move(manifest.command);
  run.world_size = manifest.world_size;
  run.losses = std::move(manifest.losses);

  std::vector<SlotFiles> slots = OpenSlots(run_dir, candidates, jobs, progress, team);
  if (team != nullptr) ShareSlots(*team, candidates, slots);
  if (run.run_id.empty()) run.run_id = MostFrequentRunId(slots);
  UseLaunchRanksOfSeveralWorlds(slots);
  std::map<std::int32_t, Found> chosen = ChooseRanks(slots, run);
  if (chosen.empty()) return NothingReadable(run_dir, run);

  run.world_size = WorldSizeOf(chosen, manifest.world_size);
  for (auto& [rank, found] : chosen) AddRank(run_dir, rank, std::move(found), run);
  run.world_size = std::max(run.world_size, run.ranks.back().rank + 1);
  if (run.command.empty()) run.command = ingest::MetaValue(run.ranks[0].head, "command");
  for (std::int32_t rank = 0; rank < run.world_size; ++rank)
    if (!chosen.contains(rank)) run.missing.push_back(rank);
  // An unreadable file is the only loss of its rank; a second line would count it twice.
  std::vector<std::int32_t> without_file = run.missing;
  for (const SlotFiles& slot : slots)
    if (slot.unreadable) std::erase(without_file, slot.slot);
  AddMissing(run_dir, without_file, run.losses);
  return run;
}

}  // namespace lockstep::merge
