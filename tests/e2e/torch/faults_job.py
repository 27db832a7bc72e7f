"""A training job with one injected fault, and what it truly costs: faults_job.py MEETING [OPTIONS]

Work per step is a number of milliseconds of a core (with --elsewhere: in which the core is free, as while a GPU works), so
that a fault's size is known and does not depend on the model.
Rank 0 writes the losses, to the last digit, and each rank's injected time of each step, to the file of --truth.
"""
import argparse
import gc
import io
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../examples/torch"))
from ddp_train import reduce_over_mpi  # noqa: E402

RANK, SIZE = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
EVERY = 8  # Steps from one burst to the next.

parser = argparse.ArgumentParser()
parser.add_argument("meeting")
parser.add_argument("--kind", choices=["ddp", "fsdp2", "zero"], default="ddp")
parser.add_argument("--over", choices=["gloo", "mpi"], default="gloo", help="what reduces DDP's gradients")
parser.add_argument("--fault", default="none", help="one, or several with commas: none, loader, compute, item, "
                                                    "checkpoint, gc, batch_norm (buffers; the data of the rank are late)")
parser.add_argument("--rank", type=int, default=1, help="that is slow, late, or collects garbage")
parser.add_argument("--late-ms", type=float, default=15)
parser.add_argument("--burst-ms", type=float, default=80)
parser.add_argument("--work-ms", type=float, default=30)
parser.add_argument("--factor", type=float, default=1.3)
parser.add_argument("--steps", type=int, default=44, help="no multiple of 8: the last burst would be in no step")
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--bucket-cap-mb", type=float, default=0.5)
parser.add_argument("--unit", type=int, default=1, help="layers that fully_shard makes one unit of")
parser.add_argument("--elsewhere", action="store_true", help="work leaves the core to whoever wants it")
parser.add_argument("--truth")
options = parser.parse_args()
faults = set(options.fault.split(","))
mine = RANK == options.rank
injected_ms = []  # Of each step, on this rank.


def inject(seconds):
    injected_ms[-1] += seconds * 1e3


class Batches(Dataset):
    def __len__(self):
        return options.steps

    def __getitem__(self, index):
        injected_ms.append(0.0)
        if mine and faults & {"loader", "batch_norm"}:
            begin = time.perf_counter()
            time.sleep(options.late_ms / 1e3)
            inject(time.perf_counter() - begin)
        return torch.randn(32, options.width, generator=torch.Generator().manual_seed(1000 * RANK + index))


def work(ms, block=torch.ones(64, 64)):
    """So much time of a core, or of something else."""
    if options.elsewhere:
        time.sleep(ms / 1e3)
        return
    until = time.thread_time() + ms / 1e3
    while time.thread_time() < until:
        block.mm(block)


class Work(torch.autograd.Function):
    """Between two layers: a layer's share of the work, forward and backward."""

    @staticmethod
    def forward(context, x, ms):
        context.ms = ms
        work(ms)
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        work(2 * context.ms)
        return gradient, None


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(options.width, options.width)
        self.norm = torch.nn.BatchNorm1d(options.width) if "batch_norm" in faults else torch.nn.Identity()
        factor = options.factor if mine and "compute" in faults else 1
        self.ms = factor * options.work_ms / 3 / options.layers

    def forward(self, x):
        return torch.tanh(self.norm(self.linear(Work.apply(x, self.ms))))


class SlowDisk(io.BytesIO):
    """The first that is written to it takes a known time, however much it is."""

    def write(self, data):
        if self.tell() == 0:
            time.sleep(options.burst_ms / 1e3)
        return super().write(data)


def checkpoint(model):
    begin = time.perf_counter()
    torch.save({name: p.detach() for name, p in model.named_parameters() if type(p) is torch.nn.Parameter}, SlowDisk())
    inject(time.perf_counter() - begin)


heap = []  # So many objects that a full collection, which looks at each of them, takes so long.


def fill_heap():
    took_ms = 0
    while took_ms < options.burst_ms:
        heap.extend([i] for i in range(200_000))
        begin = time.perf_counter()
        gc.collect()
        took_ms = 1e3 * (time.perf_counter() - begin)


def collect_garbage():
    begin = time.perf_counter()
    gc.collect()
    inject(time.perf_counter() - begin)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method="file://" + options.meeting, rank=RANK, world_size=SIZE)
    module = torch.nn.Sequential(*(Block() for _ in range(options.layers)))
    if options.kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        mesh = dist.device_mesh.init_device_mesh("cpu", (SIZE,))
        for first in range(0, options.layers, options.unit):
            fully_shard([*module[first:first + options.unit]], mesh=mesh)
        fully_shard(module, mesh=mesh)
        model = module
    else:
        # Older versions close the first bucket here whatever the cap is, newer ones at the cap.
        dist._DEFAULT_FIRST_BUCKET_BYTES = int(options.bucket_cap_mb * (1 << 20))
        model = DistributedDataParallel(module, bucket_cap_mb=options.bucket_cap_mb)
        if options.over == "mpi":
            from mpi4py import MPI

            model.register_comm_hook(MPI.COMM_WORLD, reduce_over_mpi)
    if options.kind == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.01)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if mine and "gc" in faults:
        fill_heap()
    losses, step_ms, begin = [], [], time.perf_counter()
    for step, x in enumerate(DataLoader(Batches(), batch_size=None)):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if "item" in faults:
            loss.item()
        if step % EVERY == EVERY - 1:
            if RANK == 0 and "checkpoint" in faults:
                checkpoint(module)
            if mine and "gc" in faults:
                collect_garbage()
        now = time.perf_counter()
        step_ms.append(1e3 * (now - begin))
        begin = now
    if mine and "compute" in faults:
        injected_ms[:] = [(options.factor - 1) * options.work_ms] * len(injected_ms)
    all_injected = [None] * SIZE
    dist.all_gather_object(all_injected, injected_ms)
    # PyTorch 1.13 may wait for itself when a group goes whose threads still hold a tensor of Python's: they let go of it
    # at once, but need the interpreter for that.
    time.sleep(0.3)
    if RANK == 0 and options.truth:
        with open(options.truth, "w") as file:
            json.dump({"losses": [loss.item().hex() for loss in losses], "step_ms": step_ms, "injected_ms": all_injected},
                      file)
    dist.destroy_process_group()


main()
