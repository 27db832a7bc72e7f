#pragma once

#include <cerrno>

namespace lockstep {

// Restores errno at the end of its scope: for code that runs inside other programs' calls.
class ErrnoKeeper {
 public:
  ErrnoKeeper() : value_(errno) {}
  ~ErrnoKeeper() { errno = value_; }
  ErrnoKeeper(const ErrnoKeeper&) = delete;
  ErrnoKeeper& operator=(const ErrnoKeeper&) = delete;

 private:
  int value_;
};

}  // namespace lockstep
