"""The checks of PyTorch jobs, and of the profiler inside them."""

import json
import pathlib

from checks import check, expect, kernel_names, tied
from harness import SOURCE, Skipped, said

HERE = pathlib.Path(__file__).resolve().parent


@check(300)
def torch_ddp(ctx):
    words = ctx.torch(SOURCE / "examples/torch/ddp_train.py", "--steps", "30", "--layers", "6", "--width", "512",
                      "--bucket-cap-mb", "2")
    job = ctx.launch(words, ctx.ranks, timeout=200, raw=True)
    values = {}
    for rank, file in enumerate(ctx.files(job)):
        kernels, by_operation, collectives, with_kernel = tied(file)
        expect(kernels > 0 and kernels == by_operation, f"rank {rank}: {by_operation} of {kernels} NCCL kernels are tied")
        expect(file.rows("gradient_buckets") > 1, f"rank {rank}: {file.rows('gradient_buckets')} gradient buckets")
        values = {"nccl_kernels": kernels, "collectives": collectives, "buckets": file.rows("gradient_buckets"),
                  "steps": file.rows("steps"), "kernels": file.rows("kernels")}
    code, analysis, stderr = job.run.analyze()
    expect(analysis is not None and analysis["trust"]["unmatched_collectives"] == 0, f"exit {code}: {stderr[-300:]}")
    expect(analysis["buckets"] and len(analysis["buckets"]["sizes"]) > 1, f"buckets: {analysis['buckets']}")
    return {**values, "bucket_bytes": [b if isinstance(b, int) else b.get("bytes") for b in analysis["buckets"]["sizes"]]}


@check(300)
def torch_fsdp(ctx):
    words = ctx.torch(SOURCE / "examples/torch/fsdp_train.py", "--steps", "12", "--layers", "4", "--width", "512",
                      "--heads", "8", "--batch", "4", "--length", "128", "--vocabulary", "4096")
    job = ctx.launch(words, ctx.ranks, timeout=200)
    code, analysis, stderr = job.run.analyze()
    expect(analysis is not None and analysis["trust"]["unmatched_collectives"] == 0, f"exit {code}: {stderr[-300:]}")
    ops = {}
    for row in analysis["collectives"]:
        ops[row["op"]] = ops.get(row["op"], 0) + row["count"]
    gathers = sum(count for op, count in ops.items() if "gather" in op)
    scatters = sum(count for op, count in ops.items() if "scatter" in op)
    # Five units: four blocks and the root; each gathered in forward and, but for the root, again in backward.
    expect(gathers >= 12 * 5 and scatters >= 12 * 5, f"operations: {ops}")
    for rank, file in enumerate(ctx.files(job)):
        kernels, by_operation = tied(file)[:2]
        expect(kernels == by_operation > 0, f"rank {rank}: {by_operation} of {kernels} NCCL kernels are tied")
    return {"all_gathers": gathers, "reduce_scatters": scatters}


def profiled(ctx, bare, *options, run=()):
    out = ctx.dir / f"profile-{'bare' if bare else 'traced'}.json"
    # What comes after the profiler is for our capture.
    words = ctx.torch(HERE / "profiled.py", str(out), *options, *(["--once"] if bare else []))
    job = ctx.launch(words, bare=bare, timeout=240, raw=not bare, options=() if bare else run)
    return job, json.loads(out.read_text())


@check(400)
def torch_profiler_inside(ctx):
    """torch.profiler gets the same events as without us; our capture has a marked gap and goes on afterwards."""
    _, alone = profiled(ctx, True)
    job, beside = profiled(ctx, False)
    expect(alone["kernels"] > 0 and alone["kernels"] == beside["kernels"],
           f"torch.profiler saw {beside['kernels']} kernels, {alone['kernels']} without Lockstep")
    file = ctx.files(job)[0]
    expect(file.losses.get("GpuCaptureTaken", 0) >= 1, f"the gap is not marked: {file.losses}")
    # The steps after the profiler's: their kernels have a name of their own.
    after = sum("sinh" in name.lower() for name in kernel_names(file))
    before = sum("cosh" in name.lower() for name in kernel_names(file))
    expect(before > 0, "no kernel from before the profiler began")
    expect(after > 0, "capture was not taken up again after the profiler's end")
    return {"profiler_kernels": beside["kernels"], "before": before, "after": after, "of_each": alone["steps"]}


