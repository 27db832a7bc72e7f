#pragma once
// Lock files between commands that read and write the same directory: flock(2), which the kernel releases however its
// holder ends, which works across PID namespaces, and which (unlike core/file_lock.h) a reader without write permission
// can take as well. Some file systems have no such locks, so no decision may depend on them alone.

#include <chrono>
#include <string>

#include "core/file_lock.h"

namespace lockstep::trace {

// Thread: one at a time.
class FileLock {
 public:
  enum class Mode : unsigned char { kShared, kExclusive };
  enum class State : unsigned char {
    kHeld,
    kBusy,  // Another process holds it.
    kNone,  // Nothing can be locked here: no locks on this file system, no permission, no space.
  };

  // Does not wait. The file is made if it does not exist.
  static FileLock Try(const std::string& path, Mode mode);

  friend FileLock LockIfUnused(const std::string& path);

  State state() const { return held() ? State::kHeld : busy_ ? State::kBusy : State::kNone; }
  bool held() const { return fd_.open(); }

  // Writes into the file which command holds it, for those that wait. For an exclusive lock.
  void NameOwner(const std::string& what);
  // Shows that the holder makes progress: at most once a second, however often it is called.
  void Touch();
  // Releases it; `remove`: and removes the file, which is safe while it is held exclusively.
  void Release(bool remove = false);

 private:
  std::string path_;
  OwnedFd fd_;
  bool busy_ = false;
  std::chrono::steady_clock::time_point touched_{};
};

// What NameOwner wrote, in printable characters, since another user may own the file. "" if it is empty.
std::string OwnerOf(const std::string& lock_path);

// How long a command waits for a holder that does not Touch its lock. LOCKSTEP_TEST_LOCK_WAIT_MS changes it.
std::chrono::milliseconds LockPatience();

// Waits for a holder as long as it makes progress: call Tick between tries.
class LockWait {
 public:
  explicit LockWait(std::string lock_path) : path_(std::move(lock_path)) {}
  // Sleeps a little. Returns false if the holder has made no progress for LockPatience.
  bool Tick();
  // Returns true once, after a second: the user should then see a message.
  bool TellNow();

 private:
  std::string path_;
  long long seen_ns_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now(), moved_ = begin_;
  bool told_ = false;
};

// Several machines may see this file system, and not all of them show one another's locks (NFS with local_lock,
// Lustre with localflock): there a free lock alone does not prove that a file is unused.
bool SharedBetweenMachines(int fd);

// Whether holding the lock of this open file proves that no other process uses it: everywhere except on a file system
// of several machines, where the file must be a day old.
bool LocksProve(int fd);

// Takes the exclusive lock of an existing file, if that proves that the file is unused; otherwise returns a lock that
// is not held. A process that removes the file does so before it unlocks: users check that what they locked still
// exists.
FileLock LockIfUnused(const std::string& path);

}  // namespace lockstep::trace
