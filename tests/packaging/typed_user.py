"""A program as users write it, for a type checker (typing_test.py), never run. What is wrong in it is marked, with the
checker's word for it: a mark without its error is an error, too."""

import asyncio
from typing import Any, AsyncIterator, Awaitable, Callable, Generator, Iterator, List

import lockstep
from lockstep.callbacks import LightningCallback, TrainerCallback


@lockstep.range("load", "input")
def load(path: str, *, rows: int = 1) -> List[int]:
    return [len(path)] * rows


@lockstep.range("fetch", lockstep.INPUT)
async def fetch(path: str) -> bytes:
    await asyncio.sleep(0)
    return path.encode()


@lockstep.range("items")
def items(n: int) -> Generator[int, str, bool]:
    told = yield n
    return told == ""


@lockstep.record_function("stream")
async def stream(n: int) -> AsyncIterator[float]:
    for i in range(n):
        yield i / 2


class Model:
    @lockstep.range("forward", "forward")
    def forward(self, batch: int) -> float:
        return batch / 2


# A decorator keeps the signature.
loaded: Callable[..., List[int]] = load
first: int = load("a", rows=2)[0]
fetched: Callable[[str], Awaitable[bytes]] = fetch
made: Generator[int, str, bool] = items(3)
streamed: AsyncIterator[float] = stream(2)
loss: float = Model().forward(3)
load(3)  # type: ignore[arg-type]
load("a", columns=2)  # type: ignore[call-arg]
text: str = load("a")[0]  # type: ignore[assignment]
wrong: Generator[str, str, bool] = items(3)  # type: ignore[assignment]
Model().forward("3")  # type: ignore[arg-type]


async def all_of(paths: List[str]) -> List[bytes]:
    halves = [each async for each in stream(2)]
    total: float = sum(halves)
    print(total)
    return [await fetch(path) for path in paths]


def told(p: lockstep.profile) -> None:
    print(p.step_num + 1, p.windows)


def train(batches: List[int]) -> None:
    schedule: Callable[[int], lockstep.ProfilerAction] = lockstep.schedule(wait=1, warmup=1, active=3, repeat=2)
    with lockstep.profile(schedule=schedule, on_done=told, activities=[lockstep.ProfilerActivity.CPU],
                          record_shapes=True) as p:
        for batch in lockstep.ranges(batches, "load", lockstep.INPUT):
            doubled: int = batch * 2
            with lockstep.range("forward", "forward") as entered:
                Model().forward(doubled)
            again: lockstep.range = entered
            with again:
                pass
            p.step()
    table: str = p.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total", row_limit=10)
    print(table)
    p.export_chrome_trace("trace.json")
    lockstep.profile(schedule=3)  # type: ignore[arg-type]
    lockstep.schedule(1, 1, 3)  # type: ignore[call-arg]
    lockstep.range(3)  # type: ignore[arg-type]
    iterator: Iterator[str] = lockstep.ranges(batches, "load")  # type: ignore[arg-type]
    print(iterator)


def by_hand() -> bool:
    lockstep.step()
    lockstep.step_index(3)
    lockstep.step_end()
    lockstep.mark("epoch 3")
    lockstep.mark(3)  # type: ignore[arg-type]
    lockstep.start()
    lockstep.stop()
    lockstep.no_such_call()  # type: ignore[attr-defined]
    return lockstep.recording()


def read(where: str) -> Any:
    run: lockstep.Run = lockstep.load(where)
    ranks: List[int] = run.ranks
    names: List[str] = run.tables
    version: str = lockstep.__version__
    print(ranks, names, version, run.rank(0)["ranges"], run.events("kernels"))
    return run["steps"]


callbacks: List[Any] = [TrainerCallback(schedule=lockstep.schedule(wait=10, warmup=0, active=20, repeat=1)), LightningCallback()]
