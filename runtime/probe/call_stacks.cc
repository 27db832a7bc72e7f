// What an operation was called from (lockstep run --stacks calls): return addresses by the unwinder that C++ has for
// its exceptions, and the frames of Python by their layout in memory. Names of functions of C++ are the agent's work;
// those of Python are read here, when a stack is seen for the first time, because their objects may be gone later.
//
// No code of Python's runs that could change anything, and no memory is allocated but the table that a thread's texts
// are in: an MPI call may come while Python's lock is not held.

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>

#include "core/hash.h"
#include "core/loss.h"
#include "core/python_code.h"
#include "core/python_layout.h"
#include "runtime/probe/ring.h"

namespace lockstep::probe {
namespace {

constexpr int kMostAddresses = 20;  // The first ones are of this library and of the wrapper.
constexpr std::size_t kMostPythonFrames = 24, kMostTextBytes = 3072, kMostNameBytes = 256;

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

// The interpreter in this process, once it was found.
struct Interpreter {
  PythonLayout layout;
  const void* (*state)() = nullptr;  // Of the calling thread, with or without Python's lock; null: it has none.
};
constinit Interpreter g_interpreter{};
enum Search : int { kNotFound, kSearching, kFound, kNeverAgain };
std::atomic<int> g_search{kNotFound};
std::atomic<std::uint32_t> g_calls{0}, g_numbers{0};

// 0x030b for "3.11.2 (main, ...)"; 0 for anything else.
std::uint32_t VersionOf(const char* text) {
  if (text == nullptr || strncmp(text, "3.", 2) != 0) return 0;
  std::uint32_t minor = 0;
  for (text += 2; *text >= '0' && *text <= '9' && minor < 100; ++text)
    minor = 10 * minor + static_cast<std::uint32_t>(*text - '0');
  return minor == 0 ? 0 : 0x0300U | minor;
}

Search FindInterpreter() {
  void* state = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
  const void* runtime = dlsym(RTLD_DEFAULT, "_PyRuntime");
  const auto version = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "Py_GetVersion"));
  if (state == nullptr || runtime == nullptr || version == nullptr) return kNotFound;
  const PythonLayout* known = LayoutOf(VersionOf(version()));
  if (known != nullptr) {
    g_interpreter.layout = *known;
  } else {
    std::array<std::uint8_t, kDebugOffsetsBytes> head;
    if (!OwnMemory().Read(reinterpret_cast<std::uint64_t>(runtime), head.data(), head.size()) ||
        !LayoutFrom(head, g_interpreter.layout))
      return kNeverAgain;  // Its version is not covered.
  }
  g_interpreter.state = reinterpret_cast<const void* (*)()>(state);
  return kFound;
}

// Null: there is none, as far as is known. It may be loaded at any time, and is looked for ever more seldom.
const Interpreter* TheInterpreter() {
  int search = g_search.load(std::memory_order_acquire);
  if (search == kNotFound && std::has_single_bit(g_calls.fetch_add(1, std::memory_order_relaxed) + 1) &&
      g_search.compare_exchange_strong(search, kSearching)) {
    search = FindInterpreter();
    g_search.store(search, std::memory_order_release);
  }
  return search == kFound ? &g_interpreter : nullptr;
}

struct Frames {
  std::array<RawPythonFrame, kMostPythonFrames> python;
  std::array<PythonCode, kMostPythonFrames> code;
  std::size_t python_count = 0;
  std::array<void*, kMostAddresses> addresses;
  std::size_t address_count = 0;

  std::uint64_t Hash() const {
    Hash64 hash;
    for (std::size_t i = 0; i < python_count; ++i) {
      for (const std::uint64_t word : {python[i].code, static_cast<std::uint64_t>(python[i].position), code[i].name,
                                       code[i].path, code[i].lines, static_cast<std::uint64_t>(code[i].first_line)})
        hash.Add(word);
    }
    for (std::size_t i = 0; i < address_count; ++i) hash.Add(reinterpret_cast<std::uint64_t>(addresses[i]));
    return hash.value();
  }
};

void TakePython(const Interpreter& interpreter, const OwnMemory& memory, Frames& frames) {
  const void* state = interpreter.state();
  if (state == nullptr) return;
  bool cut = false;
  const std::size_t count =
      WalkPython(memory, interpreter.layout, reinterpret_cast<std::uint64_t>(state), frames.python, cut);
  for (std::size_t i = 0; i < count; ++i)
    if (!ReadPythonCode(memory, interpreter.layout, frames.python[i].code, frames.code[i])) return;
  frames.python_count = count;
}

