#pragma once

#include <cerrno>

namespace lockstep {

// Nothing done while this lives shows in errno: for code that runs inside somebody else's calls.
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
