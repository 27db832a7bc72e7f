"""Puts the hooks into PyTorch, right after its own code ran.

Every part stands alone: what a version of PyTorch does not have, or has changed, is left
unwrapped and reported (loss TorchHook); the rest works.
"""

import os
import sys
import types

from . import finder, probe, state

_FUNCTIONAL = "torch.distributed._functional_collectives"
_PARTS = ("identity", "training", "labels", "ddp", "collectives", "pauses")


def install(torch):
    if not probe.active:
        return
    probe.hook_state(1)
    state.start(torch)
    operators = os.environ.get("LOCKSTEP_HOOKS_OPERATORS") in ("1", "2")  # core/env.h
    trial = "LOCKSTEP_TRIAL_TORCH" in os.environ  # The same; a run of `lockstep tune`.
    for part in _PARTS + (("operators",) if operators else ()) + (("trial",) if trial else ()):
        try:
            module = __import__("_lockstep." + part, fromlist=["wrap"])
            module.wrap(torch)
        except Exception as error:
            state.missed(part, error)
    probe.hook_state(2)
    os.register_at_fork(after_in_child=state.after_fork)
    finder.forget("torch")
    # Each that this torch has (1.13 has neither) is imported with it or later.
    for name, part, after in (("torch._dynamo", "_dynamo", leave_frames_alone),
                              (_FUNCTIONAL, "distributed/_functional_collectives.py", functional_collectives)):
        if not os.path.exists(os.path.join(os.path.dirname(torch.__file__), part)):
            finder.forget(name)
        elif name in sys.modules:
            after(sys.modules[name])


def functional_collectives(module):
    """What torch imports before install() has run is left to it."""
    if not state.started:
        return
    try:
        from . import collectives

        collectives.wrap_functional(module)
    except Exception as error:
        state.missed("waiting for functional collectives", error)


def leave_frames_alone(_dynamo):
    """What is ours is not to be compiled; what our wrappers call is. Traced through, they vanish (state.compiling)."""
    skip_code = getattr(_dynamo.eval_frame, "skip_code", None)  # Written in Python from 2.11 on, before that in C.
    if skip_code is None:
        from torch._C._dynamo.eval_frame import skip_code

    for name, module in list(sys.modules.items()):
        if name == "lockstep" or name.startswith(("lockstep.", "_lockstep.")):
            for code in _codes_of(vars(module).values(), name):
                skip_code(code)
    state.leave_alone(skip_code, _dynamo.disable)
    from . import pauses

    pauses.watch_compiler()


def _codes_of(values, module):
    """Of all functions of a module, those made inside of others too: a function's code is a constant of its maker's."""
    for value in values:
        if isinstance(value, type) and value.__module__ == module:
            yield from _codes_of(vars(value).values(), module)
        elif isinstance(value, types.FunctionType):
            yield from _codes_of([value.__code__], module)
        elif isinstance(value, types.CodeType):
            yield value
            yield from _codes_of(value.co_consts, module)
