"""Calls collectives from known lines: calls_job.py mpi|gloo."""
import array
import os
import sys


def each_step(reduce):
    reduce()  # mark: step


def main():
    if sys.argv[1] == "mpi":
        from mpi4py import MPI
        mine, sums = array.array("d", [1.0]), array.array("d", [0.0])

        def reduce():
            MPI.COMM_WORLD.Allreduce(mine, sums)  # mark: mpi
    else:
        import torch
        import torch.distributed as dist
        dist.init_process_group("gloo")

        def reduce():
            dist.all_reduce(torch.ones(10))  # mark: gloo
    for _ in range(10):
        each_step(reduce)
    # Another function at the place of one that is gone.
    for number in range(3):
        names = {"reduce": reduce}
        exec(compile("\n" * number + "def made():\n    reduce()\nmade()", "made.py", "exec"), names)
    if sys.argv[1] == "gloo":
        dist.barrier()  # mark: barrier
        sys.stdout.flush()
        os._exit(0)


main()
