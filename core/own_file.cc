#include "core/own_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace lockstep {
namespace {

constexpr int kMaxTries = 16;
constexpr std::size_t kMaxNameBytes = 200;  // Of the 255 a file system allows.
constexpr std::string_view kPartSuffix = ".part";
constexpr std::size_t kRandomDigits = 16;

// ".NAME." of `path`.
std::string PartPrefix(const std::string& path) {
  return "." + std::string(BaseName(path).substr(0, kMaxNameBytes)) + ".";
}

std::uint64_t Random() {
  std::uint64_t value = 0;
  if (::getrandom(&value, sizeof value, GRND_NONBLOCK) == static_cast<ssize_t>(sizeof value)) return value;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_nsec) * 0x9e3779b97f4a7c15u ^ static_cast<std::uint64_t>(::getpid()) << 32;
}

// ".NAME.<16 hex digits>.part", where `prefix` is all or the beginning of ".NAME.".
bool IsPartOf(std::string_view name, std::string_view prefix) {
  if (name.size() < prefix.size() + kRandomDigits + kPartSuffix.size()) return false;
  const std::size_t digits = name.size() - kRandomDigits - kPartSuffix.size();
  return name.starts_with(prefix) && name.ends_with(kPartSuffix) && name[digits - 1] == '.' &&
         (digits == prefix.size() || prefix == ".") &&
         name.substr(digits, kRandomDigits).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::vector<std::string> RemoveParts(const std::string& directory, const std::string& prefix) {
  std::vector<std::string> removed;
  DIR* entries = ::opendir(directory.c_str());
  if (entries == nullptr) return removed;
  while (const dirent* entry = ::readdir(entries)) {
    if (!IsPartOf(entry->d_name, prefix)) continue;
    std::string part = directory + "/" + entry->d_name;
    const OwnedFd fd = OpenOwn(part, O_RDWR);
    if (fd.open() && TryLockExclusive(fd.get()) == Locked::kYes && ::unlink(part.c_str()) == 0)
      removed.push_back(std::move(part));
  }
  ::closedir(entries);
  return removed;
}

}  // namespace

std::string DirectoryOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool IsPartName(std::string_view name) { return IsPartOf(name, "."); }

OwnedFd CreateBeside(const std::string& path, mode_t mode, std::string* name) {
  const std::string prefix = DirectoryOf(path) + "/" + PartPrefix(path);
  for (int n = 0; n < kMaxTries; ++n) {
    char digits[kRandomDigits + 1];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(Random()));
    *name = prefix + digits + std::string(kPartSuffix);
    OwnedFd fd(::open(name->c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!fd.open()) {
      if (errno == EEXIST) continue;
      return fd;
    }
    // Another user who may read the file, or a command that looks for files of dead processes, could have locked it
    // first.
    struct stat info {};
    if (TryLockExclusive(fd.get()) != Locked::kHeld && ::fstat(fd.get(), &info) == 0 && info.st_nlink > 0) return fd;
    ::unlink(name->c_str());
  }
  errno = EAGAIN;
  return OwnedFd();
}

int MoveOver(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int MoveNew(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) return errno;
  // NFS has no such flag; link() is atomic and does not replace there, either.
  if (::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return 0;
  }
  if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP && errno != EMLINK) return errno;
  // The file system supports neither, so this check is not atomic.
  struct stat info {};
  if (::lstat(to.c_str(), &info) == 0) return EEXIST;
  return MoveOver(from, to);
}

static int WriteFile(const std::string& path, std::string_view text, mode_t mode, bool durable,
                     int (*move)(const std::string&, const std::string&)) {
  std::string name;
  OwnedFd fd = CreateBeside(path, mode, &name);
  if (!fd.open()) return errno;
  int error = WriteAll(fd.get(), text);
  if (error == 0 && durable && ::fsync(fd.get()) != 0) error = errno;
  const OwnedFd lock(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));  // Keeps the lock until the file has its name.
  // NFS reports late write errors here.
  if (::close(fd.Release()) != 0 && error == 0) error = errno;
  if (error == 0) error = move(name, path);
  if (error != 0) ::unlink(name.c_str());
  if (error == 0 && durable) SyncDirectoryOf(path);
  return error;
}

int ReplaceFile(const std::string& path, std::string_view text, mode_t mode, bool durable) {
  return WriteFile(path, text, mode, durable, MoveOver);
}

int CreateFile(const std::string& path, std::string_view text, mode_t mode) {
  return WriteFile(path, text, mode, false, MoveNew);
}

void SyncDirectoryOf(const std::string& path) {
  const OwnedFd directory(::open(DirectoryOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.open()) ::fsync(directory.get());
}

std::vector<std::string> RemoveDeadParts(const std::string& path) {
  return RemoveParts(DirectoryOf(path), PartPrefix(path));
}

std::vector<std::string> RemoveDeadPartsIn(const std::string& directory) { return RemoveParts(directory, "."); }

OwnedFd OpenPlain(const std::string& path, int flags) {
  OwnedFd fd(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  struct stat info {};
  if (!fd.open() || ::fstat(fd.get(), &info) != 0) return OwnedFd();
  if (S_ISREG(info.st_mode)) return fd;
  fd.Reset();
  errno = EINVAL;
  return fd;
}

OwnedFd OpenOwn(const std::string& path, int flags) {
  OwnedFd fd = OpenPlain(path, flags);
  struct stat info {};
  if (!fd.open() || (::fstat(fd.get(), &info) == 0 && info.st_uid == ::geteuid())) return fd;
  fd.Reset();
  errno = EPERM;
  return fd;
}

std::string ReadPlain(const std::string& path, std::size_t limit) {
  const OwnedFd fd = OpenPlain(path, O_RDONLY);
  struct stat info {};
  if (!fd.open() || ::fstat(fd.get(), &info) != 0) return "";
  return ReadUpTo(fd.get(), 0, std::min(limit, static_cast<std::size_t>(info.st_size)));
}

std::string ReadUpTo(int fd, std::uint64_t offset, std::size_t limit, int* error) {
  std::string text(limit, '\0');
  std::size_t have = 0;
  while (have < limit) {
    const ssize_t got = ::pread(fd, text.data() + have, limit - have, static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && error != nullptr) *error = errno;
    if (got <= 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

bool ReadAt(int fd, std::uint64_t offset, void* out, std::size_t bytes) {
  auto* to = static_cast<char*>(out);
  while (bytes != 0) {
    const ssize_t got = ::pread(fd, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? ENOSPC : errno;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

bool RemoveOwn(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
         ::unlink(path.c_str()) == 0;
}

bool RemoveOwnLink(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode) && info.st_uid == ::geteuid() &&
         ::unlink(path.c_str()) == 0;
}

std::string NotOwnDirectory(const std::string& path, bool shared) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return std::strerror(errno);
  if (S_ISLNK(info.st_mode)) return "it is a link";
  if (!S_ISDIR(info.st_mode)) return "it is not a directory";
  if (info.st_uid != ::geteuid()) return "it belongs to user " + std::to_string(info.st_uid);
  if (!shared && (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "others may write to it";
  return "";
}

}  // namespace lockstep
