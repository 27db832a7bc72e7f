#include "cli/gather/gather.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "cli/gather/source.h"
#include "core/own_file.h"
#include "core/schema.h"
#include "merge/readers/run_files.h"
#include "runtime/agent/recover/left_spool.h"
#include "runtime/agent/rundir/process_state.h"
#include "trace/file/strings.h"
#include "trace/file/table_file.h"
#include "trace/spool/spool_facts.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".gather-";
// Remote shells at once: most of the time of one is spent on waiting for its host.
constexpr std::size_t kAtOnce = 8;

std::string PathIn(const std::string& run, const std::string& name) {
  return run + (name == kManifestName ? "/" : "/ranks/") + name;
}

// The run that a file says it belongs to.
Result<std::string> RunIdOf(const std::string& path) {
  if (BaseName(path) == kManifestName) {
    std::string id = merge::ReadManifest(DirectoryOf(path)).run_id;
    if (id.empty()) return Error{ErrorCode::kMalformed, "it names no run", path, ""};
    return id;
  }
  if (path.ends_with(".spool")) {
    LS_TRY(const trace::SpoolFacts facts, trace::ReadSpoolFacts(path));
    return facts.Meta("run_id");
  }
  LS_TRY(const trace::TableFile file, trace::TableFile::Open(path));
  if (file.format() != schema::kRankFileFormat) return Error{ErrorCode::kMalformed, "it is no rank file", path, ""};
  schema::RankTables tables;
  LS_TRY(tables.strings, file.Read<schema::Strings>());
  LS_TRY(tables.string_bytes, file.Read<schema::StringBytes>());
  LS_TRY(tables.meta, file.Read<schema::Meta>());
  return std::string(trace::MetaValue(tables, "run_id"));
}

