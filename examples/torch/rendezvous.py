"""How the examples' ranks find each other under mpirun, srun or torchrun."""

import os
import socket


def rank_and_size():
    """(rank, size, local rank). MASTER_ADDR and MASTER_PORT are set for torch.distributed."""
    if "RANK" in os.environ and "MASTER_ADDR" in os.environ:  # torchrun
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_RANK", 0))
    try:
        from mpi4py import MPI
    except ImportError:
        rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("SLURM_PROCID", 0)))
        size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("SLURM_NTASKS", 1)))
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29513")
        return rank, size, int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", os.environ.get("SLURM_LOCALID", rank)))
    world = MPI.COMM_WORLD
    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    if world.rank == 0:
        with socket.socket() as probe:  # A port that is free now.
            probe.bind(("", 0))
            address = socket.gethostname() if local.size < world.size else "127.0.0.1", str(probe.getsockname()[1])
    else:
        address = None
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = world.bcast(address)
    return world.rank, world.size, local.rank
