"""mpi4py's two ways: buffers (upper case) and pickles (lower case), with probes."""

import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
out = []

values = np.arange(1000, dtype="d") + rank
total = np.empty_like(values)
for _ in range(20):
    world.Allreduce(values, total)
out.append(float(total.sum()))
parts = np.empty(size * 4, dtype="i")
world.Allgather(np.full(4, rank, dtype="i"), parts)
out.append(parts.tolist())
request = world.Iallreduce(values, total)
request.Wait()
right, left = (rank + 1) % size, (rank - 1) % size
got = np.empty(10, dtype="d")
for i in range(10):
    request = world.Isend(values[:10], dest=right, tag=i)
    world.Recv(got, source=left, tag=i)
    request.Wait()
out.append(got.tolist())

# Pickles: sizes differ between ranks, receives are probed for.
for i in range(10):
    request = world.isend({"from": rank, "text": "x" * (100 * rank + i)}, dest=right, tag=100 + i)
    message = world.recv(source=left, tag=100 + i)
    request.wait()
    out.append((message["from"], len(message["text"])))
out.append(world.allreduce(rank + 1))
out.append(world.bcast({"a": [1, 2, 3]} if rank == 0 else None))
out.append(world.gather("r%d" % rank))
out.append(world.scatter(list(range(size)) if rank == 0 else None))
out.append(world.allgather(rank * rank))
out.append(world.alltoall([rank * 10 + i for i in range(size)]))
status = MPI.Status()
world.send("any", dest=right, tag=7)
while not world.iprobe(source=MPI.ANY_SOURCE, tag=7, status=status):
    pass
out.append((world.recv(source=MPI.ANY_SOURCE, tag=7), status.source == left))
half = world.Split(rank % 2)
out.append(half.allreduce(1))
half.Free()
world.barrier()
for line in world.gather(repr(out)) or []:
    print(line)
sys.stdout.flush()
