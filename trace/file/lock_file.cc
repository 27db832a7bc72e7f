#include "trace/file/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <thread>
#include <utility>

#include "core/env.h"
#include "core/own_file.h"

namespace lockstep::trace {
namespace {

constexpr std::chrono::milliseconds kPatience{60'000}, kPause{50};
constexpr long kSurelyOldSeconds = 24 * 3600;

bool SameFile(int fd, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

int Lock(int fd, int operation) {
  int result = 0;
  do {
    result = ::flock(fd, operation | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result;
}

long long ModifiedNs(const struct stat& info) { return info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec; }

}  // namespace

FileLock FileLock::Try(const std::string& path, Mode mode) {
  FileLock lock;
  lock.path_ = path;
  // The holder of the exclusive lock may remove the file; then there may be another one by now.
  for (int attempt = 0; attempt < 100; ++attempt) {
    OwnedFd fd = OpenPlain(path, O_RDWR | O_CREAT);
    if (!fd.open()) fd = OpenPlain(path, O_RDONLY);  // The file is another user's: it can be locked all the same.
    if (!fd.open()) break;
    if (Lock(fd.get(), mode == Mode::kShared ? LOCK_SH : LOCK_EX) != 0) {
      lock.busy_ = errno == EWOULDBLOCK;
      break;
    }
    if (SameFile(fd.get(), path)) {
      lock.fd_ = std::move(fd);
      break;
    }
  }
  return lock;
}

void FileLock::NameOwner(const std::string& what) {
  if (!held()) return;
  char host[256] = "";
  (void)::gethostname(host, sizeof host - 1);
  const std::string text = what + ", process " + std::to_string(::getpid()) + " on " + host + "\n";
  if (::ftruncate(fd_.get(), 0) != 0 || ::pwrite(fd_.get(), text.data(), text.size(), 0) < 0)
    return;  // The text is only informative, so errors are ignored.
}

void FileLock::Touch() {
  const auto now = std::chrono::steady_clock::now();
  if (!held() || now - touched_ < std::chrono::seconds(1)) return;
  touched_ = now;
  (void)::futimens(fd_.get(), nullptr);
}

void FileLock::Release(bool remove) {
  if (remove && held() && SameFile(fd_.get(), path_)) ::unlink(path_.c_str());
  fd_.Reset();
}

std::string OwnerOf(const std::string& lock_path) {
  std::string owner;
  for (const char c : ReadPlain(lock_path, 160)) {
    if (c == '\n') break;
    owner += c >= ' ' && c <= '~' ? c : '?';
  }
  return owner;
}

std::chrono::milliseconds LockPatience() {
  if (const char* text = std::getenv(env::kTestLockWait); text != nullptr && *text != '\0')
    return std::chrono::milliseconds(std::strtol(text, nullptr, 10));
  return kPatience;
}

bool LockWait::Tick() {
  std::this_thread::sleep_for(kPause);
  const auto now = std::chrono::steady_clock::now();
  // The time itself may come from another machine's clock; only its changes are used.
  struct stat info {};
  const long long changed_ns = ::stat(path_.c_str(), &info) == 0 ? ModifiedNs(info) : 0;
  if (changed_ns != seen_ns_) {
    seen_ns_ = changed_ns;
    moved_ = now;
  }
  return now - moved_ < LockPatience();
}

bool LockWait::TellNow() {
  if (told_ || std::chrono::steady_clock::now() - begin_ < std::chrono::seconds(1)) return false;
  return told_ = true;
}

bool SharedBetweenMachines(int fd) {
  struct statfs info {};
  if (::fstatfs(fd, &info) != 0) return true;
  // statfs(2), linux/magic.h: NFS, SMB, CIFS, SMB2, FUSE, Lustre, GPFS, BeeGFS, Ceph, 9P, AFS, GFS2, OCFS2.
  static constexpr unsigned long kMagic[] = {0x6969,     0x517b,     0xff534d42, 0xfe534d42, 0x65735546,
                                             0x0bd00bd0, 0x47504653, 0x19830326, 0x00c36400, 0x01021997,
                                             0x5346414f, 0x01161970, 0x7461636f};
  const auto magic = static_cast<unsigned long>(info.f_type) & 0xffffffffUL;
  return std::find(std::begin(kMagic), std::end(kMagic), magic) != std::end(kMagic);
}

bool LocksProve(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return false;
  return !SharedBetweenMachines(fd) || std::time(nullptr) - info.st_mtim.tv_sec > kSurelyOldSeconds;
}

FileLock LockIfUnused(const std::string& path) {
  FileLock lock;
  OwnedFd fd = OpenPlain(path, O_RDONLY);
  if (!fd.open() || Lock(fd.get(), LOCK_EX) != 0 || !SameFile(fd.get(), path) || !LocksProve(fd.get())) return lock;
  lock.path_ = path;
  lock.fd_ = std::move(fd);
  return lock;
}

}  // namespace lockstep::trace
