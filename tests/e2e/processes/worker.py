"""One worker of torchrun and its kind: four steps by the public C API, if Lockstep is there."""

import ctypes
import os

rank = int(os.environ["RANK"])
probe = ctypes.CDLL(None)
if hasattr(probe, "lockstep_probe_step"):
    for _ in range(4):
        probe.lockstep_probe_step()
        probe.lockstep_probe_range_push(b"rank %d" % rank)
        probe.lockstep_probe_range_pop()
    probe.lockstep_probe_step_end()
print("worker", rank, "of", os.environ["WORLD_SIZE"], flush=True)
