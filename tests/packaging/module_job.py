"""What module_test.py runs: module_job.py CASE"""

import asyncio
import sys
import threading
import time

import lockstep


@lockstep.range("plain")
def plain():
    time.sleep(0.01)


@lockstep.range("items", "input")
def items(n):
    got = []
    for i in range(n):
        time.sleep(0.01)
        got.append((yield i))
    return got


@lockstep.range("awaited")
async def awaited(seconds):
    await asyncio.sleep(seconds)
    return seconds


@lockstep.range("async items")
async def async_items(n):
    for i in range(n):
        await asyncio.sleep(0.01)
        yield i


def decorators():
    import inspect

    assert inspect.isgeneratorfunction(items) and inspect.iscoroutinefunction(awaited)
    assert inspect.isasyncgenfunction(async_items) and plain.__name__ == "plain"
    plain()
    # The consumer's time is not the generator's; what is sent, returned and thrown arrives.
    generator = items(2)
    assert next(generator) == 0
    with lockstep.range("consumer"):
        time.sleep(0.01)
    assert generator.send("a") == 1
    try:
        generator.send("b")
    except StopIteration as end:
        assert end.value == ["a", "b"], end.value
    generator = items(3)
    next(generator)
    try:
        generator.throw(KeyError("thrown"))
    except KeyError:
        pass
    else:
        raise AssertionError("the error did not arrive")

    async def both():
        # Tasks that take turns, through one range object: the long one begins first and ends last.
        assert await asyncio.gather(awaited(0.3), awaited(0.05)) == [0.3, 0.05]
        seen = []
        async for item in async_items(2):
            seen.append(item)
            await asyncio.sleep(0.05)
        assert seen == [0, 1]
        left = async_items(2)
        assert await left.__anext__() == 0
        await left.aclose()

    asyncio.run(both())
    shared = lockstep.range("shared")
    begun, ended = threading.Event(), threading.Event()

    def outer():
        with shared:
            begun.set()
            ended.wait()

    def inner():
        begun.wait()
        with shared:
            pass
        ended.set()

    threads = [threading.Thread(target=each) for each in (inner, outer)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with shared, shared:  # While it is open.
        pass


def windows(schedule):
    done = []
    with lockstep.profile(schedule=schedule, on_done=lambda p: done.append((p.step_num, lockstep.recording())),
                          activities=[lockstep.ProfilerActivity.CPU], record_shapes=True) as p:
        for i in range(10):
            with lockstep.record_function("work %d" % i):
                time.sleep(0.002)
            p.step()
    assert p.windows == len(done)
    print("done", done, flush=True)


def main(case):
    if case == "decorators":
        decorators()
    elif case == "windows":
        windows(lockstep.schedule(wait=2, warmup=1, active=2, repeat=2))
    elif case == "adjacent":
        windows(lockstep.schedule(wait=0, warmup=0, active=3, repeat=2, skip_first=1))
    elif case == "whole":
        windows(None)
    elif case == "steps":
        for i in range(3):
            lockstep.step()
            with lockstep.range("forward", "forward"):
                time.sleep(0.002)
            for _ in lockstep.ranges("ab", "load", lockstep.INPUT):
                pass
            lockstep.mark("a moment")
        lockstep.step_end()


main(sys.argv[1])
