#include "core/python_layout.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace lockstep {
namespace {

// sizeof and offsetof of CPython's own headers (Include/internal/pycore_runtime.h, pycore_interp.h, pycore_frame.h,
// cpython/pystate.h, cpython/code.h, cpython/frameobject.h, cpython/unicodeobject.h) of 3.8.18, 3.9.18, 3.10.13, 3.11.7
// and 3.12.1, on 64-bit systems: tests/unit/runtime/agent/stacks/python_offsets.c prints them. They are part of the ABI
// of a version, so that every 3.11 has those of 3.11.
constexpr PythonLayout kLayouts[] = {
    {.version = 0x0308,
     .lines = LineTable::kIncrements,
     .frame_objects = true,
     .interpreters_head = 32,
     .interpreter_next = 0,
     .threads_head = 8,
     .thread_next = 8,
     .thread_id = 176,
     .thread_frame = 24,
     .frame_previous = 24,
     .frame_code = 32,
     .frame_position = 104,
     .code_filename = 104,
     .code_name = 112,
     .code_lines = 120,
     .code_first_line = 40,
     .text_state = 32,
     .text_length = 16,
     .text_bytes = 48,
     .text_wide = 72,
     .bytes_length = 16,
     .bytes_begin = 32,
     .gil = 1152,
     .gil_holder = 8,
     .gil_locked = 16,
     .gil_bytes = 208},
    {.version = 0x0309,
     .lines = LineTable::kIncrements,
     .frame_objects = true,
     .interpreters_head = 32,
     .interpreter_next = 0,
     .threads_head = 8,
     .thread_next = 8,
     .thread_id = 176,
     .thread_frame = 24,
     .frame_previous = 24,
     .frame_code = 32,
     .frame_position = 104,
     .code_filename = 104,
     .code_name = 112,
     .code_lines = 120,
     .code_first_line = 40,
     .text_state = 32,
     .text_length = 16,
     .text_bytes = 48,
     .text_wide = 72,
     .bytes_length = 16,
     .bytes_begin = 32,
     .gil = 352,
     .gil_holder = 8,
     .gil_locked = 16,
     .gil_bytes = 208},
    {.version = 0x030a,
     .lines = LineTable::kRanges,
     .frame_objects = true,
     .interpreters_head = 32,
     .interpreter_next = 0,
     .threads_head = 8,
     .thread_next = 8,
     .thread_id = 176,
     .thread_frame = 24,
     .frame_previous = 24,
     .frame_code = 32,
     .frame_position = 96,
     .code_filename = 104,
     .code_name = 112,
     .code_lines = 120,
     .code_first_line = 40,
     .text_state = 32,
     .text_length = 16,
     .text_bytes = 48,
     .text_wide = 72,
     .bytes_length = 16,
     .bytes_begin = 32,
     .gil = 352,
     .gil_holder = 8,
     .gil_locked = 16,
     .gil_bytes = 208},
    {.version = 0x030b,
     .lines = LineTable::kLocations,
     .interpreters_head = 40,
     .interpreter_next = 0,
     .threads_head = 16,
     .thread_next = 8,
     .thread_id = 160,
     .thread_frame = 56,
     .through_cframe = true,
     .cframe_frame = 8,
     .frame_previous = 48,
     .frame_code = 32,
     .frame_position = 56,
     .frame_owner = 69,
     .has_entry = true,
     .frame_entry = 68,
     .code_filename = 112,
     .code_name = 128,
     .code_lines = 136,
     .code_first_line = 72,
     .code_begin = 184,
     .text_state = 32,
     .text_length = 16,
     .text_bytes = 48,
     .text_wide = 72,
     .bytes_length = 16,
     .bytes_begin = 32,
     .gil = 360,
     .gil_holder = 8,
     .gil_locked = 16,
     .gil_bytes = 208},
    {.version = 0x030c,
     .lines = LineTable::kLocations,
     .interpreters_head = 40,
     .interpreter_next = 0,
     .threads_head = 72,
     .thread_next = 8,
     .thread_id = 144,
     .thread_frame = 56,
     .through_cframe = true,
     .cframe_frame = 0,
     .frame_previous = 8,
     .frame_code = 0,
     .frame_position = 56,
     .frame_owner = 70,
     .code_filename = 112,
     .code_name = 128,
     .code_lines = 136,
     .code_first_line = 68,
     .code_begin = 192,
     .text_state = 32,
     .text_length = 16,
     .text_bytes = 40,
     .text_wide = 56,
     .bytes_length = 16,
     .bytes_begin = 32,
     .gil_of_interpreter = true,
     .gil = 384,
     .gil_holder = 8,
     .gil_locked = 16,
     .gil_bytes = 208},
};

// What _PyRuntime begins with from 3.13 on: a mark, the version, whether there is no GIL, and then for each kind of
// object its size and the offsets of its members, 8 bytes each (Include/internal/pycore_debug_offsets.h; in 3.13
// pycore_runtime.h).
class DebugOffsets {
 public:
  explicit DebugOffsets(std::span<const std::uint8_t> head) : head_(head) {}
  std::uint64_t Next() {
    std::uint64_t value = 0;
    if (place_ + sizeof value <= head_.size()) std::memcpy(&value, head_.data() + place_, sizeof value);
    place_ += sizeof value;
    return value;
  }
  // A kind of object: its size, and as many members.
  void Begin() { size_ = Next(); }
  void Skip(int members) { place_ += sizeof(std::uint64_t) * static_cast<std::size_t>(members); }
  std::uint64_t Member() {
    const std::uint64_t offset = Next();
    good_ &= offset < size_;
    return offset;
  }
  std::uint64_t size() const { return size_; }
  bool good() const { return good_ && place_ <= head_.size(); }

