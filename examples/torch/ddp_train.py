#!/usr/bin/env python3
"""Data-parallel training with PyTorch's DDP.

    mpirun -np 2 lockstep run -- python3 examples/torch/ddp_train.py

Without a GPU, DDP's gradient buckets are reduced over MPI by a communication hook; --plain-gloo leaves them to gloo.
With GPUs: NCCL (--backend). The script knows nothing of Lockstep and runs the same without it. --slow-rank and
--slow-input are faults for Lockstep to find.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from rendezvous import rank_and_size


class SyntheticBatches(Dataset):
    """Each item is a whole batch, the same for a seed, rank and index."""

    def __init__(self, batches, batch, width, seed, pause_ms):
        self.batches, self.batch, self.width, self.seed, self.pause_ms = batches, batch, width, seed, pause_ms

    def __len__(self):
        return self.batches

    def __getitem__(self, index):
        if self.pause_ms:
            time.sleep(self.pause_ms / 1000)
        random = torch.Generator().manual_seed(self.seed + index)
        x = torch.randn(self.batch, self.width, generator=random)
        return x, x.roll(1, dims=1)


def make_model(width, layers):
    parts = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.GELU()]
    return torch.nn.Sequential(*parts, torch.nn.Linear(width, width))


def reduce_over_mpi(comm, bucket):
    """DDP communication hook: the mean of a bucket over all ranks."""
    from mpi4py import MPI

    gradients = bucket.buffer()
    comm.Allreduce(MPI.IN_PLACE, gradients.numpy())
    gradients.div_(comm.size)
    done = torch.futures.Future()
    done.set_result(gradients)
    return done


def rank_value(text):
    rank, value = text.split(":")
    return int(rank), float(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--bucket-cap-mb", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="DataLoader worker processes per rank")
    parser.add_argument("--slow-rank", type=rank_value, metavar="RANK:FACTOR", default=(-1, 1.0))
    parser.add_argument("--slow-input", type=rank_value, metavar="RANK:MS", default=(-1, 0.0))
    parser.add_argument("--backend", choices=["auto", "nccl", "gloo"], default="auto",
                        help="auto: NCCL where PyTorch sees a GPU, else gloo")
    parser.add_argument("--plain-gloo", action="store_true", help="without a GPU: let gloo reduce the gradients")
    parser.add_argument("--save", metavar="FILE", help="rank 0 writes the final parameters there")
    options = parser.parse_args()

    rank, size, local_rank = rank_and_size()
    gpu = options.backend == "nccl" or (options.backend == "auto" and torch.cuda.is_available() and
                                        dist.is_nccl_available())
    # Ranks beyond the number of GPUs share them: NCCL must know (docs/gpu.md).
    device = torch.device("cuda", local_rank % torch.cuda.device_count()) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if gpu else "gloo", rank=rank, world_size=size)

    torch.manual_seed(options.seed)
    model = DistributedDataParallel(make_model(options.width, options.layers).to(device),
                                    bucket_cap_mb=options.bucket_cap_mb)
    if not gpu and not options.plain_gloo:
        from mpi4py import MPI

        # Where torchrun starts the ranks, each is an MPI world of its own: gloo reduces the gradients then.
        if MPI.COMM_WORLD.Get_size() == size:
            model.register_comm_hook(MPI.COMM_WORLD, reduce_over_mpi)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    pause_ms = options.slow_input[1] if rank == options.slow_input[0] else 0
    data = SyntheticBatches(options.steps, options.batch, options.width, options.seed + 1_000_000 * (rank + 1), pause_ms)
    slower = options.slow_rank[1] if rank == options.slow_rank[0] else 1.0

    begin = time.perf_counter()
    for step, (x, target) in enumerate(DataLoader(data, batch_size=None, num_workers=options.workers)):
        optimizer.zero_grad()
        started = time.perf_counter()
        loss = torch.nn.functional.mse_loss(model(x.to(device)), target.to(device))
        until = started + slower * (time.perf_counter() - started)
        while slower > 1 and time.perf_counter() < until:
            pass  # The same work, done slower.
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"{options.steps} steps in {time.perf_counter() - begin:.2f} s")
        if options.save:
            torch.save({name: p.detach().cpu() for name, p in model.module.named_parameters()}, options.save)
    if not gpu:
        # Gloo's threads let go of their last work, for which they need the interpreter: a program that ends meanwhile is
        # aborted now and then (PyTorch 2.15, pytorch/pytorch issue 190489).
        time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
