"""A job of torch.distributed over gloo: usage: torch_job.py STEPS. Steps are 50 ms apart."""
import sys
import time

import torch
import torch.distributed as dist

begin = time.monotonic()
dist.init_process_group("gloo")
rank = dist.get_rank()
sys.stdout.write(f"rank {rank}: joined in {time.monotonic() - begin:.2f} s\n")
for _ in range(int(sys.argv[1])):
    total = torch.tensor([rank])
    dist.all_reduce(total)
    time.sleep(0.05)
sys.stdout.write(f"rank {rank}: sum {total.item()}\n")
sys.stdout.flush()
dist.barrier()
dist.destroy_process_group()
