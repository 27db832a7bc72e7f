"""GPU work before (cosh), under (tanh) and after (sinh) a torch.profiler of its own: profiled.py OUT [OPTION ...]

--raise: ends by an exception before that. --busy: the GPU still has work in its queue (erf) when the profiler begins.
--graph: the work is launches of CUDA graphs, made before the profiler begins. --once: nothing comes after the profiler.
"""
import json
import sys
import time

import torch

STEPS, GRAPH_NODES = 40, 25


def graph_of(function):
    x, graph = torch.ones(512, 512, device="cuda"), torch.cuda.CUDAGraph()
    function(x)  # What it loads cannot be captured.
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_NODES):
            function(x)
    return x, graph  # It reads x.


graphs = {name: graph_of(getattr(torch, name)) for name in ("cosh", "tanh", "sinh")} if "--graph" in sys.argv else {}


def work(name, steps):
    x = torch.ones(512, 512, device="cuda")
    for _ in range(steps):
        if graphs:
            graphs[name][1].replay()
        else:
            getattr(torch, name)(x @ x * 1e-3)
    torch.cuda.synchronize()


def queue(steps):
    x = torch.ones(4096, 4096, device="cuda")
    for _ in range(steps):
        x = torch.erf(x @ x * 1e-4)


work("cosh", STEPS)
if "--raise" in sys.argv:
    raise RuntimeError("ended by --raise")
if "--busy" in sys.argv:
    queue(300)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as p:
    work("tanh", STEPS)
kernels = sum(event.device_type == torch.autograd.DeviceType.CUDA and "emcpy" not in event.name and
              "emset" not in event.name and "ynchron" not in event.name for event in p.events())
tanh = sum(event.device_type == torch.autograd.DeviceType.CUDA and "tanh" in event.name.lower() for event in p.events())
if "--once" not in sys.argv:
    time.sleep(2.5)  # The flusher looks for CUPTI twice a second.
    work("sinh", STEPS)
with open(sys.argv[1], "w") as file:
    json.dump({"kernels": kernels, "tanh": tanh, "steps": STEPS, "graph_nodes": GRAPH_NODES}, file)
