"""What another profiler in the program says of kernels that are all alike: tool_times.py proton|jax DIRECTORY

Its result stays in DIRECTORY. Prints {"kernel", "count", "ns": the kernel's length, "clock_ns": as another clock has
it}.
"""
import gzip
import json
import pathlib
import statistics
import sys
import time

KERNELS = 50


def lacks(why):
    print(why, file=sys.stderr)
    sys.exit(77)


def of_proton(tree, name):
    """Of Proton's tree (a .hatchet file): mean length of the kernels with this in their name."""
    count, total_ns, nodes = 0, 0, list(tree)
    while nodes:
        node = nodes.pop()
        nodes += node.get("children", [])
        if name in node.get("frame", {}).get("name", "") and "time (ns)" in node.get("metrics", {}):
            count += node["metrics"].get("count", 0)
            total_ns += node["metrics"]["time (ns)"]
    return {"kernel": name, "count": count, "ns": total_ns / count if count else None}


def of_jax(trace):
    """Of JAX's trace (Chrome's JSON): median length of the kernel that took most of the GPU's streams."""
    events = trace["traceEvents"]
    named = {(e["name"], e["pid"], e.get("tid")): e["args"]["name"] for e in events
             if e.get("ph") == "M" and "name" in e.get("args", {})}
    gpus = {pid for (what, pid, _), name in named.items() if what == "process_name" and "GPU" in name}
    streams = {(pid, tid) for (what, pid, tid), name in named.items()
               if what == "thread_name" and pid in gpus and name.startswith("Stream")}
    lengths_us = {}
    for e in events:
        if e.get("ph") == "X" and (e["pid"], e["tid"]) in streams:
            lengths_us.setdefault(e["name"], []).append(e["dur"])
    if not lengths_us:
        return {"kernel": None, "count": 0, "ns": None}
    name, us = max(lengths_us.items(), key=lambda item: sum(item[1]))
    return {"kernel": name, "count": len(us), "ns": 1000 * statistics.median(us)}


def proton(directory):
    try:
        import torch
        import triton.profiler as profiler
    except ImportError as error:
        lacks(f"no Proton: {error}")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    cycles = 20_000_000
    for _ in range(3):  # In the first ones the GPU's clock rises.
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
        torch.cuda.synchronize()
    cycles = int(2 * cycles / begin.elapsed_time(end))  # 2 ms.
    profiler.start(str(directory / "proton"))
    begin.record()
    for _ in range(KERNELS):
        torch.cuda._sleep(cycles)
    end.record()
    torch.cuda.synchronize()
    profiler.finalize()
    tree = json.loads((directory / "proton.hatchet").read_text())
    return {**of_proton(tree, "spin_kernel"), "clock_ns": 1e6 * begin.elapsed_time(end) / KERNELS}


def jax(directory):
    try:
        import jax as package
        package.devices("gpu")
    except (ImportError, RuntimeError) as error:
        lacks(f"no JAX with a GPU: {' '.join(str(error).split())[:200]}")
    # As fast as the memory is, whatever the GPU's clock: 1 GiB read, 1 GiB written.
    x = package.numpy.ones(1 << 28, dtype="float32")
    work = package.jit(lambda x: x * 1.0001 + 0.5)
    work(x).block_until_ready()
    with package.profiler.trace(str(directory)):
        begin = time.perf_counter()
        for _ in range(KERNELS):
            y = work(x)
        y.block_until_ready()
        seconds = time.perf_counter() - begin
    traces = sorted(pathlib.Path(directory).rglob("*.trace.json.gz"))
    if not traces:
        lacks("this JAX writes no trace as JSON")
    with gzip.open(traces[-1], "rt") as file:
        return {**of_jax(json.load(file)), "clock_ns": 1e9 * seconds / KERNELS}


if __name__ == "__main__":
    print(json.dumps({"proton": proton, "jax": jax}[sys.argv[1]](pathlib.Path(sys.argv[2]))))
