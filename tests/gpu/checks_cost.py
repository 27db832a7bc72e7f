"""What capture costs: runs with and without it in turn, as many rounds as the time allows. Every run's figure is written
down when it is known, so that a series that is cut short is still worth something."""

import pathlib
import re
import shutil
import statistics
import time

from checks import check, expect
from checks_kernels import accounted
from harness import Failed, milliseconds_per_step, said

HERE = pathlib.Path(__file__).resolve().parent

# Steps of about a second in all, of kernels of about 10 and 100 us on an H200; how long they really were is reported
# (kernel_us).
SIZES = {"10us": (1000, ("--width", "512", "--batch", "256")), "100us": (100, ("--width", "2048", "--batch", "512"))}
LIMIT = 1.02  # For kernels of 10 us and more.
OFF_LIMIT = 1.1  # With --gpu off nothing is loaded: what differs is noise.


def compared(series):
    """{variant: [ms per step]} whose first one is without: per other variant medians, and the ratio of neighbours with
    its 95 % bound."""
    base_name, *others = series
    values = {base_name + "_ms": round(statistics.median(series[base_name]), 4)}
    for name in others:
        ratios = sorted(a / b for a, b in zip(series[name], series[base_name]))
        # Sign test: the median is below this order statistic with 95 % confidence (binomial, n/2 + sqrt(n)).
        upper = ratios[min(len(ratios) - 1, int(len(ratios) / 2 + len(ratios) ** 0.5 * 0.98))]
        values.update({name + "_ms": round(statistics.median(series[name]), 4),
                       name + "_ratio_median": round(statistics.median(ratios), 4), name + "_ratio_upper_95": round(upper, 4)})
    return {**values, "rounds": min(map(len, series.values()))}


def rounds(ctx, measure, variants):
    """Runs measure(variant) in turn until the rounds or the time are used up: {size: {variant: [ms]}}."""
    found, longest = {}, 0.0
    for turn in range(ctx.pairs):
        begin = time.monotonic()
        if turn > 0 and ctx.left() < 1.3 * longest + 5:
            break
        of_turn = {}
        for variant in variants if turn % 2 == 0 else variants[::-1]:
            for size, milliseconds in measure(variant).items():
                of_turn.setdefault(size, {})[variant] = milliseconds
                ctx.measured(round=turn, size=size, variant=variant, ms_per_step=milliseconds)
        for size, by_variant in of_turn.items():  # Whole rounds only.
            for variant in variants:
                found.setdefault(size, {}).setdefault(variant, []).append(by_variant[variant])
        longest = max(longest, time.monotonic() - begin)
    if not found:
        raise Failed("not one round in the time given")
    return {size: compared(series) for size, series in found.items()}


