"""A small DDP job over gloo of which rank 1 stops in step 15: sys.argv[1] says how.

"sleep": it sleeps; "file": it opens a pipe that nobody writes to (sys.argv[2]); "pause": for two seconds; "loop": it computes;
"spawn": it sleeps, and the three ranks are made by this program and not by a launcher.
"""
import os
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel


def train():
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(20):
        optimizer.zero_grad()
        model(torch.ones(8, 256)).sum().backward()
        optimizer.step()
        if step == 15 and rank == 1:
            if sys.argv[1] in ("sleep", "spawn"):
                time.sleep(1000)
            if sys.argv[1] == "pause":
                time.sleep(2)
            while sys.argv[1] == "loop":
                pass
            if sys.argv[1] == "file":
                open(sys.argv[2]).read()


def spawned(rank, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    train()


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        torch.multiprocessing.spawn(spawned, (int(sys.argv[2]),), nprocs=3)
    else:
        train()
        # PyTorch aborts some of those that end right after their last collective (tests/torch_abort.py).
        os._exit(0)
