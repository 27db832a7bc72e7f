#include "runtime/agent/rundir/run_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "core/hash.h"
#include "core/hex.h"
#include "core/own_file.h"
#include "core/rank_name.h"
#include "runtime/agent/rundir/claim.h"
#include "runtime/agent/rundir/process_state.h"
#include "trace/decode/tick_rate.h"

namespace lockstep::agent {
namespace {

namespace fs = std::filesystem;
constexpr int kMaxTries = 100;
constexpr std::time_t kWeakIdSeconds = 600;  // A later slot of the same job starts within this time.
constexpr std::time_t kStartSeconds = 60;    // The time between the first slots of a launch.
constexpr std::time_t kOldLinkSeconds = 24 * 3600;

std::string Reason(int error) { return std::strerror(error); }

// Creates the directory and its parents; an existing directory is no error. Returns 0 or errno.
int MakeDirectories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return error.value();
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return errno;
  return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
}

// Makes DIR/ranks, which must not be a link: files would be written and removed elsewhere. Returns 0 or errno.
int MakeRanks(const std::string& dir) {
  const std::string ranks = dir + "/ranks";
  if (const int error = MakeDirectories(ranks); error != 0) return error;
  struct stat info;
  if (::lstat(ranks.c_str(), &info) != 0) return errno;
  return S_ISDIR(info.st_mode) ? 0 : ELOOP;
}

// Whether the path is a directory (or a link to one) of another user inside a directory that everybody may write to,
// such as /tmp.
bool IsPlanted(const std::string& path) {
  struct stat info, parent;
  if (::lstat(path.c_str(), &info) != 0 || info.st_uid == ::geteuid() || info.st_uid == 0) return false;
  const std::size_t slash = path.rfind('/');
  const std::string above = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  return ::stat(above.c_str(), &parent) == 0 && (parent.st_mode & S_ISVTX) != 0 && (parent.st_mode & S_IWOTH) != 0;
}

// Claims the slot in `dir`; *error is errno on kNo.
Claimed ClaimSlot(const std::string& dir, const launch::LaunchEnv& launch, RunDir& out, int* error) {
  if ((*error = MakeRanks(dir)) != 0) return Claimed::kNo;
  out.claim = ClaimPath(dir, launch.slot());
  return MakeClaim(out.claim, launch, &out.claim_held, error);
}

// The file in which the first slot of each node records which launch this is.
std::string LaunchPath(const std::string& dir, const launch::LaunchEnv& launch) {
  Hash64 node;
  node.Add(std::string_view(trace::BootId()));
  // Containers and several launchers on one machine count as separate nodes.
  node.Add(std::to_string(launch.launch_node));
  return dir + "/ranks/.launch-" + Hex(node.value(), 16);
}

// "" if there is none.
std::string ReadLaunch(const std::string& dir, const launch::LaunchEnv& launch) {
  return ReadPlain(LaunchPath(dir, launch), 64);
}

// The first slot of a node writes the launch key, the others compare. Returns false if another launch wrote it.
bool AgreeOnLaunch(const std::string& dir, const launch::LaunchEnv& launch) {
  if (launch.launch_key.empty()) return true;
  const std::string mine = launch.launch_key + "\n", path = LaunchPath(dir, launch);
  return CreateFile(path, mine, 0644) != EEXIST || ReadLaunch(dir, launch) == mine;
}

// Whether the run in `dir`, which has this launch's weak id and began at `since`, belongs to this launch.
bool IsThisLaunch(const std::string& dir, const launch::LaunchEnv& launch, std::time_t since) {
  const std::time_t age = std::time(nullptr) - since;
  if (age > kWeakIdSeconds) return false;
  const std::string said = launch.launch_key.empty() ? std::string() : ReadLaunch(dir, launch);
  if (!said.empty()) return said == launch.launch_key + "\n";
  bool any = false, begun_here = false, same_parent = false;
  const std::string boot_id = trace::BootId(), parent = ParentProcess(launch);
  std::error_code error;
  for (fs::directory_iterator at(dir + "/ranks", error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().string().starts_with(".agent-") || at->path().extension() == ".part") continue;
    const Claim claim = ReadClaim(at->path().string());
    if (claim.world_size != launch.slots()) return false;
    if (!claim.over()) return true;
    any = true;
    if (claim.boot_id != boot_id) continue;
    begun_here = true;
    same_parent = same_parent || (!parent.empty() && claim.parent == parent);
  }
  // Either no slot has claimed yet, or all that did are over. This slot may be another node of the launch on the same
  // machine; the same node of another launch would have recorded its own launch key.
  const bool another_node = !begun_here || !launch.launch_key.empty();
  return !any || (age <= kStartSeconds && (same_parent || another_node));
}

std::string DatedName(std::uint64_t run_hash) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S-", &local);
  return text + Hex(run_hash, 4);
}

