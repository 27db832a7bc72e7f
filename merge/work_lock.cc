#include "merge/work_lock.h"

namespace lockstep {

WorkLock::WorkLock(const std::string& path, const std::string& of, const std::function<void(const std::string&)>& say) {
  LockWait wait(path);
  for (;;) {
    lock_ = FileLock::Try(path, FileLock::Mode::kExclusive);
    if (lock_.state() != FileLock::State::kBusy) break;
    std::string owner = OwnerOf(path);
    if (owner.empty()) owner = "another lockstep";
    if (wait.TellNow() && say) say("waiting for " + owner + ", which prepares " + of);
    if (wait.Tick()) continue;
    if (say) say(owner + " has " + of + " and makes no progress: not waiting any longer");
    return;
  }
  if (lock_.state() == FileLock::State::kNone && say)
    say("no locks in the directory of " + path + ": another lockstep at work there would do the same again");
  lock_.NameOwner("lockstep");
}

}  // namespace lockstep
