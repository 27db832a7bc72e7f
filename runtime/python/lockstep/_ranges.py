"""Ranges: `with`, decorators, iterations."""

import contextvars
import functools
import inspect
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple, TypeVar, Union

from . import _runtime

NONE, INPUT, FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, CHECKPOINT = 0, 1, 2, 3, 4, 5, 6
_CATEGORIES = {
    "": NONE, "none": NONE, "input": INPUT, "forward": FORWARD, "backward": BACKWARD, "optimizer": OPTIMIZER,
    "communication": COMMUNICATION, "checkpoint": CHECKPOINT,
}
_SOURCE = 0  # lockstep.h

_probe = _runtime.probe
_Callable = TypeVar("_Callable", bound=Callable[..., Any])
_Item = TypeVar("_Item")

# The open ranges of this thread or task, the innermost first: (range, begin, the others). Tasks of one thread take turns,
# so what is open belongs to the task.
_open: "contextvars.ContextVar[Optional[Tuple[Any, int, Any]]]" = contextvars.ContextVar("lockstep_open", default=None)


def _without(entries: Any, entry: Any) -> Any:
    """The list less one of its entries."""
    if entries is entry:
        return entry[2]
    return entries[0], entries[1], _without(entries[2], entry)


class range:  # noqa: A001  Read as lockstep.range.
    """A range, as context manager or decorator: `with lockstep.range("load", "input"): ...`

    `category` says what it is for: one of the constants or their names in lower case. Time in
    "input" counts as waiting for data, not as compute. One object may be entered many times,
    by several threads or tasks and while it is open.

    As a decorator a range is what the caller waits for: the call of a function, the await of an
    async function, the making of each item of a generator or async generator (what the caller
    does with the item is not in it).
    """

    __slots__ = ("_name", "_bytes", "_category")

    def __init__(self, name: str, category: Union[int, str, None] = None) -> None:
        if isinstance(category, str):
            try:
                category = _CATEGORIES[category]
            except KeyError:
                raise ValueError("unknown category %r: one of %s" % (category, ", ".join(filter(None, _CATEGORIES))))
        self._name = name
        self._bytes: Optional[bytes] = None  # Made when it is needed: torch.compile can look through what is done here.
        self._category = int(category or 0)

    def __enter__(self) -> "range":
        if _probe is not None and not _runtime.state.compiling():
            if self._bytes is None:
                self._bytes = str(self._name).encode("utf-8", "replace").replace(b"\0", b" ")
            _open.set((self, _probe.range_begin(self._bytes, _SOURCE), _open.get()))
        return self

    def __exit__(self, *exc: Any) -> None:
        if _probe is None or _runtime.state.compiling():
            return
        entries = entry = _open.get()
        while entry is not None and entry[0] is not self:
            entry = entry[2]
        if entry is None:  # Entered in another task: who knows where it began.
            return
        _open.set(_without(entries, entry))
        _probe.range_end(self._bytes, _SOURCE, self._category, entry[1], 0, 1)

    def __call__(self, function: _Callable) -> _Callable:
        if _probe is None:
            return function
        if inspect.isasyncgenfunction(function):
            return self._around_async_generator(function)  # type: ignore[no-any-return]
        if inspect.isgeneratorfunction(function):
            return self._around_generator(function)  # type: ignore[no-any-return]
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if _runtime.state.compiling():  # The compiler enters no object that was made outside of what it compiles.
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return called  # type: ignore[return-value]

    def _around_generator(self, function: Any) -> Any:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            value, error = None, None
            try:
                while True:
                    with self:
                        try:
                            item = generator.send(value) if error is None else generator.throw(error)
                        except StopIteration as end:
                            return end.value
                    value, error = None, None
                    try:
                        value = yield item
                    except GeneratorExit:
                        raise
                    except BaseException as thrown:
                        error = thrown
            finally:
                generator.close()

        return inside

    def _around_async_generator(self, function: Any) -> Any:
        @functools.wraps(function)
        async def inside(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            value, error = None, None
            try:
                while True:
                    with self:
                        try:
                            item = await (generator.asend(value) if error is None else generator.athrow(error))
                        except StopAsyncIteration:
                            return
                    value, error = None, None
                    try:
                        value = yield item
                    except GeneratorExit:
                        raise
                    except BaseException as thrown:
                        error = thrown
            finally:
                await generator.aclose()

        return inside


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
