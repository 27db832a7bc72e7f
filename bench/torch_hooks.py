"""What the torch hooks cost a training step: the same steps with the hooks on and off, in alternating
blocks of one process, run under `lockstep run`. Prints microseconds: on, off, off again.
"""

import statistics
import sys
import time

import torch
from torch.utils.data import DataLoader

from _lockstep import state


def main(blocks, steps):
    torch.set_num_threads(1)
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    data = DataLoader(range(steps), batch_size=None)
    us = {"on": [], "off": [], "off again": []}
    for block in range(blocks + 1):
        for name in us:
            state.on = name == "on"
            begin = time.perf_counter_ns()
            for _ in data:  # Each phase of a real step, with next to no work in it.
                optimizer.zero_grad()
                parameter.sum().backward()
                optimizer.step()
            if block > 0:
                us[name].append((time.perf_counter_ns() - begin) / 1000 / steps)
    print(*(statistics.median(values) for values in us.values()))


main(int(sys.argv[1]), int(sys.argv[2]))
