#pragma once
// The interpreter of Python in this process, if there is one, read without running any of its code.

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/python_layout.h"

namespace lockstep::probe {

// This process's memory, by a call of the kernel that fails where there is none: a layout that is not this
// interpreter's must not end the program. Pieces are kept, because frames lie side by side; none crosses a page.
class OwnMemory {
 public:
  OwnMemory() {}  // The piece is written before it is read.
  bool Read(std::uint64_t address, void* to, std::size_t bytes) const {
    if (address < kPieceBytes) return false;  // A member of nothing; and 0 is no piece's begin.
    if (bytes <= kPieceBytes && address / kPieceBytes == (address + bytes - 1) / kPieceBytes) {
      const std::uint64_t begin = address / kPieceBytes * kPieceBytes;
      if (begin != begin_) {
        begin_ = 0;
        if (!Copy(begin, piece_, kPieceBytes)) return false;
        begin_ = begin;
      }
      std::memcpy(to, piece_ + (address - begin), bytes);
      return true;
    }
    return Copy(address, to, bytes);
  }
  // Whether the system forbids such reads altogether (a filter of system calls).
  bool refused() const { return refused_; }

 private:
  static constexpr std::size_t kPieceBytes = 1024;
  bool Copy(std::uint64_t address, void* to, std::size_t bytes) const {
    const iovec here{to, bytes}, there{reinterpret_cast<void*>(address), bytes};
    const ssize_t got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    if (got == static_cast<ssize_t>(bytes)) return true;
    refused_ = refused_ || (got < 0 && (errno == ENOSYS || errno == EPERM));
    return false;
  }
  alignas(8) mutable std::byte piece_[kPieceBytes];
  mutable std::uint64_t begin_ = 0;  // Of the piece; 0: there is none.
  mutable bool refused_ = false;
};

struct Interpreter {
  PythonLayout layout;
  const void* (*state)() = nullptr;  // Of the calling thread, with or without Python's lock; null: it has none.
  std::uint64_t runtime = 0;         // _PyRuntime
};

// Null: there is none, as far as is known. It may be loaded at any time, and is looked for ever more seldom, by dlsym.
const Interpreter* TheInterpreter();
// The same without looking: dlsym allocates when it fails, which those may not who hold an allocator's lock.
const Interpreter* KnownInterpreter();
// Where the program was started with it, its symbols are known from the begin. Returns whether it was.
bool FindInterpreterAtStart();
// Reading its memory is refused: it is not tried again. Returns whether this was the first time.
bool GiveUpInterpreter();

// Whether a lock or condition variable at this address is Python's own lock.
bool IsPythonLock(std::uint64_t address);

}  // namespace lockstep::probe
