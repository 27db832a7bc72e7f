"""A job in which nothing goes wrong, and in which ranks wait for long: for a compiler, a checkpoint, an evaluation, data.

usage: healthy_job.py mpi|gloo KIND SECONDS SEED DIRECTORY
"""
import os
import pathlib
import random
import sys
import time

import numpy

over, kind, seconds, seed, directory = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), pathlib.Path(sys.argv[5])


def compute(span):
    matrix = numpy.random.default_rng(seed).random((120, 120))
    end = time.monotonic() + span
    while time.monotonic() < end:
        numpy.linalg.norm(matrix @ matrix)


class Mpi:
    def __init__(self):
        from mpi4py import MPI
        self.world = MPI.COMM_WORLD
        self.rank, self.size = self.world.Get_rank(), self.world.Get_size()
        self.data, self.sum = numpy.ones(20_000), numpy.empty(20_000)

    def step(self):
        self.world.Allreduce(self.data, self.sum)

    def barrier(self):
        self.world.Barrier()

    def from_first(self, value):
        return self.world.bcast(value, root=0)


class Gloo:
    def __init__(self):
        import torch
        import torch.distributed as dist
        torch.set_num_threads(1)
        self.torch, self.dist = torch, dist
        dist.init_process_group("gloo")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def step(self):
        self.optimizer.zero_grad()
        self.model(self.torch.ones(8, 64)).sum().backward()
        self.optimizer.step()

    def barrier(self):
        self.dist.barrier()

    def from_first(self, value):
        return self.dist.broadcast(self.torch.tensor([float(value or 0)]), 0)


job = {"mpi": Mpi, "gloo": Gloo}[over]()
mine = random.Random(f"{seed} {job.rank}")
own = random.Random(seed)
chosen = own.randrange(job.size)


def checkpoint():
    """Writes, and waits for its disk for most of the time."""
    end = time.monotonic() + seconds
    with open(directory / f"checkpoint.{job.rank}", "wb") as file:
        while time.monotonic() < end:
            file.write(bytes(1 << 16))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.2)


def steps(count):
    for _ in range(count):
        compute(mine.uniform(0.002, 0.02))
        job.step()


if kind == "compile":
    compute(seconds * mine.uniform(0.3, 1))
if kind == "compile_on_one" and job.rank == chosen:
    compute(seconds)
if kind == "idle_start":
    job.from_first(time.sleep(seconds) if job.rank == 0 else None)
steps(30)
for _ in range(2):
    if kind == "checkpoint" and job.rank == chosen:
        checkpoint()
    if kind == "evaluation" and job.rank == 0:
        compute(seconds)
    if kind == "uneven":
        compute(seconds * mine.choice((0.02, 0.1, 0.4, 1)))
    if kind in ("checkpoint", "evaluation"):
        job.barrier()
    steps(20)
if kind == "last_words" and job.rank == 0:
    checkpoint()
if over == "gloo":
    time.sleep(0.3)  # Gloo's threads let go of their last work, for which they need the interpreter (tests/torch_abort.py).
