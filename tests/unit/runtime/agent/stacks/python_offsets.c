/* Prints the line of one version for runtime/agent/stacks/python_layout.cc, from that version's own headers:
   cc -I PREFIX/include/python3.N -I PREFIX/include/python3.N/internal python_offsets.c && ./a.out */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#if PY_VERSION_HEX >= 0x030b0000
#include "pycore_frame.h"
#include "pycore_interp.h"
#include "pycore_runtime.h"
#else
#include "frameobject.h"
#if PY_VERSION_HEX >= 0x03090000
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#else
#include "internal/pycore_pystate.h"
#endif
#endif

#define OFFSET(name, type, member) printf(", ." #name " = %zu", offsetof(type, member))

int main(void) {
  printf("{.version = 0x%04x", PY_VERSION_HEX >> 16);
#if PY_VERSION_HEX >= 0x030b0000
  printf(", .lines = LineTable::kLocations");
#elif PY_VERSION_HEX >= 0x030a0000
  printf(", .lines = LineTable::kRanges, .frame_objects = true");
#else
  printf(", .lines = LineTable::kIncrements, .frame_objects = true");
#endif
  OFFSET(interpreters_head, _PyRuntimeState, interpreters.head);
#if PY_VERSION_HEX >= 0x030b0000
  OFFSET(interpreter_next, PyInterpreterState, next);
  OFFSET(threads_head, PyInterpreterState, threads.head);
  OFFSET(thread_next, PyThreadState, next);
  OFFSET(thread_id, PyThreadState, native_thread_id);
  OFFSET(thread_frame, PyThreadState, cframe);
  printf(", .through_cframe = true");
  OFFSET(cframe_frame, _PyCFrame, current_frame);
  OFFSET(frame_previous, _PyInterpreterFrame, previous);
  OFFSET(frame_code, _PyInterpreterFrame, f_code);
  OFFSET(frame_position, _PyInterpreterFrame, prev_instr);
  OFFSET(frame_owner, _PyInterpreterFrame, owner);
#if PY_VERSION_HEX < 0x030c0000
  printf(", .has_entry = true");
  OFFSET(frame_entry, _PyInterpreterFrame, is_entry);
#endif
  OFFSET(code_filename, PyCodeObject, co_filename);
  OFFSET(code_name, PyCodeObject, co_qualname);
  OFFSET(code_lines, PyCodeObject, co_linetable);
  OFFSET(code_first_line, PyCodeObject, co_firstlineno);
  OFFSET(code_begin, PyCodeObject, co_code_adaptive);
#else
  OFFSET(interpreter_next, PyInterpreterState, next);
  OFFSET(threads_head, PyInterpreterState, tstate_head);
  OFFSET(thread_next, PyThreadState, next);
  OFFSET(thread_id, PyThreadState, thread_id);
  OFFSET(thread_frame, PyThreadState, frame);
  OFFSET(frame_previous, PyFrameObject, f_back);
  OFFSET(frame_code, PyFrameObject, f_code);
  OFFSET(frame_position, PyFrameObject, f_lasti);
  OFFSET(code_filename, PyCodeObject, co_filename);
  OFFSET(code_name, PyCodeObject, co_name);
#if PY_VERSION_HEX >= 0x030a0000
  OFFSET(code_lines, PyCodeObject, co_linetable);
#else
  OFFSET(code_lines, PyCodeObject, co_lnotab);
#endif
  OFFSET(code_first_line, PyCodeObject, co_firstlineno);
#endif
  OFFSET(text_state, PyASCIIObject, state);
  OFFSET(text_length, PyASCIIObject, length);
  printf(", .text_bytes = %zu, .text_wide = %zu", sizeof(PyASCIIObject), sizeof(PyCompactUnicodeObject));
  OFFSET(bytes_length, PyVarObject, ob_size);
  OFFSET(bytes_begin, PyBytesObject, ob_sval);
  printf("},\n");
  return 0;
}
