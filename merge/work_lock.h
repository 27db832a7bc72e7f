#pragma once
// One at a time makes what all who read a run share: rank files of spools or traces, timeline.h5. Being right does not
// depend on it - files appear whole, and a timeline says what it was made of -; it saves doing the work twice.

#include <functional>
#include <string>

#include "trace/file/lock_file.h"

namespace lockstep::merge {

class WorkLock {
 public:
  // Waits for whoever has it, as long as he gets on; `say` hears after a second whom. `of`: what is locked, for that.
  WorkLock(const std::string& path, const std::string& of, const std::function<void(const std::string&)>& say);
  // Takes the lock's file away with it.
  ~WorkLock() { lock_.Release(true); }
  WorkLock(const WorkLock&) = delete;
  WorkLock& operator=(const WorkLock&) = delete;

  // Another command works on it and makes no progress: what that command may be about to remove must not be touched.
  bool others_at_it() const { return lock_.state() == trace::FileLock::State::kBusy; }
  // The holder gets on. From any thread, one call at a time.
  void Touch() { lock_.Touch(); }

 private:
  trace::FileLock lock_;
};

// Of a run directory.
inline std::string WorkLockOf(const std::string& run_dir) { return run_dir + "/.lockstep.lock"; }

}  // namespace lockstep::merge