 private:
  std::span<const std::uint8_t> head_;
  std::size_t place_ = 0;
  std::uint64_t size_ = 0;
  bool good_ = true;
};

constexpr std::uint32_t kFirstDescribed = 0x030d, kLastDescribed = 0x030e;

}  // namespace

const PythonLayout* LayoutOf(std::uint32_t version) {
  const auto* at = std::find_if(std::begin(kLayouts), std::end(kLayouts),
                                [&](const PythonLayout& each) { return each.version == version; });
  return at == std::end(kLayouts) ? nullptr : at;
}

bool LayoutFrom(std::span<const std::uint8_t> head, PythonLayout& layout) {
  constexpr char kMark[] = "xdebugpy";
  constexpr std::size_t kMarkBytes = sizeof kMark - 1;
  if (head.size() < kMarkBytes || std::memcmp(head.data(), kMark, kMarkBytes) != 0) return false;
  DebugOffsets in(head.subspan(kMarkBytes));
  layout = {.version = static_cast<std::uint32_t>(in.Next() >> 16), .lines = LineTable::kLocations};
  if (layout.version < kFirstDescribed || layout.version > kLastDescribed) return false;
  const bool later = layout.version > kFirstDescribed;
  in.Skip(1);  // Whether it has no GIL.

  in.Begin();  // _PyRuntimeState: finalizing, interpreters_head.
  in.Skip(1);
  layout.interpreters_head = in.Member();

  in.Begin();  // PyInterpreterState: id, next, threads_head, [3.14: threads_main,] gc, imports_modules, sysdict,
               // builtins, ceval_gil, the interpreter's own lock, whether it has one, whether it is locked, its last
               // holder, [3.14: two more].
  in.Skip(1);
  layout.interpreter_next = in.Member();
  layout.threads_head = in.Member();
  in.Skip(later ? 5 : 4);
  layout.gil_of_interpreter = true;
  layout.gil = in.Member();
  const std::uint64_t own_gil = in.Member();
  in.Skip(1);
  layout.gil_locked = in.Member() - own_gil;
  layout.gil_holder = in.Member() - own_gil;
  constexpr std::uint64_t kGilBytes = 208;  // In 3.13 and 3.14; one without a use of it has 8 more.
  if (layout.gil_locked < kGilBytes && layout.gil_holder < kGilBytes) layout.gil_bytes = kGilBytes;
  in.Skip(later ? 2 : 0);

  in.Begin();  // PyThreadState: prev, next, interp, current_frame, thread_id, native_thread_id, datastack_chunk,
               // status.
  in.Skip(1);
  layout.thread_next = in.Member();
  in.Skip(1);
  layout.thread_frame = in.Member();
  in.Skip(1);
  layout.thread_id = in.Member();
  in.Skip(2);

  in.Begin();  // _PyInterpreterFrame: previous, executable, instr_ptr, localsplus, owner, [3.14: two more].
  layout.frame_previous = in.Member();
  layout.frame_code = in.Member();
  layout.frame_position = in.Member();
  in.Skip(1);
  layout.frame_owner = in.Member();
  in.Skip(later ? 2 : 0);

  in.Begin();  // PyCodeObject: filename, name, qualname, linetable, firstlineno, three, co_code_adaptive, [3.14:
               // co_tlbc].
  layout.code_filename = in.Member();
  in.Skip(1);
  layout.code_name = in.Member();
  layout.code_lines = in.Member();
  layout.code_first_line = in.Member();
  in.Skip(3);
  layout.code_begin = in.Next();  // At the end of the object.
  in.Skip(later ? 1 : 0);

  in.Skip(2);              // PyObject.
  in.Skip(4);              // PyTypeObject.
  in.Skip(3);              // PyTupleObject.
  in.Skip(3);              // PyListObject.
  in.Skip(later ? 4 : 0);  // PySetObject.
  in.Skip(3);              // PyDictObject.
  in.Skip(2);              // PyFloatObject.
  in.Skip(3);              // PyLongObject.
  in.Begin();              // PyBytesObject: ob_size, ob_sval.
  layout.bytes_length = in.Member();
  layout.bytes_begin = in.Member();
  in.Begin();  // PyUnicodeObject: state, length, and the size of a PyASCIIObject.
  layout.text_state = in.Member();
  layout.text_length = in.Member();
  layout.text_bytes = in.Member();
  layout.text_wide = layout.text_bytes + 16;  // The length and the pointer of its UTF-8 form.
  return in.good() && layout.frame_bytes() <= 256;
}

}  // namespace lockstep
