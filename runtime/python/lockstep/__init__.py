"""Tell Lockstep about steps and ranges from Python.

    import lockstep

    for batch in lockstep.ranges(loader, "load", lockstep.INPUT):
        lockstep.step()                              # a step begins here, the previous one ends
        with lockstep.range("forward", "forward"):
            loss = model(batch)
        ...
    lockstep.step_end()

Under `lockstep run` the module is there without being installed; elsewhere put its
directory (PREFIX/lib/lockstep/python) on PYTHONPATH. Outside `lockstep run` every call does
nothing. PyTorch programs need none of this: Lockstep marks their steps and phases itself;
once step() was called, only explicit steps count.

Any thread may make any call. No call raises because of recording; what cannot be recorded is
dropped and counted.
"""

import functools as _functools
from typing import Any, Callable, Iterable, Iterator, Optional, TypeVar, Union

from _lockstep import probe as _probe

__all__ = [
    "NONE", "INPUT", "FORWARD", "BACKWARD", "OPTIMIZER", "COMMUNICATION", "CHECKPOINT",
    "step", "step_index", "step_end", "range", "ranges", "mark", "start", "stop", "recording",
]

NONE, INPUT, FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, CHECKPOINT = 0, 1, 2, 3, 4, 5, 6
_CATEGORIES = {
    "": NONE, "none": NONE, "input": INPUT, "forward": FORWARD, "backward": BACKWARD, "optimizer": OPTIMIZER,
    "communication": COMMUNICATION, "checkpoint": CHECKPOINT,
}
_SOURCE = 0  # lockstep.h

_Callable = TypeVar("_Callable", bound=Callable[..., Any])
_Item = TypeVar("_Item")


def step() -> None:
    """The previous step ends and the next begins; the first call begins step 0.

    Call it once per step, at the same place, on every rank.
    """
    if _probe.active:
        _probe.lockstep_step()


def step_index(index: int) -> None:
    """As step(), with the number of the step that begins: the same on all ranks, for a job that was resumed."""
    if _probe.active:
        _probe.lockstep_step_index(int(index))


def step_end() -> None:
    """Ends the last step; no new one begins. Without it the last step is incomplete."""
    if _probe.active:
        _probe.lockstep_step_end()


class range:  # noqa: A001  Read as lockstep.range.
    """A range, as context manager or decorator: `with lockstep.range("load", "input"): ...`

    `category` says what it is for: one of the constants or their names in lower case. Time in
    "input" counts as waiting for data, not as compute. One object may be entered many times,
    by several threads and while it is open.
    """

    __slots__ = ("_name", "_category", "_open")

    def __init__(self, name: str, category: Union[int, str, None] = None) -> None:
        if isinstance(category, str):
            try:
                category = _CATEGORIES[category]
            except KeyError:
                raise ValueError("unknown category %r: one of %s" % (category, ", ".join(filter(None, _CATEGORIES))))
        self._name = str(name).encode("utf-8", "replace").replace(b"\0", b" ")
        self._category = int(category or 0)
        self._open = []

    def __enter__(self) -> "range":
        self._open.append(_probe.range_begin(self._name, _SOURCE) if _probe.active else 0)
        return self

    def __exit__(self, *exc: Any) -> None:
        begin = self._open.pop()
        if _probe.active:
            _probe.range_end(self._name, _SOURCE, self._category, begin, 0, 1)

    def __call__(self, function: _Callable) -> _Callable:
        @_functools.wraps(function)
        def inside(*args, **kwargs):
            with range(self._name.decode("utf-8", "replace"), self._category):
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]


def ranges(items: Iterable[_Item], name: str, category: Union[int, str, None] = None) -> Iterator[_Item]:
    """The items, each fetch of one in a range: `for batch in lockstep.ranges(batches, "load", "input")`."""
    around = range(name, category)
    iterator = iter(items)
    while True:
        with around:
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def mark(name: str) -> None:
    """A moment with a name."""
    if _probe.active:
        _probe.lockstep_mark(str(name).encode("utf-8", "replace"))


def start() -> None:
    """Recording goes on, for all processes of this rank. At a step boundary, on all ranks."""
    if _probe.active:
        _probe.lockstep_start()


def stop() -> None:
    """Recording goes off; steps and communicators are still counted."""
    if _probe.active:
        _probe.lockstep_stop()


def recording() -> bool:
    """Whether calls are being recorded now: for skipping the making of expensive names."""
    return bool(_probe.active and _probe.lockstep_recording())


del Any, Callable, Iterable, Iterator, Optional, TypeVar, Union
