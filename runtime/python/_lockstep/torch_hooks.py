"""Puts the hooks into PyTorch, right after its own code ran.

Every part stands alone: what a version of PyTorch does not have, or has changed, is left
unwrapped and reported (loss TorchHook); the rest works.
"""

import os
import sys

from . import finder, probe, state

_PARTS = ("training", "labels", "ddp", "collectives")


def install(torch):
    if not probe.active:
        return
    probe.hook_state(1)
    state.start(torch)
    operators = os.environ.get("LOCKSTEP_HOOKS_OPERATORS") == "1"
    for part in _PARTS + (("operators",) if operators else ()):
        try:
            module = __import__("_lockstep." + part, fromlist=["wrap"])
            module.wrap(torch)
        except Exception as error:
            state.missed(part, error)
    probe.hook_state(2)
    os.register_at_fork(after_in_child=state.after_fork)
    finder.forget("torch")
    if not os.path.isdir(os.path.join(os.path.dirname(torch.__file__), "_dynamo")):
        finder.forget("torch._dynamo")  # A torch without a compiler.
    elif "torch._dynamo" in sys.modules:
        leave_frames_alone(sys.modules["torch._dynamo"])


def leave_frames_alone(_dynamo):
    """Our wrappers are not to be compiled; what they call is. Traced through, they vanish (state.compiling)."""
    from torch._C._dynamo.eval_frame import skip_code  # Since 2.0.

    for function in state.wrappers:
        skip_code(function.__code__)
    state.skip_code = skip_code
