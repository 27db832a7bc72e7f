"""What stops a program now and then and has no range of its own: full garbage collections, torch.save, and what
torch.compile compiles: at first, and for each new shape."""

import functools
import gc

from . import probe, state
from .state import CHECKPOINT, TORCH

_FULL = 2  # The oldest generation: the younger ones are collected often, and in no time.
_COLLECTION = b"Python garbage collection"
_begun = None  # A collection never runs inside another.
_COMPILATION = b"torch.compile"
_compiling_since = None  # What is compiled inside of a compilation belongs to it (CompilationCallbackHandler).


def wrap(torch):
    gc.callbacks.append(_collection)
    _save(torch)


def _collection(phase, info):
    """Called by the garbage collector, at any point of the program: only records the range, and only in training."""
    global _begun
    if info.get("generation") != _FULL:
        return
    if phase == "start":
        _begun = probe.range_begin(_COLLECTION, TORCH) if state.on and state.training() else None
    elif _begun is not None:
        begin, _begun = _begun, None
        probe.range_end(_COLLECTION, TORCH, 0, begin, 0, 1)


def watch_compiler():
    """PyTorch 2.4 and later; without their arguments, as of 2.7."""
    try:
        from torch._dynamo.callback import callback_handler
    except ImportError:
        return
    clear = callback_handler.clear

    def register():
        callback_handler.register_start_callback(_compilation_begins)
        callback_handler.register_end_callback(_compilation_ends)

    @functools.wraps(clear)
    def cleared():  # By torch._dynamo.reset().
        clear()
        register()

    callback_handler.clear = cleared
    register()


def _compilation_begins(*_):
    global _compiling_since
    _compiling_since = probe.range_begin(_COMPILATION, TORCH) if state.on and state.training() else None


def _compilation_ends(*_):
    global _compiling_since
    if _compiling_since is not None:
        begin, _compiling_since = _compiling_since, None
        probe.range_end(_COMPILATION, TORCH, 0, begin, 0, 1)


def _save(torch):
    save = torch.save

    @state.stands_for(save)
    def recorded(*args, **kwargs):
        if state.compiling() or not (state.on and state.training()):
            return save(*args, **kwargs)
        begin = probe.range_begin(b"torch.save", TORCH)
        try:
            return save(*args, **kwargs)
        finally:
            probe.range_end(b"torch.save", TORCH, CHECKPOINT, begin, 0, 1)

    torch.save = recorded
