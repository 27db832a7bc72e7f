#include "runtime/agent/spool/spool_writer.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/own_file.h"

namespace lockstep::agent {
namespace {

constexpr std::uint64_t kReserveBytes = 128 * 1024;
constexpr std::uint64_t kStrideBytes = 4 * 1024 * 1024;
constexpr std::size_t kMaxParts = 4;

}  // namespace

Result<SpoolWriter> SpoolWriter::Create(const std::string& path) {
  std::string fresh;
  OwnedFd file = CreateBeside(path, 0644, &fresh);
  int error = file.open() ? 0 : errno;
  struct stat info {};
  OwnedFd lock;
  if (error == 0) {
    lock = OwnedFd(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
    if (!lock.open() || ::fstat(file.get(), &info) != 0) error = errno;
    if (error == 0) error = MoveNew(fresh, path);
    if (error != 0) ::unlink(fresh.c_str());
  }
  if (error != 0)
    return Error{ErrorCode::kIo, "cannot create the spool file: " + std::string(std::strerror(error)), path,
                 "set --output or --spool-dir to a writable directory"};
  SpoolWriter writer(file.Release(), path);
  // CreateBeside took the lock if the file system has locks. Taking it again through the same open file succeeds.
  writer.locked_ = TryLockExclusive(lock.get()) == Locked::kYes;
  writer.lock_ = std::move(lock);
  writer.inode_ = static_cast<std::uint64_t>(info.st_ino);
  if (rlimit limit{}; ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    writer.size_limit_ = limit.rlim_cur;
  if (!writer.Allocate(kReserveBytes)) {
    ::unlink(path.c_str());
    return Error{ErrorCode::kIo, "no space for the spool file: " + std::string(std::strerror(writer.last_error_)), path,
                 "set --output or --spool-dir to a directory with space"};
  }
  return writer;
}

SpoolWriter SpoolWriter::Counting() {
  SpoolWriter writer(-1, "");
  writer.counting_ = true;
  return writer;
}

SpoolWriter::SpoolWriter(SpoolWriter&& other) noexcept { *this = std::move(other); }
SpoolWriter& SpoolWriter::operator=(SpoolWriter&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    lock_ = std::move(other.lock_);
    path_ = std::move(other.path_);
    bytes_ = other.bytes_;
    allocated_ = other.allocated_;
    inode_ = other.inode_;
    size_limit_ = other.size_limit_;
    locked_ = other.locked_;
    can_allocate_ = other.can_allocate_;
    counting_ = other.counting_;
    last_error_ = other.last_error_;
  }
  return *this;
}
SpoolWriter::~SpoolWriter() {
  if (fd_ >= 0) Close();
}

// Allocates space up to `end`: in large steps while there is enough, else exactly that.
bool SpoolWriter::Allocate(std::uint64_t end) {
  // fallocate without a change of the size ignores ulimit -f (Linux 6.18), but writes do not.
  if (end > size_limit_) {
    last_error_ = EFBIG;
    return false;
  }
  if (!can_allocate_ || end <= allocated_) return true;
  for (const std::uint64_t target : {end + kStrideBytes, end}) {
    int rc;
    do {
      rc = ::fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(allocated_),
                       static_cast<off_t>(target - allocated_));
    } while (rc != 0 && errno == EINTR);
    if (rc == 0) {
      allocated_ = target;
      return true;
    }
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) {
      can_allocate_ = false;  // NFS and some FUSE file systems have no fallocate. There, write(2) reports a full disk.
      return true;
    }
    last_error_ = errno;
  }
  return false;
}

bool SpoolWriter::Append(const Key& key, std::span<const iovec> payload, SpoolReserve reserve) {
  if ((fd_ < 0 && !counting_) || payload.size() > kMaxParts) return false;
  std::size_t total = 0;
  for (const iovec& part : payload) total += part.iov_len;
  if (counting_) {
    bytes_ += sizeof(SpoolBlockHeader) + total;
    return true;
  }
  if (total > UINT32_MAX) return false;
  SpoolBlockHeader header{};
  header.magic = kSpoolMagic;
  header.version = kSpoolVersion;
  header.kind = key.kind;
  header.bytes = static_cast<std::uint32_t>(total);
  header.ring = key.ring;
  header.generation = key.generation;
  header.first_slot = key.first_slot;
  std::uint32_t crc = Crc32c(0, &header, sizeof header);
  for (const iovec& part : payload) crc = Crc32c(crc, part.iov_base, part.iov_len);
  header.crc = crc;

  const std::uint64_t end = bytes_ + sizeof header + total;
  const std::uint64_t spared = reserve == SpoolReserve::kNone ? kReserveBytes : kReserveBytes / 2;
  if (reserve != SpoolReserve::kAll && !Allocate(end + spared)) return false;

  iovec parts[kMaxParts + 1];
  parts[0] = {&header, sizeof header};
  std::size_t count = 1;
  for (const iovec& part : payload)
    if (part.iov_len > 0) parts[count++] = part;
  iovec* next = parts;
  std::uint64_t at = bytes_;
  while (at < end) {
    const ssize_t n = ::pwritev(fd_, next, static_cast<int>(count), static_cast<off_t>(at));
    if (n <= 0) {
      if (n < 0 && errno == EINTR) continue;
      last_error_ = n < 0 ? errno : ENOSPC;
      // The part of the block that was written is cut off. Truncation needs no space.
      if (at != bytes_ && ::ftruncate(fd_, static_cast<off_t>(bytes_)) == 0) allocated_ = bytes_;
      return false;
    }
    at += static_cast<std::uint64_t>(n);
    std::size_t left = static_cast<std::size_t>(n);
    while (count > 0 && left >= next->iov_len) {
      left -= next->iov_len;
      ++next;
      --count;
    }
    if (left > 0) {
      next->iov_base = static_cast<char*>(next->iov_base) + left;
      next->iov_len -= left;
    }
  }
  bytes_ = end;
  return true;
}

bool SpoolWriter::Append(const Key& key, const void* payload, std::size_t bytes, SpoolReserve reserve) {
  const iovec part{const_cast<void*>(payload), bytes};
  return Append(key, std::span<const iovec>(&part, 1), reserve);
}

bool SpoolWriter::Close() {
  if (fd_ < 0) return true;
  bool good = true;
  if (allocated_ > bytes_) good = ::ftruncate(fd_, static_cast<off_t>(bytes_)) == 0;
  // NFS reports late write errors here.
  good = ::close(std::exchange(fd_, -1)) == 0 && good;
  return good;
}

}  // namespace lockstep::agent
