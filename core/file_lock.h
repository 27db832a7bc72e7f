#pragma once
// Who is alive, asked of the kernel through a file: a lock that its holder takes and that ends with it.
//
// Locks of an open file description (fcntl(2), F_OFD_SETLK; Linux 3.15). Unlike process ids they mean the same in every
// pid namespace and container that sees the file. Unlike flock(2) an exclusive one needs a descriptor
// that may write, so a stranger who can only read the file cannot pass for its writer. They end with the last
// reference to the open file, and a mapping is one (tested on 6.18: descriptor closed, file mapped, and again in a
// forked child): a process that maps a file which was locked before holds the lock until it unmaps, executes or dies.
//
// Close-on-exec keeps a lock from a program that is started.

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace lockstep {

enum class Locked : std::uint8_t {
  kYes,
  kHeld,         // Another process holds it in a way that excludes this one.
  kUnsupported,  // This file system or kernel has no locks (NFS, ENOLCK, ENOSYS, EINVAL, ...), so nothing is proved.
};

// Over NFS a lock is a request to the server's lock manager. If that does not answer (because of a firewall before it,
// which is common), the caller waits for ever, without SETLKW and beyond signals (hard mounts, nfs(5)). A job must not
// hang on that, so no locks are used there.
inline bool LocksMayHang(int fd) {
  constexpr long kNfs = 0x6969;  // statfs(2), NFS_SUPER_MAGIC
  struct statfs info {};
  return ::fstatfs(fd, &info) == 0 && info.f_type == kNfs;
}

// Never waits for a lock. `type`: F_RDLCK or F_WRLCK.
inline Locked TryLock(int fd, short type) {
  if (LocksMayHang(fd)) return Locked::kUnsupported;
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  int rc;
  do {
    rc = ::fcntl(fd, F_OFD_SETLK, &lock);
  } while (rc != 0 && errno == EINTR);
  if (rc == 0) return Locked::kYes;
  return errno == EAGAIN || errno == EACCES ? Locked::kHeld : Locked::kUnsupported;
}
inline Locked TryLockExclusive(int fd) { return TryLock(fd, F_WRLCK); }  // The descriptor must be open for writing,
inline Locked TryLockShared(int fd) { return TryLock(fd, F_RDLCK); }     // for reading.

// Whether a lock of `type` would be refused now: kHeld, or kYes if not. Takes none. Any descriptor is sufficient.
inline Locked AskLock(int fd, short type) {
  if (LocksMayHang(fd)) return Locked::kUnsupported;
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd, F_OFD_GETLK, &lock) != 0) return Locked::kUnsupported;
  return lock.l_type == F_UNLCK ? Locked::kYes : Locked::kHeld;
}
inline Locked AskExclusive(int fd) { return AskLock(fd, F_RDLCK); }  // kHeld: another process holds the exclusive lock.
inline Locked AskAny(int fd) { return AskLock(fd, F_WRLCK); }        // kHeld: another process holds any lock.

// Owns a descriptor and the locks of its open file.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~OwnedFd() { Reset(); }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace lockstep
