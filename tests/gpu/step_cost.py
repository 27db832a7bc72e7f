"""Time of a step of equally long kernels, one size after another: step_cost.py [--profiler]

--profiler: torch.profiler records CUDA activity during the timed steps. Its start and its end are not in the times.
"""
import sys
import time

import torch

PER_STEP, STEPS = 100, 100


def step(cycles):
    for _ in range(PER_STEP):
        torch.cuda._sleep(cycles)


def seconds(cycles, steps):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step(cycles)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


step(1000)
seconds(1_000_000, 2)  # The GPU's clock rises.
per_cycle = seconds(1_000_000, 2) / (2 * PER_STEP * 1_000_000)
for us in (2, 10, 100):
    cycles = max(1, round(us * 1e-6 / per_cycle))
    steps = STEPS if us >= 100 else 3 * STEPS
    seconds(cycles, 10)
    if "--profiler" in sys.argv:
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        profiler.start()
        taken = seconds(cycles, steps)
        profiler.stop()
    else:
        taken = seconds(cycles, steps)
    print(f"kernels of {us} us: {1e3 * taken / steps:.4f} ms each", flush=True)
