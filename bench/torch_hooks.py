"""What the torch hooks cost a training step: torch_hooks.py BLOCKS STEPS, run under `lockstep run`.

The same steps with the hooks on, off and off again, in alternating short blocks of one process. Prints us of CPU time of
the thread for each, in warm caches, then behind a walk over memory that a real step's arithmetic stands for: the lower
decile of the blocks (what else runs on the machine makes any block dearer, none cheaper).
"""

import sys
import time

import torch
from torch.utils.data import DataLoader

from _lockstep import state

BEYOND_L2 = torch.ones(2_000_000)


def block(optimizer, parameter, steps, cold):
    """CPU time of a step, in us."""
    data, took_ns = iter(DataLoader(range(steps + 1), batch_size=None)), 0
    next(data)
    for _ in range(steps):  # Each phase of a real step, with next to no work in it.
        if cold:
            BEYOND_L2.sum()
        begin = time.thread_time_ns()
        next(data)
        optimizer.zero_grad()
        parameter.sum().backward()
        optimizer.step()
        took_ns += time.thread_time_ns() - begin
    return took_ns / 1000 / steps


def main(blocks, steps):
    torch.set_num_threads(1)
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for cold in (False, True):
        us = {"on": [], "off": [], "off again": []}
        for _ in range(blocks):
            for name in us:
                state.resume() if name == "on" else state.pause()
                us[name].append(block(optimizer, parameter, steps, cold))
        print(*(sorted(values)[len(values) // 10] for values in us.values()))


main(int(sys.argv[1]), int(sys.argv[2]))
