#include "runtime/agent/run_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "core/hex.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
constexpr int kMaxTries = 100;
constexpr std::time_t kWeakIdSeconds = 600;  // A later slot of the same job comes sooner.
constexpr std::time_t kOldLinkSeconds = 24 * 3600;

std::string Reason(int error) { return std::strerror(error); }

// 0, or errno. Makes parents; an existing directory is fine.
int MakeDirectories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return error.value();
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return errno;
  return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
}

constexpr std::size_t kClaimBytes = 8;
constexpr const char* kClaimRunning = "running\n";
constexpr const char* kClaimDone = "done   \n";
constexpr const char* kClaimFailed = "failed \n";

enum class Claimed { kYes, kTaken, kNo };

// Claims the slot in `dir`; *error is errno on kNo.
Claimed Claim(const std::string& dir, const LaunchEnv& launch, RunDir& out, int* error) {
  if ((*error = MakeDirectories(dir + "/ranks")) != 0) return Claimed::kNo;
  char name[32];
  std::snprintf(name, sizeof name, "/.agent-%05d", launch.slot());
  out.claim = dir + "/ranks" + name;
  const int fd = ::open(out.claim.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) {
    *error = errno;
    return *error == EEXIST ? Claimed::kTaken : Claimed::kNo;
  }
  // States are of one length, so that the last word needs no room on a disk that is full by then.
  const ssize_t ignored = ::write(fd, kClaimRunning, kClaimBytes);
  static_cast<void>(ignored);
  ::close(fd);
  return Claimed::kYes;
}

std::string DatedName(std::uint64_t run_hash) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S-", &local);
  return text + Hex(run_hash, 4);
}

// Links of finished runs; harmless, but they would pile up.
void PruneLinks(const std::string& base) {
  DIR* dir = ::opendir(base.c_str());
  if (dir == nullptr) return;
  const std::time_t now = std::time(nullptr);
  while (const dirent* entry = ::readdir(dir)) {
    if (std::strncmp(entry->d_name, ".id-", 4) != 0) continue;
    const std::string path = base + "/" + entry->d_name;
    struct stat info;
    if (::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode) && now - info.st_mtime > kOldLinkSeconds)
      ::unlink(path.c_str());
  }
  ::closedir(dir);
}

// A fresh dated directory in `base`. "" and errno in *error on failure.
std::string MakeDated(const std::string& base, std::uint64_t run_hash, int* error) {
  const std::string name = DatedName(run_hash);
  for (int n = 1; n < kMaxTries; ++n) {
    std::string candidate = n == 1 ? name : name + "-" + std::to_string(n);
    if (::mkdir((base + "/" + candidate).c_str(), 0777) == 0) return candidate;
    if (errno != EEXIST) break;
  }
  *error = errno;
  return "";
}

// errno, 0 for success.
int ClaimDated(const std::string& base, const LaunchEnv& launch, RunDir& out) {
  int error = MakeDirectories(base);
  if (error != 0) return error;
  out.latest = base + "/latest";
  if (launch.run_id_random) {
    const std::string name = MakeDated(base, launch.run_hash, &error);
    if (name.empty()) return error;
    out.path = base + "/" + name;
    return Claim(out.path, launch, out, &error) == Claimed::kYes ? 0 : error;
  }
  for (int n = 1; n < kMaxTries; ++n) {
    const std::string link = base + "/.id-" + Hex(launch.run_hash, 16) + (n == 1 ? "" : "-" + std::to_string(n));
    char target[PATH_MAX];
    ssize_t length = ::readlink(link.c_str(), target, sizeof target - 1);
    if (length < 0) {
      if (errno != ENOENT) return errno;
      PruneLinks(base);
      const std::string name = MakeDated(base, launch.run_hash, &error);
      if (name.empty()) return error;
      if (::symlink(name.c_str(), link.c_str()) != 0) {
        error = errno;
        ::rmdir((base + "/" + name).c_str());
        if (error != EEXIST) return error;
      }
      length = ::readlink(link.c_str(), target, sizeof target - 1);
      if (length < 0) return errno;
    }
    target[length] = '\0';
    struct stat info;
    if (launch.run_id_weak && ::lstat(link.c_str(), &info) == 0 && std::time(nullptr) - info.st_mtime > kWeakIdSeconds)
      continue;
    out.path = base + "/" + target;
    if (::stat(out.path.c_str(), &info) != 0) {
      // Deleted since. Not repaired: another slot may be doing so, and two would part.
      continue;
    }
    const Claimed claimed = Claim(out.path, launch, out, &error);
    if (claimed == Claimed::kYes) return 0;
    if (claimed == Claimed::kNo) return error;
  }
  return EEXIST;
}

