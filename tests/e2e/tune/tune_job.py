"""Jobs for tune_test.py: tune_job.py KIND, under mpirun, over gloo.

buckets   DDP with a cap so small that each of many parameters is reduced by itself
unused    DDP with find_unused_parameters, and a parameter that is not used
drawn     a dataset that draws random numbers, which are others in a worker
slow      a dataset that waits for a disk, as it were
"""
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples/torch"))
from rendezvous import rank_and_size

KIND = sys.argv[1]
# A first bucket of PyTorch 1.13 holds 1 MiB whatever the cap: behind it there are 190 parameters.
STEPS, WIDTH, LAYERS = 25, 64, 160


class Data(Dataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        if KIND == "slow":
            time.sleep(0.03)
        random = None if KIND == "drawn" else torch.Generator().manual_seed(index)
        return torch.randn(4, WIDTH, generator=random)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS if KIND == "buckets" else 2)])
        if KIND == "unused":
            self.other = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for layer in self.layers:
            x = x + 0.1 * torch.tanh(layer(x))
        return x


def main():
    rank, size, _ = rank_and_size()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(1)
    model = DistributedDataParallel(Model(), bucket_cap_mb=0.0001 if KIND == "buckets" else 25,
                                    find_unused_parameters=KIND == "unused")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in DataLoader(Data(), batch_size=None):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    time.sleep(0.3)  # Gloo's threads let go of their last work (docs/pytorch.md).
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