@check(400)
def torch_profiler_on_a_busy_gpu(ctx):
    """What was in the queue when torch.profiler began is lost to us and counted; the profiler misses nothing."""
    _, alone = profiled(ctx, True, "--busy")
    job, beside = profiled(ctx, False, "--busy")
    expect(alone["tanh"] > 0 and alone["tanh"] == beside["tanh"],
           f"torch.profiler saw {beside['tanh']} of its kernels, {alone['tanh']} without Lockstep")
    file = ctx.files(job)[0]
    queued = sum("erf" in name.lower() for name in kernel_names(file))
    missing = file.losses.get("GpuTimesMissing", 0)
    expect(missing == 0 or file.losses.get("GpuCaptureTaken", 0) >= 1, f"the gap is not marked: {file.losses}")
    after = sum("sinh" in name.lower() for name in kernel_names(file))
    expect(after > 0, "capture was not taken up again after the profiler's end")
    return {"profiler_kernels": beside["tanh"], "queued_recorded": queued, "queued_lost": missing, "after": after}


@check(300)
def torch_exception(ctx):
    job = ctx.launch(ctx.torch(HERE / "profiled.py", "-", "--raise"), codes=(1,), timeout=240)
    file = ctx.files(job)[0]
    expect("ended by --raise" in job.err[0], f"stderr: {job.err[0][-300:]}")
    expect("GpuTailLost" not in file.losses, f"{file.losses}")
    count = sum("cosh" in name.lower() for name in kernel_names(file))
    expect(count >= 40, f"{count} kernels of 40 steps")
    return {"kernels": file.rows("kernels"), "exit": job.codes[0]}


def nodes_kept(names, stderr, wanted):
    """Names of kernels' rows and standard error of a program with PyTorch under --cuda-graphs whole, of which each kernel
    is recorded: (before, after the profiler)."""
    expect("recorded node by node" in stderr, f"that nodes are recorded is not said: {stderr[-300:]}")
    whole = sum(name.startswith("CUDA graph") for name in names)
    expect(whole == 0, f"{whole} graphs are recorded as a whole, and CUPTI records no nodes after that")
    before, after = (sum(what in name.lower() for name in names) for what in ("cosh", "sinh"))
    expect(before >= wanted, f"{before} of {wanted} kernels before the profiler")
    expect(after > 0, "capture was not taken up again after the profiler's end")
    return before, after


@check(300)
def whole_graphs_before_torch_profiler(ctx):
    """With PyTorch in the process --cuda-graphs whole records nodes, or a later torch.profiler would miss them."""
    _, alone = profiled(ctx, True, "--graph")
    job, beside = profiled(ctx, False, "--graph", run=("--cuda-graphs", "whole"))
    wanted = alone["steps"] * alone["graph_nodes"]
    expect(alone["tanh"] == wanted, f"torch.profiler saw {alone['tanh']} of {wanted} kernels without Lockstep")
    expect(beside["tanh"] == wanted, f"torch.profiler saw {beside['tanh']} kernels, {wanted} without Lockstep")
    before, after = nodes_kept(kernel_names(ctx.files(job)[0]), job.err[0], wanted)
    return {"profiler_kernels": beside["tanh"], "before": before, "after": after}


def same_length(alone, beside):
    """What a tool said of a kernel without Lockstep and with it: the ratio, judged."""
    if not alone["count"]:
        raise Skipped("the tool reported no kernel without Lockstep either")
    expect(beside["count"] == alone["count"], f"{beside['count']} kernels reported, {alone['count']} without Lockstep")
    ratio, clock = (round(beside[key] / alone[key], 4) for key in ("ns", "clock_ns"))
    expect(abs(ratio - 1) <= 0.02, f"kernels of {beside['ns']:.0f} ns, {alone['ns']:.0f} without Lockstep: {ratio}; "
           f"by another clock {clock}")
    return {"ratio": ratio, "clock_ratio": clock, "ns": alone["ns"], "count": alone["count"], "kernel": alone["kernel"]}


def in_tool(ctx, tool):
    found = []
    for bare in (True, False):
        place = ctx.dir / f"{tool}-{'bare' if bare else 'traced'}"
        place.mkdir()
        job = ctx.launch(ctx.script(HERE / "tool_times.py", tool, str(place)), bare=bare, timeout=120)
        found.append(said(job))
    _, losses, _ = ctx.summary(job)
    return {**same_length(*found), "losses": {name: count for name, count in losses.items() if name.startswith("Gpu")}}


@check(300)
def durations_in_proton(ctx):
    """Kernels are as long in Triton's Proton with Lockstep in the process as without, and as many."""
    return in_tool(ctx, "proton")


@check(300)
def durations_in_jax(ctx):
    """As durations_in_proton, of JAX's profiler."""
    return in_tool(ctx, "jax")
