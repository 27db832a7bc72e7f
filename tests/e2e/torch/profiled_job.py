"""DDP over gloo with torch.profiler in it: profiled_job.py MEETING DIRECTORY

Writes its traces, DIRECTORY/RANK.pt.trace.json, and DIRECTORY/RANK.json: "losses" to the last digit, "reduced": the bytes
of all-reduces in each profiled step, and "ops", how often the profiler saw some operators.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

RANK, SIZE = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
STEPS, WIDTH = 8, 64


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=RANK, world_size=SIZE)
    pair = dist.new_group(range(SIZE))
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses, counts = [], {}

    def ready(profiler):
        counts.update((e.key, e.count) for e in profiler.key_averages() if e.key in ("aten::addmm", "aten::tanh"))
        profiler.export_chrome_trace("%s/%d.pt.trace.json" % (sys.argv[2], RANK))

    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=3, warmup=1, active=3, repeat=1),
                 on_trace_ready=ready, record_shapes=True) as profiler:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = model(torch.randn(8, WIDTH)).square().mean()
            loss.backward()
            optimizer.step()
            dist.all_reduce(torch.ones(33), group=pair)
            losses.append(loss.item().hex())
            profiler.step()
    with open("%s/%d.json" % (sys.argv[2], RANK), "w") as file:
        json.dump({"losses": losses, "counts": counts}, file)
    # Gloo's threads let go of their last work, for which they need the interpreter (tests/torch_abort.py).
    time.sleep(0.3)
    dist.destroy_process_group()


main()
