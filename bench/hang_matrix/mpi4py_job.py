"""A training loop with mpi4py, of which one rank does one thing wrong (run has the table).

usage: mpi4py_job.py FAULT RANK DIRECTORY
"""
import time

import numpy
from mpi4py import MPI

from faults import Faults

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
faults = Faults(rank)
gradient, total = numpy.ones(50_000), numpy.empty(50_000)
weights = numpy.ones(300_000)
random = numpy.random.default_rng(rank)
for step in range(100_000):
    faults.begin(step)
    learning_rate = world.bcast(0.1 / (step + 1) if rank == 0 else None, root=0)
    numpy.linalg.norm(random.random((200, 200)))
    time.sleep(0.01)  # As if on a GPU.
    faults.stand_still()
    if faults.mine("leaves"):
        break
    if faults.mine("swaps"):
        losses = world.allgather(float(rank))
        world.Allreduce(gradient, total)
    else:
        if not faults.mine("skips"):
            world.Allreduce(gradient, total)
        if faults.mine("extra"):
            world.Barrier()
        losses = world.allgather(float(rank))
    gradient = total / size * learning_rate
    if step % 4 == 0:
        # Large: whoever sends waits for its receiver.
        if faults.all("circle"):
            world.send(weights, dest=(rank + 1) % size, tag=7)
            world.recv(source=(rank - 1) % size, tag=7)
        pieces = world.gather(weights, root=rank if faults.mine("root") else 0)
        world.Barrier()
