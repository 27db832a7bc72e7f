#include "trace/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/file_lock.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = ".part-";
constexpr std::size_t kDigits = 16;
constexpr std::string_view kDirectory = ".d";

std::string RandomDigits() {
  std::random_device device;
  char text[kDigits + 1];
  std::snprintf(text, sizeof text, "%08x%08x", static_cast<unsigned>(device()), static_cast<unsigned>(device()));
  return text;
}

// As Open names them.
bool IsPartFile(std::string_view name) {
  if (name.size() < kDigits + kMark.size() + 2 || name.front() != '.') return false;
  const std::string_view digits = name.substr(name.size() - kDigits);
  return digits.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         name.substr(0, name.size() - kDigits).ends_with(kMark);
}

bool IsWorkLock(std::string_view name) {
  return name == ".lockstep.lock" || (name.starts_with(".import-") && name.ends_with(".lock"));
}

}  // namespace

PartFile::PartFile(PartFile&& other) noexcept
    : path_(std::move(other.path_)),
      part_(std::move(other.part_)),
      fd_(std::exchange(other.fd_, -1)),
      in_place_(other.in_place_) {}

PartFile& PartFile::operator=(PartFile&& other) noexcept {
  if (this == &other) return *this;
  Drop();
  path_ = std::move(other.path_);
  part_ = std::move(other.part_);
  fd_ = std::exchange(other.fd_, -1);
  in_place_ = other.in_place_;
  return *this;
}

int PartFile::Open(const std::string& path) {
  Drop();
  path_ = path;
  struct stat info {};
  in_place_ = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  if (in_place_) {
    part_ = path;
    fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    return fd_ < 0 ? errno : 0;
  }
  const fs::path whole(path);
  for (int attempt = 0; attempt < 100; ++attempt) {
    // As long as names go: what is cut off tells nothing that matters.
    const std::string name = whole.filename().string().substr(0, 200);
    part_ = (whole.parent_path() / ("." + name + std::string(kMark) + RandomDigits())).string();
    fd_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) return errno;
    // Who cleans up may have come between: then it is gone, or he has the lock and takes it.
    const bool taken = ::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && ::fstat(fd_, &info) == 0 && info.st_nlink == 1) return 0;
    Drop();
  }
  return EEXIST;
}

int PartFile::Write(const char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t written = ::write(fd_, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes += written;
    count -= static_cast<std::size_t>(written);
  }
  return 0;
}

int PartFile::Publish() {
  int error = 0;
  if (!in_place_ && std::rename(part_.c_str(), path_.c_str()) != 0) error = errno;
  if (error == 0) {
    // What NFS could not write is told here.
    if (::close(std::exchange(fd_, -1)) != 0) error = errno;
  } else {
    Drop();
  }
  return error;
}

void PartFile::Drop() {
  if (fd_ < 0) return;
  if (!in_place_) ::unlink(part_.c_str());
  ::close(std::exchange(fd_, -1));
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
  // Onto the empty one.
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
  return IsPartFile(name);
}

void RemoveDeadParts(const std::string& directory) {
  std::vector<std::string> parts;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    if (const std::string name = at->path().filename().string(); IsPartFile(name) || IsWorkLock(name))
      parts.push_back(at->path().string());
  for (const std::string& part : parts) {
    struct stat info {};
    if (::lstat(part.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) continue;
    FileLock lock = LockIfUnused(part);
    if (!lock.held()) continue;
    std::error_code ignored;
    fs::remove_all(part + std::string(kDirectory), ignored);
    lock.Release(true);
  }
}

}  // namespace lockstep
