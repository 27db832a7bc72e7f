#!/usr/bin/env python3
"""A model trained with PyTorch's DDP, its gradients averaged over MPI on a thread of their own, as
PyTorch's MPI backend does it (builds without that backend are common; a communication hook is DDP's
own way around).

    mpirun -np 2 python3 torch_job.py --way cap=25 --steps 40                  one way, for recording
    mpirun -np 2 python3 torch_job.py --compare cap=25 cap=1 --rounds 30 --report times.json

A way: cap=MIB,first=MIB,overlap=on|late,slow=RANK:FACTOR, each part optional. late: all buckets are
reduced after the backward pass. slow: this rank's batches have that many times the samples.
"""

import argparse
import copy
import json
import pathlib
import queue
import sys
import threading
import time

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/torch"))
from rendezvous import rank_and_size


class Reducer:
    """The thread that averages buckets over all ranks, one after the other."""

    def __init__(self, comm):
        self.comm, self.queue = comm, queue.SimpleQueue()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while True:
            item = self.queue.get()
            if item is None:
                return
            gradients, done = item
            self.comm.Allreduce(MPI.IN_PLACE, gradients.numpy())
            gradients.div_(self.comm.size)
            done.set_result(gradients)

    def end(self):
        self.queue.put(None)
        self.thread.join()


def make_hook(reducer, late):
    """DDP's communication hook of one way."""
    kept = []

    def reduce_on_thread(_state, bucket):
        done = torch.futures.Future()
        kept.append((bucket.buffer(), done))
        if not late or bucket.is_last():
            for item in kept:
                reducer.queue.put(item)
            kept.clear()
        return done

    return reduce_on_thread


class Way:
    def __init__(self, text, model, options, rank, reducer):
        values = dict(part.split("=", 1) for part in text.split(",") if part)
        cap, first = float(values.pop("cap", 25)), float(values.pop("first", 1))
        late = values.pop("overlap", "on") == "late"
        slow_rank, _, factor = values.pop("slow", "-1:1").partition(":")
        if values:
            sys.exit(f"error: {text}: no such part of a way: {', '.join(values)}")
        rows = round(options.batch * (float(factor) if rank == int(slow_rank) else 1))
        dist._DEFAULT_FIRST_BUCKET_BYTES = int(first * 2**20)
        self.ddp = DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=cap)
        self.ddp.register_comm_hook(None, make_hook(reducer, late))
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.01)
        random = torch.Generator().manual_seed(options.seed + 1 + rank)
        self.x = torch.randn(rows, options.width, generator=random)

    def step(self):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.ddp(self.x), self.x.roll(1, dims=1))
        loss.backward()
        self.optimizer.step()


def make_model(width, layers):
    """Bottlenecks of growing width: tensors of many sizes."""
    parts = []
    for i in range(layers):
        inner = width * (i + 2) // (layers + 1)
        parts += [torch.nn.Linear(width, inner), torch.nn.GELU(), torch.nn.Linear(inner, width), torch.nn.LayerNorm(width)]
    return torch.nn.Sequential(*parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", default="cap=25")
    parser.add_argument("--compare", nargs="+", metavar="WAY")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--block-steps", type=int, default=3)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", metavar="FILE", help="rank 0 writes the step times of --compare there")
    options = parser.parse_args()

    torch.set_num_threads(1)
    rank, size, _ = rank_and_size()
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(options.seed)
    model = make_model(options.width, options.layers)
    reducer = Reducer(MPI.COMM_WORLD.Dup())
    texts = options.compare or [options.way]
    ways = [Way(text, model, options, rank, reducer) for text in texts]
    if not options.compare:
        for _ in range(options.steps):
            ways[0].step()
    else:
        for way in ways:  # DDP rebuilds its buckets after the first step and reports them in the third.
            for _ in range(4):
                way.step()
        ends, order = [time.monotonic_ns()], []
        for turn in range(options.rounds):
            for k in range(len(ways)):
                which = (turn + k) % len(ways)
                for _ in range(options.block_steps):
                    ways[which].step()
                    ends.append(time.monotonic_ns())
                    order.append(which)
        # A step's time: from one step's end on its last rank to the next one's; ranks of one host share a clock.
        last = [max(each) for each in zip(*MPI.COMM_WORLD.allgather(ends))]
        times = {text: [] for text in texts}
        for i, which in enumerate(order):
            times[texts[which]].append(last[i + 1] - last[i])
        if rank == 0 and options.report:
            sizes = {text: way.ddp._get_ddp_logging_data().get("rebuilt_bucket_sizes", "") for text, way in zip(texts, ways)}
            pathlib.Path(options.report).write_text(json.dumps(
                {"block_steps": options.block_steps, "compared": times, "bucket_bytes": sizes}))
    reducer.end()
    time.sleep(0.3)  # Gloo's threads let go of their last work, for which they need the interpreter (tests/torch_abort.py).
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
