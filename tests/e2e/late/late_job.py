"""A job in which one rank takes longer in each step, in one function.

usage: late_job.py mpi|gloo CAUSE RANK SECONDS [gloo: DIRECTORY RANK SIZE]
CAUSE: none, or the name of a function below. RANK: which one is late; -1: none.
"""
import array
import gc
import os
import sys
import threading
import time
import zlib

LONGER_S = 0.03  # Beside 0.03 s that each rank works.
transport, cause, late_rank, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])


def sleep_a_while():
    time.sleep(LONGER_S)


lock, asked, held = threading.Lock(), threading.Event(), threading.Event()


def hold():
    while True:
        asked.wait()
        asked.clear()
        with lock:
            held.set()
            time.sleep(LONGER_S)


def take_lock():
    asked.set()
    held.wait()
    held.clear()
    with lock:
        pass


garbage = [[i] for i in range(400_000)]


def collect_garbage():
    gc.collect()


reader, writer = os.pipe()


def serve():
    while True:
        asked.wait()
        asked.clear()
        time.sleep(LONGER_S)
        os.write(writer, b"x")


def read_file():
    asked.set()
    os.read(reader, 1)


def tokenize(text):
    return [len(word) for word in text.split()]


def pad(text):
    return [word.ljust(8) for word in text.split()]


def shout(text):
    return [word.upper() for word in text.split()]


def collate():
    until = time.perf_counter() + LONGER_S
    while time.perf_counter() < until:
        tokenize("one two three four " * 50)
        pad("one two three four " * 50)
        shout("one two three four " * 50)


shard = os.urandom(1 << 20)


def compress_shard():
    zlib.compress(shard, 6)


def spin_in_python():
    until, turns = time.perf_counter() + LONGER_S, 0
    while time.perf_counter() < until:
        turns += 1
    return turns


def work():
    time.sleep(0.03)


def step(late):
    if late and cause != "none":
        globals()[cause]()
    work()


if __name__ == "__main__":
    gc.disable()
    if transport == "mpi":
        from mpi4py import MPI
        rank = MPI.COMM_WORLD.Get_rank()
        mine, sums = array.array("d", [1.0]), array.array("d", [0.0])

        def reduce():
            MPI.COMM_WORLD.Allreduce(mine, sums)

        def agree(go_on):
            return MPI.COMM_WORLD.bcast(go_on)
    else:
        import torch
        import torch.distributed as dist
        rank = int(os.environ["RANK"])
        dist.init_process_group("gloo")

        def reduce():
            dist.all_reduce(torch.ones(1000))

        def agree(go_on):
            flag = torch.tensor([float(go_on)])
            dist.broadcast(flag, 0)
            return bool(flag[0])
    if cause == "take_lock" and rank == late_rank:
        threading.Thread(target=hold, daemon=True).start()
    if cause == "read_file" and rank == late_rank:
        threading.Thread(target=serve, daemon=True).start()
    begin = time.monotonic()
    while agree(time.monotonic() - begin < seconds):
        for _ in range(10):
            step(rank == late_rank)
            reduce()
    os._exit(0) if transport == "gloo" else None
