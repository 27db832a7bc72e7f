"""The checks of the native training job. Each returns what it measured, or raises Failed or Skipped."""

import json
import os
import signal
import statistics
import subprocess
import time

from harness import (Failed, Skipped, milliseconds_per_step, nccl_calls, recorded_calls)

NONE = 0xffffffff
CHECKS = {}


def check(seconds):
    """Registers a check that must end within `seconds`."""
    def add(function):
        CHECKS[function.__name__.replace("_", "-")] = (function, seconds)
        return function
    return add


def expect(true, text):
    if not true:
        raise Failed(text)


def kernel_names(file):
    return [file.text(name) or "" for name in file.column("kernels", "name")]


def tied(file):
    """(kernels of NCCL by name, of these launched by a recorded operation, collectives, of these with a kernel)"""
    names, rule = kernel_names(file), file.column("kernels", "work_rule")
    nccl = [i for i, name in enumerate(names) if name.startswith("nccl")]
    mode, kernel = file.column("collectives", "mode"), file.column("collectives", "kernel")
    of_gpu = [int(k) for m, k in zip(mode, kernel) if int(m) == 3]
    return len(nccl), sum(int(rule[i]) == 1 for i in nccl), len(of_gpu), sum(k != NONE for k in of_gpu)


def counted(ctx, ranks, *options):
    """Runs with NCCL's own log of calls beside: (job, [(recorded, logged) per rank])."""
    log = ctx.dir / f"log{ctx.jobs}"
    log.mkdir()
    job = ctx.launch(ctx.training(20, "--width", "256", "--batch", "64", *options), ranks,
                     {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "COLL", "NCCL_DEBUG_FILE": str(log / "nccl.%p")})
    logged = nccl_calls(log)
    pairs = []
    for file in ctx.files(job):
        pid = int(file.meta["pid"])
        expect(pid in logged, f"NCCL logged nothing for process {pid}: {sorted(logged)}")
        pairs.append((recorded_calls(file), logged[pid]))
    return job, pairs


@check(60)
def versions(ctx):
    job = ctx.launch(ctx.training(5, "--width", "256"))
    file = ctx.files(job)[0]
    fact = dict(part.split("=", 1) for part in file.meta.get("fact.cupti", "").split("\t") if "=" in part)
    expect(fact.get("state") == "recording", f"CUPTI does not record: {file.meta.get('fact.cupti')}; {job.err[0][-300:]}")
    name = file.text(file.column("devices", "name")[0]) if file.rows("devices") else None
    driver = "-" if ctx.fake else subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    return {"gpu": name, "driver": driver, "cupti": fact.get("version"), "cupti_path": fact.get("path"),
            "clock": fact.get("clock"), "functions": fact.get("functions")}


@check(120)
def result_unchanged(ctx):
    words = ctx.training(20, "--width", "128", "--batch", "32", "--check")
    bare, traced = ctx.launch(words, ctx.ranks, bare=True), ctx.launch(
        ctx.training(20, "--width", "128", "--batch", "32", "--check"), ctx.ranks)
    if not ctx.fake:
        for job in (bare, traced):
            expect("right" in job.text(), f"the training is wrong: {job.text()[-300:]}")
    # Times differ, and losses in their last digit: they are summed in whatever order the GPU's blocks end.
    keep = [[line.partition("  loss")[0] for line in job.text().splitlines() if "ms each" not in line]
            for job in (bare, traced)]
    expect(keep[0] == keep[1], f"output differs: {keep}")
    return {"lines": len(keep[0])}


@check(120)
def counts_as_nccl_logs(ctx):
    job, pairs = counted(ctx, ctx.ranks, "--mix")
    for rank, (recorded, logged) in enumerate(pairs):
        expect(logged and recorded == logged, f"rank {rank}: recorded {dict(recorded)}, NCCL logged {dict(logged)}")
    return {"operations": sum(pairs[0][1].values()), "functions": sorted(pairs[0][1])}


@check(120)
def one_rank_blind_spot(ctx):
    """Of a communicator of one rank NCCL tells its plugin nothing: the interposed calls must."""
    job, pairs = counted(ctx, 1)
    recorded, logged = pairs[0]
    expect(logged and recorded == logged, f"recorded {dict(recorded)}, NCCL logged {dict(logged)}")
    return {"operations": sum(logged.values())}