// Whether `dir` is this run's: 1 yes, 0 another's, -1 error (errno in *error).
int OwnsOutput(const std::string& dir, const LaunchEnv& launch, int* error) {
  const std::string id_path = dir + "/.run-id", mine = Hex(launch.run_hash, 16) + "\n";
  struct stat info;
  if (::stat(id_path.c_str(), &info) != 0) {
    for (const char* name : {"/manifest.json", "/timeline.h5", "/analysis.json"})
      if (::stat((dir + name).c_str(), &info) == 0) return 0;  // Made by something else, an import for instance.
    const std::string fresh = id_path + "." + std::to_string(::getpid()) + "." + std::to_string(launch.slot());
    const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
      *error = errno;
      return -1;
    }
    const bool written = ::write(fd, mine.data(), mine.size()) == static_cast<ssize_t>(mine.size());
    ::close(fd);
    // link() is atomic and refuses to replace, also over NFS.
    int rc = written ? ::link(fresh.c_str(), id_path.c_str()) : -1;
    *error = written ? errno : ENOSPC;
    if (rc != 0 && written && *error != EEXIST) {
      // No hard links here: the weaker way, for one slot at a time.
      rc = ::rename(fresh.c_str(), id_path.c_str());
      *error = errno;
    }
    ::unlink(fresh.c_str());
    if (rc != 0 && *error != EEXIST) return -1;
  }
  char text[32] = {};
  const int fd = ::open(id_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    *error = errno;
    return -1;
  }
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  return n > 0 && mine == text ? 1 : 0;
}

int ClaimOutput(const std::string& output, const LaunchEnv& launch, RunDir& out) {
  std::string wanted = output;
  while (wanted.size() > 1 && wanted.back() == '/') wanted.pop_back();
  for (int n = 1; n < kMaxTries; ++n) {
    const std::string dir = n == 1 ? wanted : wanted + "-" + std::to_string(n);
    int error = MakeDirectories(dir);
    if (error != 0) return error;
    const int owns = OwnsOutput(dir, launch, &error);
    if (owns < 0) return error;
    if (owns == 0) continue;
    const Claimed claimed = Claim(dir, launch, out, &error);
    if (claimed == Claimed::kNo) return error;
    if (claimed == Claimed::kTaken) continue;
    out.path = dir;
    if (n > 1) out.notice = wanted + " holds another run: this one goes to " + dir;
    return 0;
  }
  return EEXIST;
}

}  // namespace

std::string RunDir::RankFile(std::int32_t slot, const char* suffix) const {
  char name[64];
  std::snprintf(name, sizeof name, "/ranks/rank-%05d%s", slot, suffix);
  return absolute + name;
}

Result<RunDir> ClaimRunDir(const LaunchEnv& launch, const std::string& output) {
  RunDir dir;
  const std::string wanted = output.empty() ? "lockstep.out" : output;
  int error = output.empty() ? ClaimDated(wanted, launch, dir) : ClaimOutput(wanted, launch, dir);
  if (error != 0) {
    const char* tmp = std::getenv("TMPDIR");
    const std::string base =
        std::string(tmp != nullptr && *tmp == '/' ? tmp : "/tmp") + "/lockstep.out-" + std::to_string(::getuid());
    const std::string why = wanted + " cannot be written (" + Reason(error) + ")";
    dir = {};
    if (const int second = ClaimDated(base, launch, dir); second != 0)
      return Error{ErrorCode::kIo, why + "; " + base + " neither (" + Reason(second) + ")", wanted,
                   "name a writable directory with --output"};
    dir.notice = why + ": this run's files go to " + dir.path;
  }
  std::error_code ignored;
  const fs::path absolute = fs::canonical(dir.path, ignored);
  dir.absolute = ignored ? fs::absolute(dir.path, ignored).string() : absolute.string();
  const std::string claim_name = dir.claim.substr(dir.claim.rfind('/'));
  dir.claim = dir.absolute + "/ranks" + claim_name;
  return dir;
}

void PointLatest(const RunDir& dir) {
  if (dir.latest.empty()) return;
  const std::string fresh = dir.latest + "." + std::to_string(::getpid());
  const std::string target = dir.path.substr(dir.path.rfind('/') + 1);
  ::unlink(fresh.c_str());
  if (::symlink(target.c_str(), fresh.c_str()) != 0) return;
  if (::rename(fresh.c_str(), dir.latest.c_str()) != 0) ::unlink(fresh.c_str());
}

void WriteClaim(const RunDir& dir, bool done) {
  const int fd = ::open(dir.claim.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t ignored = ::write(fd, done ? kClaimDone : kClaimFailed, kClaimBytes);
  static_cast<void>(ignored);
  ::close(fd);
}

void AbandonRunDir(const RunDir& dir) {
  ::unlink(dir.claim.c_str());
  if (::rmdir((dir.absolute + "/ranks").c_str()) != 0) return;  // Another slot is at work there.
  ::unlink((dir.absolute + "/.run-id").c_str());
  ::rmdir(dir.absolute.c_str());
}

}  // namespace lockstep
