"""A job over gloo with what people write in training scripts: written_job.py MEETING DIRECTORY

Writes to DIRECTORY/RANK.json, the same with and without Lockstep: "losses" to the last digit, "values" of what the
collectives gave, and "calls", what was asked of gloo from the first step on, in order: [kind, bytes, type, root], with
the codes of the file. Bytes None: pickled objects, whose sizes are Python's affair, and what gloo does not tell.
"""
import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

RANK, SIZE = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
OTHER = 1 - RANK
NEW = hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler")  # 2.3 and later; not 1.13.
STEPS, MICRO_STEPS, WIDTH = 4, 3, 32
calls, values, losses = [], [], []
ALL_REDUCE, ALL_GATHER, BARRIER, BROADCAST, GATHER, SCATTER = 1, 2, 5, 6, 8, 9
UINT8, INT32, INT64, FLOAT32 = 2, 5, 7, 11


def called(kind, bytes_, dtype, root=-1):
    calls.append([kind, bytes_, dtype, root])


class Batches(Dataset):
    def __len__(self):
        return STEPS * MICRO_STEPS // 2  # Two epochs.

    def __getitem__(self, index):
        return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(1000 * RANK + index))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.unused = torch.nn.Linear(WIDTH, 5)

    def forward(self, x):
        return self.second(checkpoint(lambda y: torch.tanh(self.first(y)), x, use_reentrant=False))


def train():
    """Mixed precision, recomputed activations, gradients accumulated over micro-steps, a layer that is not used."""
    torch.manual_seed(1)
    model = DistributedDataParallel(Model(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0) if NEW else torch.cuda.amp.GradScaler(enabled=False)
    loader = DataLoader(Batches(), batch_size=None, num_workers=1, persistent_workers=True, multiprocessing_context="spawn")
    micro_step = 0
    for epoch in range(2):
        for x in loader:
            micro_step += 1
            last = micro_step % MICRO_STEPS == 0
            with record_function("with reduction" if last else "without reduction"):
                with contextlib.nullcontext() if last else model.no_sync():
                    with torch.autocast("cpu", dtype=torch.bfloat16):
                        loss = model(x).float().square().mean()
                    scaler.scale(loss).backward()
            if last:  # All gradients in one bucket, and which parameters were used.
                called(ALL_REDUCE, sum(4 * p.numel() for p in model.parameters()), FLOAT32)
                called(ALL_REDUCE, 4 * len(list(model.parameters())), INT32)
            losses.append(loss.item().hex())
            if last:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    values.append(sum(p.detach().double().sum().item() for p in model.parameters()).hex())


def objects():
    gathered = [None] * SIZE
    dist.all_gather_object(gathered, {"rank": RANK})  # Sizes, then bytes; likewise below.
    called(ALL_GATHER, 8 * SIZE, INT64)
    called(ALL_GATHER, None, UINT8)
    some = [RANK, "text"] if RANK == 0 else [None, None]
    dist.broadcast_object_list(some, 0)
    called(BROADCAST, 8 * len(some), INT64, 0)
    called(BROADCAST, None, UINT8, 0)
    at_one = [None] * SIZE if RANK == 1 else None
    dist.gather_object({"from": RANK}, at_one, 1)
    called(ALL_GATHER, 8 * SIZE, INT64)
    called(GATHER, None, UINT8, 1)
    mine = [None]
    dist.scatter_object_list(mine, ["zero", "one"] if RANK == 0 else None, 0)
    called(BROADCAST, 8, INT64, 0)
    called(SCATTER, None, UINT8 if RANK == 0 else 0, 0)
    called(SCATTER, None, INT64 if RANK == 0 else 0, 0)
    values.append([gathered, some, at_one, mine])


def tensors():
    whole, part = torch.arange(10 * SIZE, dtype=torch.float32) + RANK, torch.zeros(10)
    if NEW:  # Gloo of 1.13 has none of these. The last two are all-reduces, of the whole and of each part.
        dist.all_gather_into_tensor(torch.empty(10 * SIZE), part.fill_(RANK))
        called(ALL_GATHER, 40 * SIZE, FLOAT32)
        dist.reduce_scatter_tensor(part, whole)
        called(ALL_REDUCE, 40 * SIZE, FLOAT32)
        dist.reduce_scatter(part, list(whole.chunk(SIZE)))
        for _ in range(SIZE):
            called(ALL_REDUCE, 40, FLOAT32)
    values.append(part.tolist())
    several = [torch.ones(3), torch.ones(4)]
    dist.all_reduce_coalesced(several)
    called(ALL_REDUCE, 12 + 16, FLOAT32)
    lists = [[torch.empty(5), torch.empty(6)] for _ in range(SIZE)]
    dist.all_gather_coalesced(lists, [torch.ones(5), torch.ones(6)])
    called(ALL_GATHER, (20 + 24) * SIZE, FLOAT32)
    values.append([t.tolist() for t in several])
    if NEW:
        with dist._coalescing_manager():
            dist.all_reduce(several[0])
            dist.all_reduce(several[1])
        called(ALL_REDUCE, 12 + 16, FLOAT32)
        with dist._coalescing_manager():
            dist.all_gather_into_tensor(torch.empty(7 * SIZE), torch.ones(7))
            dist.all_gather_into_tensor(torch.empty(8 * SIZE), torch.ones(8))
        called(ALL_GATHER, (28 + 32) * SIZE, FLOAT32)
        with dist._coalescing_manager():
            dist.reduce_scatter_tensor(torch.empty(9), torch.ones(9 * SIZE))
            dist.reduce_scatter_tensor(torch.empty(11), torch.ones(11 * SIZE))
        called(ALL_REDUCE, 36 * SIZE, FLOAT32)
        called(ALL_REDUCE, 44 * SIZE, FLOAT32)


def messages():
    tensor = torch.full((21,), float(RANK))
    for sender in (0, 1):
        if RANK == sender:
            dist.send(tensor, OTHER, tag=7)
            dist.send(tensor, OTHER, tag=8)
        else:
            values.append(dist.recv(tensor, tag=7))  # From any source.
            work = dist.irecv(tensor, tag=8)
            work.wait()
    values.append(tensor.tolist())


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=RANK, world_size=SIZE)
    train()
    for part in (objects, tensors, messages):
        with record_function(part.__name__):
            part()
    dist.monitored_barrier()
    called(BARRIER, 0, 0)
    with open("%s/%d.json" % (sys.argv[2], RANK), "w") as file:
        json.dump({"losses": losses, "values": values, "calls": calls}, file)
    # Gloo's threads let go of their last work, for which they need the interpreter (tests/torch_abort.py).
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":  # Spawned workers come by here.
    main()
