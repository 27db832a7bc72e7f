#pragma once
// Where CPython keeps what its frames are made of, by version.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

// How a code object says which line an instruction is of.
enum class LineTable : std::uint8_t {
  kIncrements,  // co_lnotab of 3.8 and 3.9: (bytes, lines) pairs.
  kRanges,      // co_linetable of 3.10 (PEP 626).
  kLocations,   // co_linetable of 3.11 and later: entries of varying length (InternalDocs/code_objects.md).
};

// Offsets in bytes.
struct PythonLayout {
  std::uint32_t version = 0;  // 0x030b: 3.11.
  LineTable lines = LineTable::kLocations;
  // 3.8 to 3.10 have a frame object for every call; later ones have frames that are no objects, several of which belong
  // to one call of the interpreter's loop.
  bool frame_objects = false;
  std::uint64_t interpreters_head = 0;                   // Of _PyRuntimeState.
  std::uint64_t interpreter_next = 0, threads_head = 0;  // Of PyInterpreterState.
  std::uint64_t thread_next = 0, thread_id = 0,
                thread_frame = 0;  // Of PyThreadState; the id is the kernel's since 3.11.
  bool through_cframe = false;     // thread_frame is a pointer to a _PyCFrame.
  std::uint64_t cframe_frame = 0;
  std::uint64_t frame_previous = 0, frame_code = 0, frame_position = 0, frame_owner = 0;
  bool has_entry = false;  // 3.11: the frame that a call of the loop began with has a mark, frame_entry.
  std::uint64_t frame_entry = 0;
  std::uint64_t code_filename = 0, code_name = 0, code_lines = 0, code_first_line = 0, code_begin = 0;
  std::uint64_t text_state = 0, text_length = 0;
  std::uint64_t text_bytes = 0,
                text_wide = 0;  // Where the characters of a compact string begin: of an ASCII one, of others.
  std::uint64_t bytes_length = 0, bytes_begin = 0;
  // The lock of the interpreter (struct _gil_runtime_state): a member of _PyRuntimeState, or from 3.12 on behind a
  // pointer of PyInterpreterState. `gil_holder` (a PyThreadState; it stays when the lock is released) and `gil_locked`
  // (an int) are offsets in it; gil_bytes 0: not known where it is.
  bool gil_of_interpreter = false;
  std::uint64_t gil = 0, gil_holder = 0, gil_locked = 0, gil_bytes = 0;

  // So much of a frame holds all of these.
  std::size_t frame_bytes() const {
    return 8 + std::max({frame_previous, frame_code, frame_position, frame_owner, frame_entry});
  }
};

// From owner 3 on a frame is no call of Python code: it marks where a call of the loop began (3.12 and later).
inline constexpr std::uint8_t kOwnedByLoop = 3;

// By the table; null: the version is not in it.
const PythonLayout* LayoutOf(std::uint32_t version);

// From the head of _PyRuntime, where 3.13 and later describe themselves (_Py_DebugOffsets). False: it is none.
inline constexpr std::size_t kDebugOffsetsBytes = 640;
bool LayoutFrom(std::span<const std::uint8_t> head, PythonLayout& layout);

}  // namespace lockstep
