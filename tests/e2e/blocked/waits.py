"""Waits of a thread of Python, each on a line of its own. The other side first sees it asleep."""
import os
import queue
import sys
import threading
import time

try:
    import lockstep
    step, mark = lockstep.step, lockstep.mark
except ImportError:  # Without Lockstep.
    step = mark = lambda *_: None

MAIN = threading.main_thread().native_id


def asleep():
    """Whether the first thread sleeps; Python's lock is held meanwhile, so it does not sleep for that."""
    with open(f"/proc/self/task/{MAIN}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


def after_sleep(end):
    def run():
        mark("ends a wait")
        while not asleep():
            time.sleep(0.001)
        time.sleep(0.02)
        end()
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def main():
    step()
    time.sleep(0.02)  # SLEEP
    lock = threading.Lock()
    lock.acquire()
    after_sleep(lock.release)
    lock.acquire()  # LOCK
    items = queue.Queue()
    after_sleep(lambda: items.put(1))
    items.get()  # QUEUE
    after_sleep(lambda: None).join()  # JOIN
    reading, writing = os.pipe()
    after_sleep(lambda: os.write(writing, b"x"))
    os.read(reading, 1)  # PIPE
    step()
    stop = threading.Event()
    turns = 0

    def compute():
        nonlocal turns
        while not stop.is_set():
            turns += 1
    worker = threading.Thread(target=compute)
    worker.start()
    for _ in range(5):
        time.sleep(0.001)  # It gives Python's lock up, and then the worker has it.
        sum(range(200000))
    stop.set()
    worker.join()
    step()
    print("done", turns > 0, len(sys.argv))


main()