bool SameDirectory(const std::string& a, const std::string& b) {
  struct stat of_a {
  }, of_b{};
  return ::stat(a.c_str(), &of_a) == 0 && ::stat(b.c_str(), &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

// A place that names this host needs no remote shell, if it is there.
Place LocalIfOwn(Place place) {
  std::error_code ignored;
  const std::string host = place.host.substr(place.host.find('@') + 1);
  if (!host.empty() && host == agent::HostName() && place.dir.starts_with('/') && fs::is_directory(place.dir, ignored))
    place.host.clear();
  return place;
}

// A directory for files that are not checked yet, in ranks/; removed with what is in it.
class Temporary {
 public:
  explicit Temporary(const std::string& run) : path_(run + "/ranks/" + std::string(kTemporary) + "XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) error_ = errno;
  }
  ~Temporary() {
    std::error_code ignored;
    if (error_ == 0) fs::remove_all(path_, ignored);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  const std::string& path() const { return path_; }
  int error() const { return error_; }

 private:
  std::string path_;
  int error_ = 0;
};

// What a command that was killed left. The lock on the run says that none is at it.
void RemoveLeftTemporaries(const std::string& run) {
  std::error_code ignored;
  for (fs::directory_iterator at(run + "/ranks", ignored), end; !ignored && at != end; at.increment(ignored)) {
    std::error_code no_matter;
    if (at->path().filename().string().starts_with(kTemporary) && at->is_directory(no_matter) &&
        !at->is_symlink(no_matter) && agent::NotOurRun(run).empty())
      fs::remove_all(at->path(), no_matter);
  }
}

// Does that for 0 .. count - 1, on kAtOnce threads.
void ForEachAtOnce(std::size_t count, const std::function<void(std::size_t)>& act) {
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < std::min(count, kAtOnce); ++i)
    threads.emplace_back([&] {
      for (std::size_t at = next++; at < count; at = next++) act(at);
    });
  for (std::thread& thread : threads) thread.join();
}

class Gatherer {
 public:
  Gatherer(const GatherOptions& options, const std::function<void(std::string_view, double)>& progress)
      : options_(options), progress_(progress) {}

  Result<std::vector<GatheredPlace>> Run();

 private:
  struct Wanted {
    Source source;
    Listing listing;
    GatheredPlace* result;
    std::vector<std::size_t> open;         // Of the listing's files: those whose end is not known yet.
    std::vector<GatheredFile*> fetched{};  // In this round.
  };
  Status LookAtRun();
  std::optional<Wanted> List(GatheredPlace& result) const;
  void Decide(Wanted& wanted, std::set<std::string>& coming);
  void Fetch(Wanted& wanted);
  void Adopt(const std::string& from, const std::string& digest, GatheredFile& file);
  void Show(const std::string& phase, double done) {
    const std::lock_guard lock(mutex_);
    progress_(phase, done);
  }

  const GatherOptions& options_;
  const std::function<void(std::string_view, double)>& progress_;
  std::mutex mutex_;                         // While several places are fetched from it protects all below.
  std::map<std::string, std::string> here_;  // Name and digest of what the run has.
  std::optional<std::string> run_id_;        // Of what the run has.
  std::vector<Wanted> wanted_;
  std::uint64_t bytes_ = 0, bytes_done_ = 0;
};

Status Gatherer::LookAtRun() {
  const std::string& run = options_.run;
  const Source here({"", run}, {});
  LS_TRY(const Listing listing, here.List());
  for (const ListedFile& file : listing.files) {
    here_[file.name] = file.digest;
    if (run_id_) continue;
    if (Result<std::string> id = RunIdOf(PathIn(run, file.name)); id.ok()) run_id_ = std::move(id).value();
  }
  return Ok();
}

std::optional<Gatherer::Wanted> Gatherer::List(GatheredPlace& result) const {
  Source source(LocalIfOwn(result.place), options_.rsh);
  Result<Listing> listing = source.List();
  if (!listing.ok()) {
    result.trouble = listing.error().what;
    return std::nullopt;
  }
  if (listing.value().files.empty()) {
    result.trouble = "there is no recording in this directory";
    return std::nullopt;
  }
  Wanted wanted{std::move(source), std::move(listing).value(), &result, {}};
  for (const ListedFile& listed : wanted.listing.files) {
    wanted.open.push_back(wanted.open.size());
    result.files.push_back({.name = listed.name, .bytes = listed.bytes, .why = ""});
  }
  return wanted;
}

// What is fetched from a place in this round. A file that is `coming` from an earlier one counts as being here if it
// arrives, and is looked at again afterwards. The first file of all comes alone: it decides of which run the others
// must be, whichever arrives first.
void Gatherer::Decide(Wanted& wanted, std::set<std::string>& coming) {
  const bool itself = wanted.source.place().host.empty() && SameDirectory(wanted.source.place().dir, options_.run);
  wanted.fetched.clear();
  std::erase_if(wanted.open, [&](std::size_t i) {
    const ListedFile& listed = wanted.listing.files[i];
    GatheredFile& file = wanted.result->files[i];
    const auto known = here_.find(listed.name);
    const std::string finished = listed.name.substr(0, listed.name.rfind('.')) + ".h5";
    if (itself || (known != here_.end() && known->second == listed.digest && !listed.digest.empty())) {
      file.end = FileEnd::kKept;
    } else if (listed.digest.empty()) {
      file.why = "it cannot be read there";
    } else if (known != here_.end()) {
      file.end = FileEnd::kDifferent;
    } else if (listed.name.ends_with(".spool") && here_.contains(finished)) {
      file.end = FileEnd::kKept;  // Its rank file is.
    } else if ((!run_id_ && !coming.empty()) || coming.contains(listed.name) ||
               (listed.name.ends_with(".spool") && coming.contains(finished))) {
      return false;
    } else {
      coming.insert(listed.name);
      wanted.fetched.push_back(&file);
    }
    return true;
  });
}

void Gatherer::Fetch(Wanted& wanted) {
  const std::vector<GatheredFile*>& files = wanted.fetched;
  const auto all = [&files](const std::string& why) {
    for (GatheredFile* file : files) file->why = why;
  };
  const Temporary temporary(options_.run);
  if (temporary.error() != 0) return all(std::string("it cannot be written here: ") + std::strerror(temporary.error()));
  // GNU tar reads escapes in the directory of its option -C.
  std::vector<std::string> names, unpack = {"sh", "-c", "cd -- \"$1\" && shift && exec tar -xof - \"$@\"", "sh",
                                            fs::absolute(temporary.path()).string()};
  const bool below_ranks = wanted.listing.below_ranks;
  for (const GatheredFile* file : files) {
    names.push_back(file->name);
    unpack.push_back((below_ranks && file->name != kManifestName ? "ranks/" : "") + file->name);
  }
  Result<Consumer> unpacker = Consumer::Start(unpack);
  if (!unpacker.ok()) return all(unpacker.error().what);
  const Result<ShellEnd> sent = wanted.source.Send(names, below_ranks, [&](std::string_view piece) {
    {
      const std::lock_guard lock(mutex_);
      bytes_done_ += piece.size();
      progress_("copying",
                bytes_ == 0 ? 0 : std::min(1.0, static_cast<double>(bytes_done_) / static_cast<double>(bytes_)));
    }
    return unpacker.value().Write(piece);
  });
  const ShellEnd unpacked = unpacker.value().Finish();
  if (!sent.ok()) return all(sent.error().what);
  const Result<Listing> arrived = Source({"", temporary.path()}, {}).List();
  std::map<std::string, std::string> digests;
  if (arrived.ok())
    for (const ListedFile& file : arrived.value().files) digests[file.name] = file.digest;
  std::string trouble = "it changed while it was copied, or was damaged on the way";
  if (sent.value().exit_code != 0)
    trouble = "the copy was not complete" + (sent.value().last_line.empty() ? "" : ": " + sent.value().last_line);
  if (unpacked.exit_code != 0 && !unpacked.last_line.empty()) trouble = unpacked.last_line;
  // A run whose rank files were beside its manifest has them in ranks/ from now on.
  const std::string from = temporary.path() + (arrived.ok() && arrived.value().below_ranks ? "/ranks/" : "/");
  for (GatheredFile* file : files) {
    const auto listed = std::ranges::find(wanted.listing.files, file->name, &ListedFile::name);
    const auto digest = digests.find(file->name);
    if (digest == digests.end() || digest->second != listed->digest)
      file->why = trouble;
    else
      Adopt((file->name == kManifestName ? temporary.path() + "/" : from) + file->name, listed->digest, *file);
  }
}

// Gives a file that has arrived whole its name, if it belongs to the run. One at a time: files are opened with HDF5.
void Gatherer::Adopt(const std::string& from, const std::string& digest, GatheredFile& file) {
  const std::lock_guard lock(mutex_);
  struct stat info {};
  Result<std::string> id = RunIdOf(from);
  // An archive may hold links under any name.
  if (::lstat(from.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || !id.ok()) {
    file.end = FileEnd::kUnread;
    file.why = id.ok() ? "it is no regular file" : id.error().what;
    return;
  }
  if (run_id_ && *run_id_ != id.value()) {
    file.end = FileEnd::kOtherRun;
    file.why = "it belongs to run " + id.value() + ", and the others to run " + *run_id_;
    return;
  }
  const int error = MoveNew(from, PathIn(options_.run, file.name));
  if (error != 0) {
    file.end = error == EEXIST ? FileEnd::kDifferent : FileEnd::kLost;
    file.why = error == EEXIST ? "" : std::string("it cannot be written here: ") + std::strerror(error);
    return;
  }
  run_id_ = std::move(id).value();
  here_[file.name] = digest;
  file.end = FileEnd::kCopied;
}

Result<std::vector<GatheredPlace>> Gatherer::Run() {
  const std::string& run = options_.run;
  std::error_code error;
  LS_CHECK(LookAtRun());
  const bool flat = !fs::exists(run + "/ranks", error);
  if (flat && std::ranges::any_of(here_, [](const auto& file) { return file.first != kManifestName; }))
    return Error{ErrorCode::kUsage, "this directory has rank files and no ranks/", run, "name another one with -o"};
  fs::create_directory(run + "/ranks", error);
  if (const std::string why = agent::NotOurRun(run); !why.empty())
    return Error{ErrorCode::kIo, "nothing can be added to this run: " + why, run, "name another directory with -o"};
  RemoveLeftTemporaries(run);
  std::vector<GatheredPlace> results;
  for (const Place& place : options_.places) results.push_back({.place = place, .trouble = "", .files = {}});
  std::vector<std::optional<Wanted>> listed(results.size());
  std::atomic<std::size_t> looked{0};
  Show("looking at " + std::to_string(results.size()) + (results.size() == 1 ? " place" : " places"), 0);
  ForEachAtOnce(results.size(), [&](std::size_t i) {
    listed[i] = List(results[i]);
    Show("looking at " + TextOf(results[i].place), static_cast<double>(++looked) / static_cast<double>(results.size()));
  });
  for (std::optional<Wanted>& wanted : listed)
    if (wanted) wanted_.push_back(std::move(*wanted));
  for (const Wanted& wanted : wanted_)
    for (const ListedFile& file : wanted.listing.files)
      if (!here_.contains(file.name)) bytes_ += file.bytes;
  // Each file is taken from the first place that has it, and from the next one if that does not give it.
  for (;;) {
    std::set<std::string> coming;
    std::vector<Wanted*> giving;
    for (Wanted& wanted : wanted_) {
      Decide(wanted, coming);
      if (!wanted.fetched.empty()) giving.push_back(&wanted);
    }
    if (giving.empty()) break;
    ForEachAtOnce(giving.size(), [&](std::size_t i) { Fetch(*giving[i]); });
  }
  return results;
}

}  // namespace

Result<std::vector<GatheredPlace>> Gather(const GatherOptions& options,
                                          const std::function<void(std::string_view, double)>& progress) {
  return Gatherer(options, progress).Run();
}

}  // namespace lockstep::cli
