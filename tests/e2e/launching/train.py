"""A small training over gloo whose ranks come together in the way that is named.

usage: train.py [env|tcp|file|spawn|none] [options]
"""
import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist


def train(rank, a, how, where):
    if how == "env":
        dist.init_process_group("gloo")
    elif how != "none":
        dist.init_process_group("gloo", init_method=f"{how}://{where}", rank=rank, world_size=a.nprocs)
    if a.again:  # Another world, of pairs, after the first one.
        rank, pair = dist.get_rank(), dist.get_rank() // 2
        dist.destroy_process_group()
        dist.init_process_group("gloo", init_method=f"file://{where}.{pair}", rank=rank % 2, world_size=2)
    if rank in a.quit:
        os._exit(0)
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    if dist.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in torch.utils.data.DataLoader(torch.randn(a.steps * 8, 64), batch_size=8, num_workers=a.workers):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    if dist.is_initialized():
        # One write: print may make two, between which another rank's come.
        os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()} done\n".encode())
        # Gloo's threads let go of their last work, for which they need the interpreter (tests/torch_abort.py).
        time.sleep(0.3)
        dist.destroy_process_group()
    else:
        print("alone, done", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("how", nargs="?", default="env")
    parser.add_argument("--nprocs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--where", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--quit", type=int, nargs="*", default=[])
    parser.add_argument("--local_rank", "--local-rank", type=int)  # torch.distributed.launch gives it.
    a = parser.parse_args()
    torch.set_num_threads(1)
    if a.how == "spawn":
        with tempfile.TemporaryDirectory() as place:
            torch.multiprocessing.spawn(train, (a, "file", place + "/meet"), a.nprocs)
    else:
        train(a.rank, a, a.how, a.where)


if __name__ == "__main__":
    main()
