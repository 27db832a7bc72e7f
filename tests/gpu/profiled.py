"""GPU work before (cosh), under (tanh) and after (sinh) a torch.profiler of its own: profiled.py OUT [--raise | --busy]

--busy: the GPU still has work in its queue (erf) when the profiler begins.
"""
import json
import sys
import time

import torch

STEPS = 40


def work(function, steps):
    x = torch.ones(512, 512, device="cuda")
    for _ in range(steps):
        y = function(x @ x * 1e-3)
    torch.cuda.synchronize()
    return y


def queue(steps):
    x = torch.ones(4096, 4096, device="cuda")
    for _ in range(steps):
        x = torch.erf(x @ x * 1e-4)


work(torch.cosh, STEPS)
if "--raise" in sys.argv:
    raise RuntimeError("ended by --raise")
if "--busy" in sys.argv:
    queue(300)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as p:
    work(torch.tanh, STEPS)
kernels = sum(event.device_type == torch.autograd.DeviceType.CUDA and "emcpy" not in event.name and
              "emset" not in event.name and "ynchron" not in event.name for event in p.events())
tanh = sum(event.device_type == torch.autograd.DeviceType.CUDA and "tanh" in event.name.lower() for event in p.events())
time.sleep(2.5)  # The flusher looks for CUPTI twice a second.
work(torch.sinh, STEPS)
with open(sys.argv[1], "w") as file:
    json.dump({"kernels": kernels, "tanh": tanh, "steps": STEPS}, file)
