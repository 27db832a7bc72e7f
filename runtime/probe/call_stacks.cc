// What an operation was called from (lockstep run --stacks calls): return addresses by the unwinder that C++ has for
// its exceptions, and the frames of Python by their layout in memory. Names of functions of C++ are the agent's work;
// those of Python are read here, when a stack is seen for the first time, because their objects may be gone later.
//
// No code of Python's runs that could change anything, and no memory is allocated but the table that a thread's texts
// are in: an MPI call may come while Python's lock is not held.

#include <execinfo.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "core/hash.h"
#include "core/loss.h"
#include "core/python_code.h"
#include "runtime/probe/own_python.h"
#include "runtime/probe/ring.h"

namespace lockstep::probe {
namespace {

constexpr int kMostAddresses = 20;  // The first ones are of this library and of the wrapper.
constexpr std::size_t kMostPythonFrames = 24, kMostTextBytes = 3072, kMostNameBytes = 256;

std::atomic<std::uint32_t> g_numbers{0};

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

std::uint32_t WriteNew(const OwnMemory& memory, const Interpreter* interpreter, const Frames& frames) {
  Payload payload;
  for (std::size_t i = 0; i < frames.address_count; ++i) payload.AddAddress(frames.addresses[i]);
  const std::uint32_t addresses_bytes = payload.bytes();
  for (std::size_t i = 0; i < frames.python_count; ++i)
    if (!payload.AddFrame(memory, interpreter->layout, frames.python[i], frames.code[i])) break;
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

// Number of the stack with these frames of Python and, if wanted, return addresses.
std::uint32_t NumberOf(RingPage& page, const Interpreter* interpreter, bool addresses) {
  const OwnMemory memory;
  Frames frames;
  if (interpreter != nullptr) {
    TakePython(*interpreter, memory, frames);
    if (memory.refused() && GiveUpInterpreter()) SayRefused();
  }
  const int count = addresses ? backtrace(frames.addresses.data(), kMostAddresses) : 0;
  frames.address_count = count > 0 ? static_cast<std::size_t>(count) : 0;
  if (frames.address_count == 0 && frames.python_count == 0) return 0;
  std::uint32_t* number = CallStackNumber(page, frames.Hash());
  if (number == nullptr) return WriteNew(memory, interpreter, frames);
  if (*number == 0) *number = WriteNew(memory, interpreter, frames);
  return *number;
}

}  // namespace

std::uint32_t PythonStack(RingPage& page) {
  const Interpreter* interpreter = KnownInterpreter();
  return interpreter == nullptr ? 0 : NumberOf(page, interpreter, false);
}

}  // namespace lockstep::probe

extern "C" std::uint32_t lockstep::lockstep_call_stack(void) {
  using namespace lockstep::probe;
  if (lockstep_probe.segment == nullptr) return 0;
  const ErrnoKeeper errno_keeper;
  RingPage* page = lockstep_ring();
  return page == nullptr ? 0 : NumberOf(*page, TheInterpreter(), true);
}
