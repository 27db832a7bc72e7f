"""The checks of kernels whose number and length are known (kernels.cc): what is recorded of them."""

import collections
import shutil

from checks import check, expect, kernel_names
from harness import said

LIMIT = 0.001  # Of a duration.
# Records of kernels that are not in the file. Some of them count other records as well.
KERNELS_LOST = ("RingFull", "NoRing", "SpoolWrite", "GpuRecordsDropped", "GpuTimesMissing", "GpuMemoryFull",
                "GpuTimesReversed", "GpuClockTaken", "GpuBufferCut", "GpuOutOfWindow")


def agreeing(series, recorded):
    """{name: {count, event_ms}} as CUDA's events have it, {name: [(begin_ns, duration_ns)]} as recorded: the ratios."""
    values, wrong = {}, []
    for name, said_of in series.items():
        kernels = sorted(recorded.get(name, []))
        expect(len(kernels) == said_of["count"], f"{len(kernels)} of {said_of['count']} kernels {name}")
        event_ns = said_of["event_ms"] * 1e6
        span = (max(begin + duration for begin, duration in kernels) - kernels[0][0]) / event_ns
        total = sum(duration for _, duration in kernels) / event_ns
        values[name] = {"span": round(span, 6), "sum": round(total, 6), "event_ms": said_of["event_ms"]}
        # The sum lacks what lies between two kernels: some us, which are much of 2 ms and nothing of 10.
        wrong += [name for ratio in (span, *([total] if name == "ten_ms" else [])) if abs(ratio - 1) > LIMIT]
    expect(not wrong, f"more than {LIMIT:.1%} off the time between two events: {values}")
    return values


@check(60)
def durations_against_events(ctx):
    job = ctx.launch(ctx.kernels("durations"), timeout=30)
    file, recorded = ctx.files(job)[0], collections.defaultdict(list)
    for name, begin, duration in zip(kernel_names(file), file.numbers("kernels", "begin_ns"),
                                     file.numbers("kernels", "duration_ns")):
        recorded[name].append((begin, duration))
    return agreeing(said(job), recorded)


def accounted(launched, recorded, losses):
    """Every kernel is recorded, or counted as lost."""
    lost = {name: losses[name] for name in KERNELS_LOST if losses.get(name)}
    expect(0 < recorded <= launched, f"{recorded} kernels recorded, {launched} launched; lost: {lost}")
    expect(recorded + sum(lost.values()) >= launched,
           f"{launched - recorded} of {launched} kernels are missing, {sum(lost.values())} counted as lost: {lost}")
    return {"launched": launched, "recorded": recorded, "lost": lost}


@check(120)
def graph_of_1000_nodes(ctx):
    """10,000 launches, or as many as a third of the time allows: the rest is for writing what was recorded."""
    seconds = min(30, ctx.left() / 3)
    count = "30" if ctx.fake else "10000"
    job = ctx.launch(ctx.kernels("graph", "--nodes", "1000", "--count", count, "--seconds", f"{seconds:.1f}"),
                     options=["--max-bytes", "8GiB"], timeout=100)
    ran = said(job)
    rows, losses, meta = ctx.summary(job)
    shutil.rmtree(job.run.directory, ignore_errors=True)  # Gigabytes.
    values = {**ran, "us_per_kernel": round(1e6 * ran["seconds"] / (ran["nodes"] * (ran["launches"] - 1)), 4),
              "agent_cpu_ms": int(meta["agent_cpu_ns"]) // 1_000_000, "wall_seconds": round(job.seconds, 1)}
    ctx.measured(**values)
    return {**values, **accounted(ran["warm_ups"] + ran["nodes"] * ran["launches"], rows.get("kernels", 0), losses)}


def tied_in_windows(windows, launches, kernels, per_launch, of_each):
    """[(begin_ns, end_ns)], {correlation: begin_ns} of a graph's launches, [(correlation, begin_ns)] of its kernels:
    each window has so many launches, and each of these all its kernels, none of them before its launch."""
    found = collections.Counter(correlation for correlation, _ in kernels)
    unknown = sorted(set(found) - set(launches))
    expect(not unknown, f"kernels of {len(unknown)} launches that are not recorded: {unknown[:5]}")
    for number, (begin, end) in enumerate(windows):
        inside = [correlation for correlation, at in launches.items() if begin <= at < end]
        expect(len(inside) == of_each, f"window {number}: {len(inside)} launches, {of_each} were made")
        wrong = {correlation: found[correlation] for correlation in inside if found[correlation] != per_launch}
        expect(not wrong, f"window {number}: launches without their {per_launch} kernels: {wrong}")
    # The clocks of GPU and CPU agree to some us.
    early = sum(begin + 20_000 < launches[correlation] for correlation, begin in kernels)
    expect(early == 0, f"{early} kernels begin before the launch that they are tied to")


@check(60)
def graph_after_window(ctx):
    """Kernels of a graph in the second of two windows are tied to launches in it; the host is ahead of the GPU."""
    job = ctx.launch(ctx.kernels("steps", "--nodes", "20", "--count", "12"), options=["--steps", "2:4/6"], timeout=30)
    file, ran = ctx.files(job)[0], said(job)
    windows = list(zip(file.numbers("windows", "begin_ns"), file.numbers("windows", "end_ns")))
    expect(len(windows) == 2, f"{len(windows)} windows of 2")
    launches = {correlation: begin for kind, correlation, begin in
                zip(*(file.numbers("api", column) for column in ("kind", "correlation", "begin_ns"))) if kind == 4}
    kernels = [(correlation, begin) for node, correlation, begin in
               zip(*(file.numbers("kernels", column) for column in ("graph_node", "correlation", "begin_ns"))) if node]
    tied_in_windows(windows, launches, kernels, ran["nodes"], 2 * ran["launches_per_step"])
    behind_ms = (max(begin for _, begin in kernels) - windows[1][1]) / 1e6
    return {"kernels": len(kernels), "launches": len(launches), "last_kernel_ms_after_window": round(behind_ms, 2)}
