#pragma once
// Lets one command at a time make what all readers of a run share: rank files of spools or traces, timeline.h5.
// Correctness does not depend on it, because files appear whole, and a timeline contains the mark of its inputs; it
// only avoids doing the work twice.

#include <functional>
#include <string>

#include "trace/file/lock_file.h"

namespace lockstep::merge {

class WorkLock {
 public:
  // Waits for the holder as long as it makes progress; after a second `say` is called with its name. `of`: what is
  // locked, for that message.
  WorkLock(const std::string& path, const std::string& of, const std::function<void(const std::string&)>& say);
  // Removes the lock's file, too.
  ~WorkLock() { lock_.Release(true); }
  WorkLock(const WorkLock&) = delete;
  WorkLock& operator=(const WorkLock&) = delete;

  // Another command works on it and makes no progress: files that it may be about to remove must not be touched.
  bool others_at_it() const { return lock_.state() == trace::FileLock::State::kBusy; }
  // The holder gets on. From any thread, one call at a time.
  void Touch() { lock_.Touch(); }

 private:
  trace::FileLock lock_;
};

// Of a run directory.
inline std::string WorkLockOf(const std::string& run_dir) { return run_dir + "/.lockstep.lock"; }

}  // namespace lockstep::merge