@check(120)
def every_kernel_tied(ctx):
    job = ctx.launch(ctx.training(20, "--width", "256", "--batch", "64", "--mix"), ctx.ranks)
    values = {}
    for rank, file in enumerate(ctx.files(job)):
        kernels, by_operation, collectives, with_kernel = tied(file)
        values[f"rank{rank}"] = f"{by_operation}/{kernels} kernels, {with_kernel}/{collectives} operations"
        expect(kernels > 0 and kernels == by_operation and collectives == with_kernel, f"rank {rank}: {values}")
        losses = {k: v for k, v in file.losses.items() if k.startswith(("Gpu", "Nccl")) and k != "NcclPluginChained"}
        expect(not losses, f"rank {rank} lost something: {losses}")
    return values


@check(120)
def every_collective_matched(ctx):
    job = ctx.launch(ctx.training(30, "--width", "512"), ctx.ranks)
    code, analysis, stderr = job.run.analyze()
    expect(analysis is not None, f"analyze failed with {code}: {stderr[-300:]}")
    trust = analysis["trust"]
    expect(trust["unmatched_collectives"] == 0 and trust["collectives"] > 0, f"trust: {trust}")
    if not ctx.fake:
        expect(trust["clock_violations"] == 0, f"trust: {trust}")
    for rank in analysis["ranks"]:
        terms = sum(rank[t] for t in ("compute_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns",
                                      "exposed_copy_ns", "idle_ns"))
        expect(terms == rank["span_ns"], f"rank {rank['rank']}: the six terms are {terms}, the span {rank['span_ns']}")
    return {"collectives": trust["collectives"], "clock_violations": trust["clock_violations"],
            "step_ns": analysis["summary"]["step_ns_median"], "overlap": analysis["summary"]["overlap_fraction"],
            "verdict": analysis["verdict"]}


@check(120)
def stream_waits(ctx):
    job = ctx.launch(ctx.training(20, "--width", "256"), ctx.ranks)
    done = subprocess.run([ctx.lockstep, "analyze", str(job.run.directory), "--table", "stream-waits", "--json", "-"],
                          capture_output=True, text=True)
    rows = json.loads(done.stdout)["rows"]
    expect(rows, "no stream waited for another: events are not recorded")
    kinds = [int(kind) for kind in ctx.files(job)[0].column("sync", "kind")]
    return {"rows": len(rows), "stream_wait_events": kinds.count(2), "event_records": kinds.count(5)}


@check(120)
def cuda_graphs(ctx):
    def words():
        return ([str(ctx.build / "tests/gpu_job"), "graph", "10"] if ctx.fake
                else ctx.training(20, "--width", "256", "--cuda-graph"))
    ranks = 1 if ctx.fake else ctx.ranks
    nodes = ctx.files(ctx.launch(words(), ranks))[0]
    whole = ctx.files(ctx.launch(words(), ranks, options=["--cuda-graphs", "whole"]))[0]
    of_nodes = int((nodes.column("kernels", "graph_node") != 0).sum())
    expect(of_nodes > 0, "no kernel of a graph's node")
    expect(0 < whole.rows("kernels") < nodes.rows("kernels"),
           f"{whole.rows('kernels')} rows with whole graphs, {nodes.rows('kernels')} with nodes")
    return {"rows_nodes": nodes.rows("kernels"), "of_nodes": of_nodes, "rows_whole": whole.rows("kernels"),
            "tied": tied(nodes)[:2]}


@check(120)
def windows(ctx):
    job = ctx.launch(ctx.training(40, "--width", "256"), ctx.ranks, options=["--steps", "10:15"])
    code, analysis, stderr = job.run.analyze()
    expect(analysis["run"]["steps"] == 5, f"{analysis['run']['steps']} steps")
    expect(analysis["trust"]["unmatched_collectives"] == 0, f"trust: {analysis['trust']}")
    all_kernels = ctx.files(ctx.launch(ctx.training(40, "--width", "256"), ctx.ranks))[0].rows("kernels")
    kernels = ctx.files(job)[0].rows("kernels")
    expect(0.8 * all_kernels / 8 < kernels < 1.2 * all_kernels / 8, f"{kernels} kernels of {all_kernels} in all")
    return {"kernels": kernels, "of": all_kernels}


