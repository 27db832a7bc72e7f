"""What a training step over gloo takes of the processors, on each rank: torch_gloo.py DIRECTORY STEPS [WIDTH BATCH]

Writes to DIRECTORY/RANK.json, in us per step: CPU time of the process and of its main thread, the lower decile of blocks
of steps (what else runs on the machine's cores makes any block dearer, none cheaper); CPU time of the agent beside it
(0 without one), and the wall time; "step": the median of the steps' wall times; "first": CPU time of the process in its
first steps together. The model is small unless another WIDTH and BATCH are given, so that what capture adds is not lost
in what the arithmetic takes now and then.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

RANK, SIZE = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
WIDTH, BATCH = (int(word) for word in (sys.argv[3:5] if len(sys.argv) > 3 else (64, 8)))
WARM_UP, BLOCK = 50, 10


def agent_ns():
    """CPU time of the parent's threads, if it is an agent."""
    if "LOCKSTEP_SEGMENT" not in os.environ:
        return 0
    tasks, total = "/proc/%d/task/" % os.getppid(), 0
    for task in os.listdir(tasks):
        with open(tasks + task + "/schedstat") as file:
            total += int(file.read().split()[0])
    return total


def main(directory, steps):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method="file://%s/meeting" % directory, rank=RANK, world_size=SIZE)
    layers = [layer for _ in range(10) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=7.5 * WIDTH * WIDTH / (1 << 20))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.ones(BATCH, WIDTH)
    start, blocks, ends = time.process_time_ns(), [], []
    for step, _ in enumerate(DataLoader(range(steps + WARM_UP), batch_size=None)):
        if step == WARM_UP:
            dist.barrier()
            begin = agent_ns(), time.perf_counter_ns()
        if step >= WARM_UP and step % BLOCK == 0:
            blocks.append((time.process_time_ns(), time.thread_time_ns()))
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        ends.append(time.perf_counter_ns())
    end = agent_ns(), time.perf_counter_ns()
    lengths = sorted(b - a for a, b in zip(ends[WARM_UP:], ends[WARM_UP + 1:]))
    figures = {"first": (blocks[0][0] - start) / 1e3, "step": lengths[len(lengths) // 2] / 1e3}
    for i, name in enumerate(("process", "main")):
        each = sorted((b[i] - a[i]) / 1e3 / BLOCK for a, b in zip(blocks, blocks[1:]))
        figures[name] = each[len(each) // 10]
    for i, name in enumerate(("agent", "wall")):
        figures[name] = (end[i] - begin[i]) / 1e3 / steps
    with open("%s/%d.json" % (directory, RANK), "w") as file:
        json.dump(figures, file)
    time.sleep(0.3)  # PyTorch 2.15 aborts a job whose gloo threads still need the interpreter when it ends.
    dist.destroy_process_group()


main(sys.argv[1], int(sys.argv[2]))
