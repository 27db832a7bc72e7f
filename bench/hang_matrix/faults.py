"""What the Python jobs of this matrix have in common: whose turn it is to go wrong, and ways to stand still."""
import ctypes
import os
import pathlib
import queue
import re
import sys
import threading
import time

WRONG = 8  # The step in which it begins.


class Faults:
    """What FAULT RANK DIRECTORY of the command line mean for this rank."""

    def __init__(self, rank):
        self.fault, self.directory = sys.argv[1], pathlib.Path(sys.argv[3])
        self.rank, self.chosen, self.step = rank, rank == int(sys.argv[2]), -1

    def begin(self, step):
        self.step = step
        if step == WRONG - 2:  # For signals from outside.
            part = self.directory / f"pid.{self.rank}.part"
            part.write_text(f"{os.getpid()} {os.getppid()}\n")
            part.rename(self.directory / f"pid.{self.rank}")

    def all(self, fault):
        return self.step == WRONG and self.fault == fault

    def mine(self, fault):
        return self.chosen and self.all(fault)

    def stand_still(self):
        """Now is what the answer's delay counts from."""
        if self.chosen and self.step == WRONG:
            (self.directory / "stop").write_text(f"{time.time()}\n")
        for name in ("lock", "queue", "gil_sleep", "gil_compute", "loop", "fifo", "caught"):
            if self.mine(name):
                getattr(self, "in_" + name)()

    def in_lock(self):
        """A thread died with it."""
        lock = threading.Lock()
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        thread.join()
        with lock:
            pass

    def in_queue(self):
        """Whose reader has ended without a word."""
        batches = queue.Queue()
        threading.Thread(target=lambda: None).start()
        batches.get()

    def in_gil_sleep(self):
        """A thread waits in a function of C with the interpreter's lock."""
        threading.Thread(target=ctypes.PyDLL(None).pause, daemon=True).start()
        while True:
            time.sleep(0.001)

    def in_gil_compute(self):
        re.match("(a+)+$", "a" * 60 + "b")

    def in_loop(self):
        residual = 1.0
        while residual > 0:
            residual = residual * 0.5 + 1e-9

    def in_fifo(self):
        with open(self.directory / "pipe") as shard:
            shard.read()

    def in_caught(self):
        """Its exception was caught, and it does something else."""
        try:
            raise RuntimeError("a batch that is no batch")
        except RuntimeError:
            while True:
                time.sleep(1)
