"""Lockstep in a Python program: steps, ranges, capture windows; and the tables of a run.

    import lockstep

    for batch in lockstep.ranges(loader, "load", lockstep.INPUT):
        lockstep.step()                              # a step begins here, the previous one ends
        with lockstep.range("forward", "forward"):
            loss = model(batch)
        ...
    lockstep.step_end()

or, shaped like torch.profiler:

    with lockstep.profile(schedule=lockstep.schedule(wait=1, warmup=1, active=3, repeat=2)) as p:
        for batch in loader:
            train(batch)
            p.step()

and after the run:

    run = lockstep.load("lockstep.out/latest")
    run["steps"], run.rank(0)["ranges"]              # pandas frames

The calls reach Lockstep where the program was started by `lockstep run`; anywhere else each of
them does nothing, and importing the module imports nothing else. PyTorch programs need none of
this: Lockstep marks their steps and phases itself; once step() was called, only explicit steps
count. Any thread may make any call. No call raises because of recording; what cannot be recorded
is dropped and counted.

`range` is not in __all__: `from lockstep import *` leaves Python's own alone.
"""

import typing as _typing
from typing import Any as _Any

from . import _runtime
from ._profile import (ProfilerAction, ProfilerActivity, profile, schedule, supported_activities,
                       tensorboard_trace_handler)
from ._ranges import BACKWARD, CHECKPOINT, COMMUNICATION, FORWARD, INPUT, NONE, OPTIMIZER, ranges
from ._ranges import range as range  # Not in __all__: for type checkers, it is public only by its second name.

__all__ = [
    "NONE", "INPUT", "FORWARD", "BACKWARD", "OPTIMIZER", "COMMUNICATION", "CHECKPOINT",
    "step", "step_index", "step_end", "ranges", "mark", "start", "stop", "recording",
    "profile", "schedule", "ProfilerAction", "ProfilerActivity", "supported_activities", "tensorboard_trace_handler",
    "record_function", "load",
]

_probe = _runtime.probe
record_function = range  # As torch.profiler names it.
__version__: str


def step() -> None:
    """The previous step ends and the next begins; the first call begins step 0.

    Call it once per step, at the same place, on every rank.
    """
    if _probe is not None and not _runtime.state.compiling():
        _probe.lockstep_step()


def step_index(index: int) -> None:
    """As step(), with the number of the step that begins: the same on all ranks, for a job that was resumed."""
    if _probe is not None and not _runtime.state.compiling():
        _probe.lockstep_step_index(int(index))


def step_end() -> None:
    """Ends the last step; no new one begins. Without it the last step is incomplete."""
    if _probe is not None and not _runtime.state.compiling():
        _probe.lockstep_step_end()


def mark(name: str) -> None:
    """A moment with a name."""
    if _probe is not None and not _runtime.state.compiling():
        _probe.lockstep_mark(str(name).encode("utf-8", "replace"))


def start() -> None:
    """Recording goes on, for this process and those that it started. At a step boundary, on all ranks."""
    if _probe is not None and not _runtime.state.compiling():
        _probe.lockstep_start()


def stop() -> None:
    """Recording goes off; steps and communicators are still counted."""
    if _probe is not None and not _runtime.state.compiling():
        _probe.lockstep_stop()


def recording() -> bool:
    """Whether calls are being recorded now: for skipping the making of expensive names."""
    return bool(_probe is not None and not _runtime.state.compiling() and _probe.lockstep_recording())


def load(run: _Any) -> "Run":
    """The tables of a run as pandas frames; `run` is its directory. See Run. Needs pandas and h5py."""
    from ._frames import Run

    return Run(run)


if _typing.TYPE_CHECKING:  # Which would take any name for known otherwise.
    from ._frames import Run as Run
else:

    def __getattr__(name: str) -> _Any:
        if name == "__version__":  # Asked for rarely, and reading it takes longer than everything else here.
            from ._program import version

            return version()
        if name == "Run":
            from ._frames import Run

            return Run
        raise AttributeError("module 'lockstep' has no attribute %r" % name)
