"""A job of torch.distributed over gloo, in which each rank learns from its own data: gloo_job.py MEETING STEPS"""
import os
import sys

import torch
import torch.distributed as dist

rank, steps = int(os.environ["RANK"]), int(sys.argv[2])
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
torch.manual_seed(rank)
model, data = torch.nn.Linear(8, 1), torch.randn(16, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
for _ in range(steps):
    optimizer.zero_grad()
    loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
losses = [torch.empty(()) for _ in range(dist.get_world_size())]
dist.all_gather(losses, loss.detach())
dist.barrier()
sys.stdout.write(f"rank {rank}: {[each.item().hex() for each in losses]} {model.weight.tolist()}\n")
dist.destroy_process_group()
