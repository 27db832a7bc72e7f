"""What a visit to a GPU machine consists of: its calls, in their order, and the seconds of each."""

# Seconds in all, start of the program to its end.
BUDGETS = {"correctness": 330, "costs": 200, "more": 330}
# Of these: to ask for the GPU, for facts, and to try the training job.
DEVICE, FACTS, JOB = 15, {"correctness": 40}, 15
# Check, seconds. Worth most first: what came of one is kept even if there is no time for the next.
CALLS = {
    "correctness": [("versions", 20), ("raw-capture-replays", 35), ("every-kernel-tied", 25), ("torch-ddp", 50),
                    ("torch-profiler-inside", 45), ("torch-profiler-on-a-busy-gpu", 45), ("one-rank-blind-spot", 15),
                    ("counts-as-nccl-logs", 25)],
    "costs": [("durations-against-events", 10), ("cost-of-short-kernels", 27), ("cost-of-capture", 36),
              ("graph-of-1000-nodes", 25), ("graph-after-window", 8), ("whole-graphs-before-torch-profiler", 22),
              ("durations-in-proton", 20), ("durations-in-jax", 22)],
    "more": [("torch-exception", 15), ("end-by-exception", 18), ("end-by-plain-exit", 18), ("end-by-sigterm", 12),
             ("windows", 30), ("cuda-graphs", 20), ("every-collective-matched", 15), ("result-unchanged", 15),
             ("torch-fsdp", 35), ("sensors", 17), ("stream-waits", 10), ("without-help", 10),
             ("cost-beside-torch-profiler", 60), ("cost-of-kernel-channels", 25)],
}


def planned(call):
    """Seconds that the parts of a call take at most."""
    return DEVICE + FACTS.get(call, 0) + JOB + sum(seconds for _, seconds in CALLS[call])


NOT_TESTED = (
    "more than one GPU: peer copies, NVLink, several GPUs in a process; ranks share one GPU and meet over TCP",
    "several hosts; MIG; MPS",
    "GPUs, drivers and versions of CUDA, NCCL and PyTorch other than this machine's; a driver that refuses profiling",
    "NCCL: ncclCommSplit, copy-engine collectives, another profiler plugin, interfaces other than this NCCL's",
    "torch.profiler with TEARDOWN_CUPTI=1; nsys, ncu, DCGM or a profiler that has CUPTI linked in",
    "what a server of requests loses: short kernels of one thread, launched through the driver, stand for it",
    "CUPTI's kinds and flush intervals in Lockstep, which has no options for them: CUPTI alone is measured with some",
    "how far clocks of GPU and CPU part in hours",
)
