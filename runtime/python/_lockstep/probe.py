"""The probe (liblockstep.so, preloaded by `lockstep run`) as Python functions.

`active` says whether this process is recorded; if not, the functions do nothing.
"""

import ctypes
import sys

# PyDLL keeps the GIL: the functions take less time than giving it away and getting it back.
_library = ctypes.PyDLL(None)

active = False


def _nothing(*_args):
    return 0


def _make_builtins():
    """A function that gives a builtin of this name, which costs a fraction of a call through ctypes; None for others."""
    if sys.implementation.name != "cpython" or sys.version_info < (3, 7):
        return lambda _name: None
    find, make = _library.lockstep_hook_python_call, ctypes.pythonapi.PyCFunction_NewEx
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p,) * 3

    def builtin(name):
        method = find(name.encode())
        return make(method, None, None) if method else None

    return builtin


try:
    _builtin = _make_builtins()
except AttributeError:  # Not under Lockstep, or another Python's way of doing it.
    _builtin = lambda _name: None  # noqa: E731


def _function(name, result, *arguments):
    try:
        function = getattr(_library, name)
    except AttributeError:
        return _nothing
    builtin = _builtin(name)
    if builtin is not None:
        return builtin
    function.restype = result
    function.argtypes = arguments
    return function


_int, _text, _ticks, _wide = ctypes.c_int, ctypes.c_char_p, ctypes.c_ulonglong, ctypes.c_longlong
_number = ctypes.c_uint

hook_active = _function("lockstep_hook_active", _int)
window_kind = _function("lockstep_hook_window_kind", _int)  # WindowKind in core/window.h
hook_state = _function("lockstep_hook_state", None, _int)
hook_step = _function("lockstep_hook_step", None)
# (name, source) -> begin; (name, source, category, begin, payload, 1 if begun by range_begin, 0 if by now)
range_begin = _function("lockstep_hook_range_begin", _ticks, _text, _int)
range_end = _function("lockstep_hook_range_end", None, _text, _int, _int, _ticks, _wide, _int)
now = _function("lockstep_hook_now", _ticks)
ticks = _function("lockstep_hook_ticks", _ticks)  # Recorded or not.
# (rank, size, ticks when it asked, where the ranks meet)
joined = _function("lockstep_hook_joined", None, _int, _int, _ticks, _text)
# Where rank 0's agent is, as core/reference.h writes it: (own rank, buffer, its bytes) -> bytes, 0 nothing; (own rank, text)
own_reference = _function("lockstep_hook_own_reference", _int, _int, _text, _int)
reference = _function("lockstep_hook_reference", None, _int, _text)
fact_text = _function("lockstep_hook_fact", None, _text)
memory = _function("lockstep_hook_memory", None, _int, _int, _ticks, _ticks)
host_memory = _function("lockstep_hook_host_memory", None)

# Phases of training and labels: runtime/probe/phases.cc
training = _function("lockstep_hook_training", None, _int, _int, _int, _int)  # (on, opened, told, each boundary), -1: as it is
training_forked = _function("lockstep_hook_training_forked", None)
# (category, name) -> 1 if phase_end is to be called: begin only once training has begun, enter always
phase_begin = _function("lockstep_hook_phase_begin", _int, _int, _text)
phase_enter = _function("lockstep_hook_phase_enter", _int, _int, _text)
phase_end = _function("lockstep_hook_phase_end", None, _int)
phase_since = _function("lockstep_hook_phase_since", None)
first_optimizer = _function("lockstep_hook_first_optimizer", None, ctypes.py_object)
boundary = _function("lockstep_hook_boundary", _int, ctypes.py_object)  # (optimizer) -> 0 if state.boundary is to be called
# (label, its name) -> 1 if before_record is to be called, and then this again; (label). None: there are no such builtins.
label_begin, label_end = _builtin("label_begin"), _builtin("label_end")

torch_observe = _function("lockstep_hook_torch_observe", _int)
torch_seen = _function("lockstep_hook_torch_seen", _ticks)
torch_making = _function("lockstep_hook_torch_making", None)  # Before the calling thread makes a group.
# (name, world ranks, how many, own rank in the group) -> number, 0 none
torch_group = _function("lockstep_hook_torch_group", _number, _text, ctypes.POINTER(_int), _int, _int)
torch_group_gone = _function("lockstep_hook_torch_group_gone", None, _number)
# (number, world rank of partner or root, a message's tag, else -1) -> the number before
torch_enter = _function("lockstep_hook_torch_enter", _number, _number, _int, _int)
torch_waits = _function("lockstep_hook_torch_waits", None, _int)  # Whether what C++ waits for is recorded.
torch_shown = _function("lockstep_hook_torch_shown", None, _int)  # The thread opens (1) or closes (-1) a range that shows waits.
# A barrier that PyTorch makes of messages: (number of its group) -> work, 0 none; (work)
torch_barrier = _function("lockstep_hook_torch_barrier", _ticks, _number)
torch_barrier_end = _function("lockstep_hook_torch_barrier_end", None, _ticks)
# The thread's last receive from any source, 0 none; (it, number of the group, its source in the world or -1, in the group or -1)
torch_from_any = _function("lockstep_hook_torch_from_any", _ticks)
torch_source = _function("lockstep_hook_torch_source", None, _ticks, _number, _int, _int)

lockstep_step = _function("lockstep_step", None)
lockstep_step_index = _function("lockstep_step_index", None, _wide)
lockstep_step_end = _function("lockstep_step_end", None)
lockstep_mark = _function("lockstep_mark", None, _text)
lockstep_start = _function("lockstep_start", None)
lockstep_stop = _function("lockstep_stop", None)
lockstep_recording = _function("lockstep_recording", _int)

active = bool(hook_active())


def _plain(value):
    return str(value).replace("\t", " ").replace("\n", " ").replace("\0", " ")


def fact(name, /, **values):
    """Something about the run that no event says; see core/fact.h for the names with a meaning."""
    line = "\t".join([name] + ["%s=%s" % (key, _plain(value)) for key, value in values.items()])
    fact_text(line.encode("utf-8", "replace"))