// Payload of the record; the text in it is cut behind a frame.
class Payload {
 public:
  void AddAddress(const void* address) { Put(&address, sizeof address); }

  bool AddFrame(const OwnMemory& memory, const PythonLayout& layout, const RawPythonFrame& frame,
                const PythonCode& code) {
    const std::size_t before = used_;
    std::array<char, kMostNameBytes> name;
    const std::string_view function(name.data(), PythonTextAt(memory, layout, code.name, name));
    char digits[16];
    const int written = snprintf(digits, sizeof digits, "%s\t%d\t", frame.last_of_loop ? "l" : "",
                                 std::clamp(PythonFrameLine(memory, layout, frame, code), 0, 99'999'999));
    bool good =
        Put(digits, static_cast<std::size_t>(written)) && PutName(function.substr(BeginOfFunctionName(function)));
    std::array<char, 4 * kMostNameBytes> path;
    good =
        good && Put("\t", 1) && PutName({path.data(), PythonTextAt(memory, layout, code.path, path)}) && Put("\n", 1);
    if (!good) used_ = before;
    return good;
  }

  const void* data() const { return bytes_; }
  std::uint32_t bytes() const { return static_cast<std::uint32_t>(used_); }

 private:
  bool Put(const void* from, std::size_t bytes) {
    if (bytes > sizeof bytes_ - used_) return false;
    std::memcpy(bytes_ + used_, from, bytes);
    used_ += bytes;
    return true;
  }
  // A name may hold anything, and must not end a field.
  bool PutName(std::string_view name) {
    const std::size_t at = used_;
    if (!Put(name.data(), name.size())) return false;
    for (std::size_t i = at; i < used_; ++i)
      if (static_cast<unsigned char>(bytes_[i]) < ' ') bytes_[i] = std::byte{'?'};
    return true;
  }
  alignas(8) std::byte bytes_[sizeof(void*) * kMostAddresses + kMostTextBytes];
  std::size_t used_ = 0;
};

std::uint32_t WriteNew(const OwnMemory& memory, const Frames& frames) {
  Payload payload;
  for (std::size_t i = 0; i < frames.address_count; ++i) payload.AddAddress(frames.addresses[i]);
  const std::uint32_t addresses_bytes = payload.bytes();
  for (std::size_t i = 0; i < frames.python_count; ++i)
    if (!payload.AddFrame(memory, g_interpreter.layout, frames.python[i], frames.code[i])) break;
  CallStackRecord record{};
  record.head = {RecordKind::kCallStack, 0,
                 static_cast<std::uint16_t>(1 + (payload.bytes() + kSlotBytes - 1) / kSlotBytes)};
  record.number = g_numbers.fetch_add(1, std::memory_order_relaxed) + 1;
  record.addresses = static_cast<std::uint32_t>(frames.address_count);
  record.text_bytes = payload.bytes() - addresses_bytes;
  return SlowWriter(1).Append(&record, 1, payload.data(), payload.bytes(), 1) ? record.number : 0;
}

void SayRefused() {
  LossRecord record{};
  record.head = {RecordKind::kLoss, 0, 2};
  record.name = lockstep_intern(Info(Loss::kSourceRefused).name.data());
  record.detail =
      lockstep_intern("lines of Python that calls came from: a filter of system calls forbids process_vm_readv");
  record.count = 1;
  lockstep_emit_slow(&record, 2, 1);
}

}  // namespace
}  // namespace lockstep::probe

extern "C" std::uint32_t lockstep::lockstep_call_stack(void) {
  using namespace lockstep::probe;
  if (lockstep_probe.segment == nullptr) return 0;
  const ErrnoKeeper errno_keeper;
  RingPage* page = lockstep_ring();
  if (page == nullptr) return 0;
  const OwnMemory memory;
  Frames frames;
  if (const Interpreter* interpreter = TheInterpreter(); interpreter != nullptr) {
    TakePython(*interpreter, memory, frames);
    if (memory.refused() && g_search.exchange(kNeverAgain) == kFound) SayRefused();
  }
  const int count = backtrace(frames.addresses.data(), kMostAddresses);
  frames.address_count = count > 0 ? static_cast<std::size_t>(count) : 0;
  if (frames.address_count == 0 && frames.python_count == 0) return 0;
  std::uint32_t* number = CallStackNumber(*page, frames.Hash());
  if (number == nullptr) return WriteNew(memory, frames);
  if (*number == 0) *number = WriteNew(memory, frames);
  return *number;
}