@check(90)
def sensors(ctx):
    job = ctx.launch(ctx.training(150 if ctx.fake else 400, "--width", "1024"))
    file = ctx.files(job)[0]
    expect(file.rows("gpu_samples") > 0, f"no samples: {file.meta.get('fact.nvml')}")
    clock = [int(v) for v in file.column("gpu_samples", "sm_clock_mhz")]
    agent, app = int(file.meta["agent_cpu_ns"]), int(file.meta["app_cpu_ns"])
    return {"samples": len(clock), "sm_clock_mhz": [min(clock), max(clock)],
            "power_mw_max": int(max(file.column("gpu_samples", "power_mw"))), "agent_cpu_share": round(agent / app, 4)}


# --- endings ---

def ended(ctx, how, codes, timeout=60):
    job = ctx.launch(ctx.training(120, "--width", "256", "--end", how), codes=codes, timeout=timeout)
    file = ctx.files(job)[0]
    return {"kernels": file.rows("kernels"), "losses": {k: v for k, v in file.losses.items() if k.startswith("Gpu")},
            "exit": job.codes[0]}


@check(90)
def end_by_exception(ctx):
    values = ended(ctx, "throw", (1, -signal.SIGABRT))
    expect(values["kernels"] > 0, f"{values}")
    return values


@check(90)
def end_by_plain_exit(ctx):
    return ended(ctx, "_exit", (0,))


@check(120)
def end_by_sigterm(ctx):
    """What CUPTI still holds is fetched before the signal is passed on."""
    expected = ctx.files(ctx.launch(ctx.training(60, "--width", "256")))[0].rows("kernels")
    started, place = ctx.start(ctx.training(60, "--width", "256", "--end", "wait"))
    for _ in range(600):
        time.sleep(0.1)
        if "waiting" in (place / "out0").read_text():
            break
    begin = time.monotonic()
    started[0].send_signal(signal.SIGTERM)
    job = ctx.finish(started, place, 30)
    seconds = time.monotonic() - begin
    expect(job.codes == [-signal.SIGTERM], f"exit {job.codes}")
    kernels = ctx.files(job)[0].rows("kernels")
    expect(kernels >= expected, f"{kernels} kernels, {expected} in a run that ended by itself")
    return {"kernels": kernels, "seconds_to_end": round(seconds, 3)}


# --- cost ---

def paired(ctx, options_on, options_off, words, ranks=1, bare_off=False):
    """Interleaved runs with and without: medians of step times, and of the ratio of neighbours with its 95 % bound."""
    with_it, without = [], []
    for pair in range(ctx.pairs):
        order = [(with_it, options_on, False), (without, options_off, bare_off)]
        for times, options, bare in order if pair % 2 == 0 else order[::-1]:
            times.append(milliseconds_per_step(
                ctx.launch(words(), ranks, {"JOB_TIMES": "1"}, options=options, bare=bare, timeout=120)))
    ratios = sorted(a / b for a, b in zip(with_it, without))
    # Sign test: the median is below this order statistic with 95 % confidence (binomial, n/2 + sqrt(n)).
    upper = ratios[min(len(ratios) - 1, int(len(ratios) / 2 + len(ratios) ** 0.5 * 0.98))]
    return {"on_ms": round(statistics.median(with_it), 4), "off_ms": round(statistics.median(without), 4),
            "ratio_median": round(statistics.median(ratios), 4), "ratio_upper_95": round(upper, 4),
            "pairs": len(ratios)}


@check(900)
def cost_of_capture(ctx):
    """Kernels of 10 us and more: at most 2 % more time per step."""
    steps = 60 if ctx.fake else 400
    values = paired(ctx, (), (), lambda: ctx.training(steps, "--width", "1024", "--batch", "512"), bare_off=True)
    expect(ctx.fake or values["ratio_median"] <= 1.02, f"{values}")
    return values


