#include "cli/input/import_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "cli/output/out.h"
#include "core/hash.h"
#include "core/own_file.h"
#include "merge/work_lock.h"
#include "trace/file/lock_file.h"
#include "trace/file/part_file.h"

namespace lockstep::cli {
namespace fs = std::filesystem;
namespace {

// The lock file of a published import: shared by the processes that read it.
constexpr const char* kInUse = ".in-use";
// Imports of earlier versions have no such file. No command reads an import for that long.
constexpr long kSurelyOldSeconds = 24 * 3600;

// Whether the directory can hold the cache; it is created if needed. A link is refused: another user may choose its
// target.
bool Usable(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  return !error && !fs::is_symlink(dir, error) && ::access(dir.c_str(), W_OK | X_OK) == 0;
}

// Used inside a directory that everybody may write to, under a name that everybody can guess.
bool UsableOnlyByUs(const fs::path& dir) {
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) return false;
  return NotOwnDirectory(dir.string(), false).empty() && ::access(dir.c_str(), W_OK | X_OK) == 0;
}

Result<std::string> CacheDirectory(const std::string& beside) {
  const fs::path own = fs::path(beside) / ".lockstep";
  if (!beside.empty() && Usable(own)) return own.string();
  std::vector<fs::path> others;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && xdg[0] == '/') others.emplace_back(xdg);
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
    others.push_back(fs::path(home) / ".cache");
  for (const fs::path& other : others)
    if (Usable(other / "lockstep")) return (other / "lockstep").string();
  std::error_code ignored;
  if (const fs::path temporary = fs::temp_directory_path(ignored); !ignored)
    if (const fs::path dir = temporary / fmt::format("lockstep-{}", ::geteuid()); UsableOnlyByUs(dir))
      return dir.string();
  return Error{ErrorCode::kIo, "there is no directory to import into", own.string(),
               "lockstep import FILES -o RUN, then lockstep analyze RUN"};
}

// Kept until the process ends: imports in use, and those that only this process has.
struct Kept {
  std::list<trace::FileLock> locks;
  std::list<std::unique_ptr<trace::PartDirectory>> own;
};
Kept& KeptImports() {
  static Kept kept;
  return kept;
}

// Marks a finished import with these inputs as used from now on; returns false if there is none.
bool Use(const std::string& run, const std::string& key) {
  std::error_code ignored;
  if (!fs::exists(fs::path(run) / "manifest.json", ignored)) return false;
  trace::LockWait wait(run);
  trace::FileLock lock;
  // A process that tests whether it is unused holds it for a moment.
  while ((lock = trace::FileLock::Try(run + "/" + kInUse, trace::FileLock::Mode::kShared)).state() ==
         trace::FileLock::State::kBusy)
    if (!wait.Tick()) break;
  if (ingest::InputsOf(run) != key) return false;
  if (lock.held()) KeptImports().locks.push_back(std::move(lock));
  return true;
}

// Removes imports of older versions of the same files that no process reads.
void RemoveOlder(const std::string& cache, const std::string& names, const std::string& current) {
  std::vector<std::string> older;
  std::error_code error;
  for (fs::directory_iterator at(cache, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    // ".part-PID": imports in work of earlier versions.
    const bool ours = name == names || name.starts_with(names + "-") || name.starts_with(names + ".part-");
    struct stat info {};
    if (ours && at->path() != current && ::lstat(at->path().c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
        info.st_uid == ::geteuid())
      older.push_back(at->path().string());
  }
  for (const std::string& run : older) {
    struct stat info {};
    const std::string lock_path = run + "/" + kInUse;
    if (::lstat(lock_path.c_str(), &info) == 0) {
      const trace::FileLock lock = trace::LockIfUnused(lock_path);
      if (lock.held()) (void)trace::PartDirectory::Remove(run);
    } else if (::lstat(run.c_str(), &info) == 0 && std::time(nullptr) - info.st_mtim.tv_sec > kSurelyOldSeconds) {
      (void)trace::PartDirectory::Remove(run);
    }
  }
}

void SaySkipped(const std::vector<std::string>& skipped) {
  for (std::size_t i = 0; i < skipped.size(); ++i) {
    if (i == 3 && skipped.size() > 4) {
      Note("lockstep: skipped {} more files\n", skipped.size() - i);
      break;
    }
    Note("lockstep: skipped {}\n", skipped[i]);
  }
}

}  // namespace

Result<std::string> ImportIntoCache(const std::vector<std::string>& given, const ReadFlags& flags) {
  LS_TRY(const ingest::TraceFiles traces, ingest::FindTraces(given));
  if (!flags.quiet) SaySkipped(traces.skipped);
  LS_TRY(const std::string cache, CacheDirectory(ingest::CommonDirectory(traces.files)));
  Hash64 hash;
  for (const ingest::TraceFile& file : traces.files) hash.Add(std::string_view(file.real));
  const std::string names = fmt::format("import-{:016x}", hash.value()),
                    key = ingest::InputsKey(traces, false, flags.step_range);
  // Other inputs get another directory, so the contents under this name never change.
  const std::string run = (fs::path(cache) / (names + "-" + key)).string();
  const auto found = [&] {
    if (!Use(run, key)) return false;
    if (!flags.quiet) Note("lockstep: traces as imported before in {}\n", run);
    return true;
  };
  trace::RemoveLeftovers(cache);
  if (found()) return run;
  const auto say = [&](const std::string& text) {
    if (!flags.quiet) Note("lockstep: {}\n", text);
  };
  merge::WorkLock lock(fmt::format("{}/.{}-{}.lock", cache, names, key), "the same traces", say);
  if (found()) return run;
  RemoveOlder(cache, names, run);

  auto part = std::make_unique<trace::PartDirectory>();
  if (const int error = part->Open(run); error != 0)
    return Error{ErrorCode::kIo, "cannot import: " + std::generic_category().message(error), cache,
                 "lockstep import FILES -o RUN, then lockstep analyze RUN"};
  ingest::ImportOptions options;
  options.run_dir = part->directory();
  options.jobs = flags.jobs;
  options.step_range = flags.step_range;
  {
    Progress meter(flags.quiet);
    options.progress = [&](const ingest::ImportProgress& progress) {
      lock.Touch();
      ShowImport(meter, progress);
    };
    LS_CHECK(ingest::Import(traces, options));
  }
  trace::FileLock use = trace::FileLock::Try(part->directory() + "/" + kInUse, trace::FileLock::Mode::kShared);
  int published = part->Publish();
  // Without locks another process may have published first; an existing import that cannot be used is removed.
  if (published != 0 && Use(run, key)) return run;
  if (published != 0 && trace::PartDirectory::Remove(run) == 0) published = part->Publish();
  const std::string where = published == 0 ? run : part->directory();
  if (use.held()) KeptImports().locks.push_back(std::move(use));
  if (published != 0) KeptImports().own.push_back(std::move(part));
  if (!flags.quiet)
    Note("lockstep: imported {} {} into {}\n", traces.files.size(), traces.files.size() == 1 ? "trace" : "traces",
         where);
  return where;
}

}  // namespace lockstep::cli
