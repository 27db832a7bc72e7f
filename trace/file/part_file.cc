#include "trace/file/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <vector>

#include "trace/file/lock_file.h"

namespace lockstep::trace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDirectory = ".d";

bool IsWorkLock(std::string_view name) {
  return name == ".lockstep.lock" || (name.starts_with(".import-") && name.ends_with(".lock"));
}

}  // namespace

int PartFile::Open(const std::string& path) {
  Drop();
  path_ = path;
  struct stat info {};
  in_place_ = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  if (in_place_) part_ = path;
  fd_ = in_place_ ? OwnedFd(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) : CreateBeside(path, 0666, &part_);
  return fd_.open() ? 0 : errno;
}

int PartFile::Publish() {
  const int error = in_place_ ? 0 : MoveOver(part_, path_);
  if (error != 0) {
    Drop();
    return error;
  }
  // NFS reports late write errors here.
  return ::close(fd_.Release()) == 0 ? 0 : errno;
}

void PartFile::Drop() {
  if (fd_.open() && !in_place_) ::unlink(part_.c_str());
  fd_.Reset();
}

int PartDirectory::Open(const std::string& path) {
  Drop();
  path_ = path;
  if (const int error = lock_.Open(path); error != 0) return error;
  directory_ = lock_.part() + std::string(kDirectory);
  if (::mkdir(directory_.c_str(), 0777) == 0) return 0;
  const int error = errno;
  directory_.clear();
  lock_.Drop();
  return error;
}

int PartDirectory::Publish() {
  if (std::rename(directory_.c_str(), path_.c_str()) != 0) return errno;
  directory_.clear();
  lock_.Drop();
  return 0;
}

int PartDirectory::Remove(const std::string& path) {
  PartDirectory away;
  if (const int error = away.Open(path); error != 0) return error;
  // Replaces the empty directory.
  return std::rename(path.c_str(), away.directory_.c_str()) == 0 ? 0 : errno;
}

void PartDirectory::Drop() {
  std::error_code ignored;
  if (!directory_.empty()) fs::remove_all(directory_, ignored);
  directory_.clear();
  lock_.Drop();
}

bool IsPart(std::string_view name) {
  if (name.ends_with(kDirectory)) name.remove_suffix(kDirectory.size());
  return IsPartName(name);
}

void RemoveLeftovers(const std::string& directory) {
  std::vector<std::string> parts, locks;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (IsPartName(name)) parts.push_back(at->path().string());
    if (IsWorkLock(name)) locks.push_back(at->path().string());
  }
  for (const std::string& part : parts) {
    const OwnedFd file = OpenOwn(part, O_RDWR);
    if (!file.open() || TryLockExclusive(file.get()) != Locked::kYes || !LocksProve(file.get())) continue;
    std::error_code ignored;
    fs::remove_all(part + std::string(kDirectory), ignored);
    ::unlink(part.c_str());
  }
  for (const std::string& lock : locks) {
    struct stat info {};
    if (::lstat(lock.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) continue;
    FileLock unused = LockIfUnused(lock);
    if (unused.held()) unused.Release(true);
  }
}

}  // namespace lockstep::trace