@check(900)
def cost_with_short_kernels(ctx):
    """Kernels of 2 to 3 us, launched as fast as they go: reported, not judged."""
    steps = 60 if ctx.fake else 2000
    return paired(ctx, (), (), lambda: ctx.training(steps, "--width", "64", "--batch", "32", "--layers", "32"),
                  bare_off=True)


@check(900)
def cost_of_kernel_channels(ctx):
    steps = 60 if ctx.fake else 200
    return paired(ctx, ("--nccl-kernel-channels",), (), lambda: ctx.training(steps, "--width", "512"), ctx.ranks)


# --- a recording for later ---

@check(180)
def raw_capture_replays(ctx):
    raw = ctx.dir / "raw"
    raw.mkdir()
    job = ctx.launch(ctx.training(8, "--width", "128", "--batch", "32", "--mix"), ctx.ranks,
                     {"LOCKSTEP_GPU_RAW_DIR": str(raw)})
    original = ctx.files(job)
    recorded = sorted(raw.glob("*.raw"))
    expect(len(recorded) == ctx.ranks, f"{len(recorded)} recordings of {ctx.ranks} ranks")
    replay = ctx.build / "tests/gpu_replay"
    if not replay.exists():
        raise Skipped("gpu_replay is not built (LOCKSTEP_BUILD_TESTS)")
    columns = ("duration_ns", "stream", "correlation", "device")
    by_pid = {int(file.meta["pid"]): file for file in original}
    values = {}
    for path in recorded:
        again = ctx.files(ctx.launch([str(replay), str(path)]))[0]
        file = by_pid[int("".join(c for c in path.stem if c.isdigit()))]
        rows = [sorted(zip(kernel_names(f), *([int(v) for v in f.column("kernels", c)] for c in columns)))
                for f in (file, again)]
        expect(len(rows[0]) == len(rows[1]) > 0, f"{path.name}: {len(rows[1])} kernels replayed of {len(rows[0])}")
        # The length of a recorded tick is measured anew in the replay: durations agree to some per cent.
        rows = [sorted((c[0], c[3], c[2], c[4], c[1]) for c in table) for table in rows]
        same = all(a[:4] == b[:4] and abs(a[4] - b[4]) <= 2 + a[4] // 10 for a, b in zip(*rows))
        expect(same, f"{path.name}: the replayed kernels differ")
        values[path.name] = {"bytes": path.stat().st_size, "kernels": len(rows[0])}
    if ctx.record:
        os.makedirs(ctx.record, exist_ok=True)
        for path in recorded:
            (ctx.record / path.name).write_bytes(path.read_bytes())
        for path in sorted((job.run.directory / "ranks").glob("*.h5")):
            (ctx.record / path.name).write_bytes(path.read_bytes())
    return values


@check(120)
def under_mpirun(ctx):
    import shutil
    if shutil.which("mpirun") is None:
        raise Skipped("no mpirun")
    words = ctx.training(10, "--width", "256")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    sharing = ["bash", "-c", 'export NCCL_HOSTID=lockstep-rank$OMPI_COMM_WORLD_RANK; exec "$@"', "bash"]
    place = ctx.dir / "mpirun"
    place.mkdir()
    from harness import sharing_environment
    env = {**ctx.environment, **sharing_environment(0), "MASTER_PORT": str(25000 + os.getpid() % 5000)}
    env.pop("NCCL_HOSTID")
    done = subprocess.run(["mpirun", *root, "--oversubscribe", "-np", str(ctx.ranks), *sharing, ctx.lockstep, "run",
                           "--after", "none", "--", *words], cwd=place, env=env, capture_output=True, text=True,
                          timeout=100)
    expect(done.returncode == 0, f"exit {done.returncode}: {done.stderr[-400:]}")
    run = ctx.rank_files.Run(sorted(place.glob("lockstep.out/2*"))[-1])
    code, analysis, stderr = run.analyze()
    expect(analysis["run"]["ranks"] == ctx.ranks and analysis["trust"]["unmatched_collectives"] == 0,
           f"{analysis['run']} {analysis['trust']}")
    return {"ranks": ctx.ranks}
