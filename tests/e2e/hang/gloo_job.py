"""A job of PyTorch over gloo in which rank 2 does not come to its last call; each rank leaves its dump.

usage: gloo_job.py DIRECTORY RANK SIZE pickle|json
"""
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

directory, rank, size, form = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
dist.init_process_group("gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=size)
pair = dist.new_group([0, 1])
data = torch.ones(1000)
for _ in range(3):
    dist.all_reduce(data)
if rank < 2:
    dist.all_reduce(data, group=pair)
if rank == 0:
    dist.send(data, 1)
elif rank == 1:
    dist.recv(data, 0)
work = dist.all_reduce(data, async_op=True) if rank != 2 else None
dumper = torch._C._distributed_c10d
# A call that has ended is marked so a moment later.
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    entries = json.loads(dumper._dump_fr_trace_json())["entries"]
    if sum(not entry["retired"] for entry in entries) == (rank != 2):
        break
    time.sleep(0.05)
dump = dumper._dump_fr_trace_json() if form == "json" else dumper._dump_fr_trace()
(directory / f"part_{rank}").write_bytes(dump)
(directory / f"part_{rank}").rename(directory / ("dumps/" + (f"rank{rank}.json" if form == "json" else f"_dump_{rank}")))
while len(list((directory / "dumps").iterdir())) < size:  # Nobody's end may end another's call.
    time.sleep(0.05)
os._exit(0)