// The form of names made by DatedName and MakeDated: YYYYMMDD-HHMMSS-xxxx, with -N behind it. The target of a link is
// not trusted.
bool IsDatedName(std::string_view name) {
  constexpr std::string_view kShape = "dddddddd-dddddd-xxxx";
  if (name.size() < kShape.size()) return false;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    const char c = name[i];
    const bool digit = c >= '0' && c <= '9';
    if (kShape[i] == '-' ? c != '-' : !digit && (kShape[i] == 'd' || c < 'a' || c > 'f')) return false;
  }
  const std::string_view rest = name.substr(kShape.size());
  return rest.empty() || (rest.size() <= 4 && rest[0] == '-' && rest.size() > 1 &&
                          rest.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

// Removes links of finished runs. They are harmless, but would accumulate.
void PruneLinks(const std::string& base) {
  DIR* dir = ::opendir(base.c_str());
  if (dir == nullptr) return;
  const std::time_t now = std::time(nullptr);
  while (const dirent* entry = ::readdir(dir)) {
    if (std::strncmp(entry->d_name, ".id-", 4) != 0) continue;
    const std::string path = base + "/" + entry->d_name;
    struct stat info;
    if (::lstat(path.c_str(), &info) == 0 && now - info.st_mtime > kOldLinkSeconds) RemoveOwnLink(path);
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
int ClaimDated(const std::string& base, const launch::LaunchEnv& launch, RunDir& out) {
  int error = MakeDirectories(base);
  if (error != 0) return error;
  out.latest = base + "/latest";
  if (launch.run_id_random) {
    const std::string name = MakeDated(base, launch.run_hash, &error);
    if (name.empty()) return error;
    out.path = base + "/" + name;
    return ClaimSlot(out.path, launch, out, &error) == Claimed::kYes ? 0 : error;
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
      // Done before other ranks can find the directory.
      const std::string fresh = base + "/" + name;
      if (launch.run_id_weak && MakeRanks(fresh) == 0) AgreeOnLaunch(fresh, launch);
      if (::symlink(name.c_str(), link.c_str()) != 0) {
        error = errno;
        RemoveOwn(LaunchPath(fresh, launch));
        ::rmdir((fresh + "/ranks").c_str());
        ::rmdir(fresh.c_str());
        if (error != EEXIST) return error;
      }
      length = ::readlink(link.c_str(), target, sizeof target - 1);
      if (length < 0) return errno;
    }
    target[length] = '\0';
    struct stat info;
    if (!IsDatedName(target) || ::lstat(link.c_str(), &info) != 0) continue;
    const std::time_t since = info.st_mtime;
    out.path = base + "/" + target;
    // The directory was deleted meanwhile. It is not created again here: another slot may be doing so, and the two
    // would end up in different directories.
    if (::lstat(out.path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) continue;
    if (launch.run_id_weak &&
        (!IsThisLaunch(out.path, launch, since) || MakeRanks(out.path) != 0 || !AgreeOnLaunch(out.path, launch)))
      continue;
    const Claimed claimed = ClaimSlot(out.path, launch, out, &error);
    if (claimed == Claimed::kYes) return 0;
    if (claimed == Claimed::kNo) return error;
  }
  return EEXIST;
}

// Whether `dir` is this run's: 1 yes, 0 another's, -1 error (errno in *error).
int OwnsOutput(const std::string& dir, const launch::LaunchEnv& launch, int* error) {
  const std::string id_path = dir + "/.run-id", mine = Hex(launch.run_hash, 16) + "\n";
  struct stat info;
  if (::lstat(id_path.c_str(), &info) != 0) {
    for (const char* name : {"/manifest.json", "/timeline.h5", "/analysis.json"})
      // The directory was made by another command, for instance an import.
      if (::stat((dir + name).c_str(), &info) == 0) return 0;
    *error = CreateFile(id_path, mine, 0644);
    if (*error != 0 && *error != EEXIST) return -1;
  }
  char text[32] = {};
  const OwnedFd fd(::open(id_path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.open() || ::fstat(fd.get(), &info) != 0) {
    *error = errno;
    return -1;
  }
  const ssize_t n = ::read(fd.get(), text, sizeof text - 1);
  if (n <= 0 || mine != text) return 0;
  if (!launch.run_id_weak) return 1;
  return IsThisLaunch(dir, launch, info.st_mtime) && MakeRanks(dir) == 0 && AgreeOnLaunch(dir, launch) ? 1 : 0;
}

int ClaimOutput(const std::string& output, const launch::LaunchEnv& launch, RunDir& out) {
  std::string wanted = output;
  while (wanted.size() > 1 && wanted.back() == '/') wanted.pop_back();
  for (int n = 1; n < kMaxTries; ++n) {
    const std::string dir = n == 1 ? wanted : wanted + "-" + std::to_string(n);
    int error = MakeDirectories(dir);
    if (error != 0) return error;
    const int owns = OwnsOutput(dir, launch, &error);
    if (owns < 0) return error;
    if (owns == 0) continue;
    const Claimed claimed = ClaimSlot(dir, launch, out, &error);
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
  return absolute + "/ranks/" + RankName(slot) + suffix;
}

Result<RunDir> ClaimRunDir(const launch::LaunchEnv& launch, const std::string& output) {
  RunDir dir;
  const std::string wanted = output.empty() ? "lockstep.out" : output;
  const bool planted = IsPlanted(wanted);
  const int error = planted          ? EPERM
                    : output.empty() ? ClaimDated(wanted, launch, dir)
                                     : ClaimOutput(wanted, launch, dir);
  if (error != 0) {
    const char* tmp = std::getenv("TMPDIR");
    const std::string base =
        std::string(tmp != nullptr && *tmp == '/' ? tmp : "/tmp") + "/lockstep.out-" + std::to_string(::geteuid());
    const std::string why =
        wanted + (planted          ? " belongs to another user and is in a directory that everybody can write to"
                  : error == ELOOP ? " cannot be used: it or its ranks/ is a link"
                                   : " cannot be written (" + Reason(error) + ")");
    dir = {};
    // Another process may have made the directory first.
    std::string refused = ::mkdir(base.c_str(), 0700) == 0 ? "" : NotOwnDirectory(base, false);
    if (refused.empty())
      if (const int second = ClaimDated(base, launch, dir); second != 0) refused = Reason(second);
    if (!refused.empty())
      return Error{ErrorCode::kIo, why + "; " + base + " neither (" + refused + ")", wanted,
                   "name a writable directory with --output"};
    dir.notice = why + ": this run's files go to " + dir.path;
  }
  std::error_code ignored;
  const fs::path absolute = fs::canonical(dir.path, ignored);
  dir.absolute = ignored ? fs::absolute(dir.path, ignored).string() : absolute.string();
  const std::string claim_name = dir.claim.substr(dir.claim.rfind('/'));
  dir.claim = dir.absolute + "/ranks" + claim_name;
  dir.launch_word = LaunchPath(dir.absolute, launch);
  return dir;
}

void PointLatest(const RunDir& dir) {
  if (dir.latest.empty()) return;
  const std::string fresh = dir.latest + "." + std::to_string(::getpid());
  const std::string target = dir.path.substr(dir.path.rfind('/') + 1);
  std::error_code trouble;
  if (fs::read_symlink(dir.latest, trouble) == target || !fs::exists(dir.path + "/manifest.json", trouble)) return;
  RemoveOwnLink(fresh);
  if (::symlink(target.c_str(), fresh.c_str()) != 0) return;
  if (::rename(fresh.c_str(), dir.latest.c_str()) != 0) ::unlink(fresh.c_str());
}

void WriteClaim(const RunDir& dir, bool done) {
  if (dir.claim_held) EndClaim(*dir.claim_held, done);
}

void AbandonRunDir(const RunDir& dir) {
  RemoveOwn(dir.claim);
  RemoveOwn(dir.launch_word);
  if (::rmdir((dir.absolute + "/ranks").c_str()) != 0) return;  // Another slot still writes there.
  RemoveOwn(dir.absolute + "/.run-id");
  ::rmdir(dir.absolute.c_str());
}

}  // namespace lockstep::agent
