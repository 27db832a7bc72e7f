#include "merge/work_lock.h"

namespace lockstep::merge {

WorkLock::WorkLock(const std::string& path, const std::string& of, const std::function<void(const std::string&)>& say) {
  trace::LockWait wait(path);
  for (;;) {
    lock_ = trace::FileLock::Try(path, trace::FileLock::Mode::kExclusive);
    if (lock_.state() != trace::FileLock::State::kBusy) break;
    std::string owner = trace::OwnerOf(path);
    if (owner.empty()) owner = "another lockstep";
    if (wait.TellNow() && say) say("waiting for " + owner + ", which prepares " + of);
    if (wait.Tick()) continue;
    if (say) say(owner + " has " + of + " and makes no progress: not waiting any longer");
    return;
  }
  if (lock_.state() == trace::FileLock::State::kNone && say)
    say("no locks in the directory of " + path + ": another lockstep at work there would do the same again");
  lock_.NameOwner("lockstep");
}

}  // namespace lockstep::merge