def timed(ctx, job, seen, **which):
    """A job's figure. Its run, tens of megabytes of records, is not kept; what the first of a kind recorded and lost is."""
    if job.run is not None:
        kind = tuple(which.values())
        if kind not in seen:
            seen.add(kind)
            rows, losses, meta = ctx.summary(job)
            ctx.measured(**which, kernels=rows.get("kernels", 0), calls=rows.get("api", 0), losses=losses,
                         agent_cpu_ms=int(meta["agent_cpu_ns"]) // 1_000_000,
                         app_cpu_ms=int(meta["app_cpu_ns"]) // 1_000_000)
        shutil.rmtree(job.run.directory, ignore_errors=True)
    return milliseconds_per_step(job)


def kernel_us(ctx, steps, options):
    durations = ctx.files(ctx.launch(ctx.training(steps, *options)))[0].numbers("kernels", "duration_ns")
    return round(statistics.median(durations) / 1000, 2) if durations else None


@check(600)
def cost_of_capture(ctx):
    """One rank. Kernels of 10 us and more: at most 2 % more time per step."""
    seen = set()

    def measure(variant):
        found = {}
        for size, (steps, options) in SIZES.items():
            job = ctx.launch(ctx.training(60 if ctx.fake else steps, *options), env={"JOB_TIMES": "1"},
                             bare=variant == "bare", timeout=60)
            found[size] = timed(ctx, job, seen, size=size, variant=variant)
        return found

    lengths = {size: kernel_us(ctx, 40, options) for size, (_, options) in SIZES.items()}
    ctx.measured(kernel_us=lengths)
    values = rounds(ctx, measure, ["bare", "capture"])
    for size in values:
        values[size]["kernel_us"] = lengths[size]
    slow = [size for size, value in values.items() if value["capture_ratio_median"] > LIMIT]
    expect(ctx.fake or not slow, f"more than {LIMIT}: {slow}: {values}")
    return values


# What a series of short kernels is run with: options of `lockstep run`, or of kernels.cc without Lockstep.
# CUPTI's kinds are 10: kernels, 4 and 5: calls of the driver and the runtime.
SHORT = {"bare": None, "gpu off": ("--gpu", "off"), "window over": ("--steps", "1:2"), "capture": (),
         "CUPTI kernels": "--kinds 10", "CUPTI kernels, calls": "--kinds 10,4,5",
         "CUPTI kernels, calls, flush 100 ms": "--kinds 10,4,5 --flush-ms 100",
         "CUPTI stopped": "--kinds 10,4,5 --stopped"}


def recorded_as_asked(variant, ran, kernels, losses):
    """Whether a run of short kernels recorded what its options say."""
    if variant == "capture":
        return accounted(ran["launches"], kernels, losses)
    wanted = ran["of_step_1"] if variant == "window over" else 0
    expect(kernels == wanted, f"{variant}: {kernels} kernels recorded, not {wanted}")
    return {}


@check(300)
def cost_of_short_kernels(ctx):
    """Kernels of 2 us as fast as the host can launch them: with capture, with what saves some of it, and with CUPTI
    alone, below which no profiler that uses it can get. Judged: that nothing is slower where nothing is loaded."""
    cupti, seen, last = ctx.cupti(), set(), {}

    def measure(variant):
        how, words = SHORT[variant], ctx.kernels("short", "--count", "500" if ctx.fake else "20000")
        alone = isinstance(how, str)
        if alone:
            words += ["--cupti", cupti, *how.split()]
        job = ctx.launch(words, bare=alone or how is None, options=() if alone else how or (), timeout=60)
        ran = said(job)
        last[variant] = {key: ran[key] for key in ("us_per_kernel", "host_peak_bytes", "gpu_used_bytes", "cupti_bytes")}
        expect(not alone or ran["cupti_bytes"] > 0, f"{variant}: CUPTI recorded nothing")
        if job.run is not None:
            rows, losses, meta = ctx.summary(job)
            counted = recorded_as_asked(variant, ran, rows.get("kernels", 0), losses)
            if variant not in seen:
                seen.add(variant)
                ctx.measured(variant=variant, kernels=rows.get("kernels", 0), calls=rows.get("api", 0), losses=losses,
                             **counted, agent_cpu_ms=int(meta["agent_cpu_ns"]) // 1_000_000)
            shutil.rmtree(job.run.directory, ignore_errors=True)
        return {"short": ran["ms"]}

    values = rounds(ctx, measure, [name for name, how in SHORT.items() if cupti or not isinstance(how, str)])["short"]
    ctx.measured(of_last_round=last)
    ratio = values["gpu off_ratio_median"]
    expect(ctx.fake or ratio <= OFF_LIMIT, f"--gpu off: {ratio} times as long as without Lockstep: {values}")
    return {**values, "us_per_kernel": {name: of["us_per_kernel"] for name, of in last.items()}}


@check(600)
def cost_beside_torch_profiler(ctx):
    """The same kernels from PyTorch: bare, under Lockstep, and with torch.profiler recording CUDA only. Not judged."""
    words = ctx.torch(HERE / "step_cost.py")

    def measure(variant):
        job = ctx.launch([*words, *(["--profiler"] if variant == "profiler" else [])], bare=variant != "capture", timeout=100)
        found = {f"{us}us": float(ms) for us, ms in re.findall(r"kernels of (\d+) us: ([\d.]+) ms each", job.text())}
        expect(found, f"the job printed no step times: {job.text()[-300:]}")
        return found

    return rounds(ctx, measure, ["bare", "capture", "profiler"])


@check(300)
def cost_of_kernel_channels(ctx):
    seen = set()

    def measure(variant):
        job = ctx.launch(ctx.training(60 if ctx.fake else 200, "--width", "512"), ctx.ranks, {"JOB_TIMES": "1"},
                         options=["--nccl-kernel-channels"] if variant == "channels" else (), timeout=100)
        return {"2 ranks": timed(ctx, job, seen, size="2 ranks", variant=variant)}

    return rounds(ctx, measure, ["capture", "channels"])
