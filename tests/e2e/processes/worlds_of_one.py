"""A worker of torchrun's whose program uses MPI: rank 0 of a world of one, whatever torchrun says."""
import array
import os
import time

from mpi4py import MPI

assert MPI.COMM_WORLD.Get_size() == 1
numbers, sums = array.array("d", [1.0] * 1000), array.array("d", [0.0] * 1000)
for _ in range(30):
    time.sleep(0.002 * (1 + int(os.environ["RANK"])))
    MPI.COMM_WORLD.Allreduce(numbers, sums)
