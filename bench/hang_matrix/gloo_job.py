"""A training loop of PyTorch over gloo, DDP or plain, of which one rank does one thing wrong (run has the table).

usage: gloo_job.py FAULT RANK DIRECTORY, under a launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
"""
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from faults import Faults

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
faults = Faults(rank)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
# Pairs of neighbours, as a pipeline has them: (0 1), (1 2), ... (n-1 0).
pairs = [dist.new_group([first, (first + 1) % size]) for first in range(size)]
before, after = pairs[(rank - 1) % size], pairs[rank]
again = dist.new_group(list(range(size)))
for step in range(100_000):
    faults.begin(step)
    optimizer.zero_grad()
    loss = model(torch.ones(16, 128)).square().mean()
    faults.stand_still()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
    mean = loss.detach().reshape(1).clone()
    dist.all_reduce(mean)
    if faults.mine("extra_barrier"):
        dist.barrier()
    if faults.mine("extra_gather"):
        dist.all_gather([torch.empty(1) for _ in range(size)], mean)
    if step % 4 == 0:
        table, settings = torch.ones(1000), torch.ones(40_000)
        if faults.mine("size"):
            table = torch.ones(2000)
        if faults.mine("skips"):
            dist.broadcast(settings, 0)
        elif faults.mine("order"):
            dist.broadcast(settings, 0)
            dist.all_reduce(table)
        else:
            dist.all_reduce(table)
            dist.broadcast(settings, rank if faults.mine("root") else 0)
        dist.barrier()
        first, second = (again, None) if faults.mine("two_groups") else (None, again)
        dist.all_reduce(mean, group=first)
        dist.all_reduce(mean, group=second)
        # Somebody must begin with the other one of their two.
        turns = (before, after) if rank == 0 and not faults.all("pairs") else (after, before)
        for group in turns:
            dist.all_reduce(mean, group=group)
        large = torch.ones(1 << 20)
        if faults.mine("send"):
            dist.send(large, (rank + 1) % size)
        if faults.mine("receive"):
            dist.recv(large, (rank + 1) % size)
        if faults.all("circle"):
            dist.send(large, (rank + 1) % size)
            dist.recv(large, (rank - 1) % size)
