"""Parameters sharded over gloo: sharded_job.py MEETING DIRECTORY KIND

KIND is mesh (four ranks, two by two: tensor parallelism in pairs, fully_shard between them, collectives that C++ starts
on a group that Python never called) or fsdp (FullyShardedDataParallel). Writes to DIRECTORY/RANK.json, the same with and
without Lockstep: "losses" to the last digit, and "groups": {ranks: [bytes of the all-reduces that the program asked for]}.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
STEPS, WIDTH = 6, 64
losses, groups = [], {}


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(*(layer for _ in range(4) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())))


def train(model, parts):
    """Ranks of the same part see the same data."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(parts)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(16, WIDTH, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append((loss.full_tensor() if hasattr(loss, "full_tensor") else loss).item().hex())


def mesh():
    from torch.distributed import _functional_collectives as functional
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    both = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    for name, elements in (("inner", 101), ("outer", 103)):
        for _ in range(2 + (name == "outer")):
            functional.all_reduce(torch.ones(elements), "sum", both[name]).wait()
            ranks = str(dist.get_process_group_ranks(both.get_group(name)))
            groups.setdefault(ranks, []).append(4 * elements)
    sharded = distribute_tensor(torch.arange(64.0).reshape(8, 8), both, [Shard(0), Shard(1)])
    losses.append(sharded.redistribute(both, [Replicate(), Replicate()]).to_local().sum().item().hex())
    layers = model()
    parallelize_module(layers, both["inner"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for i in range(0, len(layers), 4):
        fully_shard([*layers[i:i + 4]], mesh=both["outer"])
    train(fully_shard(layers, mesh=both["outer"]), RANK // 2)


def fsdp():
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    train(FullyShardedDataParallel(model(), auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}),
                                   device_id=torch.device("cpu"), use_orig_params=True), RANK)


torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=RANK, world_size=SIZE)
globals()[sys.argv[3]]()
with open("%s/%d.json" % (sys.argv[2], RANK), "w") as file:
    json.dump({"losses": losses, "groups": groups}, file)
dist.barrier()
# Gloo's threads let go of their last work, for which they need the interpreter (tests/torch_abort.py).
time.sleep(0.3)
dist.destroy_process_group()
