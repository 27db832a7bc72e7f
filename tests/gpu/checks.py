"""The checks of the native training job. Each returns what it measured, or raises Failed or Skipped."""

import os
import shutil
import signal
import subprocess
import time

import machine
from harness import Failed, Run, Skipped, nccl_calls, recorded_calls, sharing_environment

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
    return file.column("kernels", "name")


def tied(file):
    """(kernels of NCCL by name, of these launched by a recorded operation, collectives, of these with a kernel)"""
    names, rule = kernel_names(file), file.numbers("kernels", "work_rule")
    nccl = [i for i, name in enumerate(names) if name.startswith("nccl")]
    of_gpu = [kernel for mode, kernel in zip(file.numbers("collectives", "mode"), file.numbers("collectives", "kernel"))
              if mode == 3]
    return len(nccl), sum(rule[i] == 1 for i in nccl), len(of_gpu), sum(kernel is not None for kernel in of_gpu)


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


def cupti_fact(file):
    return dict(part.split("=", 1) for part in file.meta.get("fact.cupti", "").split("\t") if "=" in part)


@check(60)
def versions(ctx):
    job = ctx.launch(ctx.training(5, "--width", "256"))
    file = ctx.files(job)[0]
    fact = cupti_fact(file)
    expect(fact.get("state") == "recording", f"CUPTI does not record: {file.meta.get('fact.cupti')}; {job.err[0][-300:]}")
    return {"gpu": file.column("devices", "name")[:1], "driver": None if ctx.fake else machine.driver()[1],
            "cupti": fact.get("version"), "cupti_path": fact.get("path"), "clock": fact.get("clock"),
            "functions": fact.get("functions"), "nccl_plugin": file.meta.get("fact.nccl_plugin"), "given": ctx.native}


@check(60)
def without_help(ctx):
    """What a user gets who sets nothing: versions() and the others name PyTorch's libcupti where no toolkit has one."""
    given = ctx.native.pop("LOCKSTEP_CUPTI", None)
    job = ctx.launch(ctx.training(5, "--width", "256"))
    fact = cupti_fact(ctx.files(job)[0])
    expect(fact.get("state") == "recording", f"LOCKSTEP_CUPTI={given} is needed here: {fact}; stderr: {job.err[0][-600:]}")
    return {"cupti_path": fact.get("path"), "needed_before": given}


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
        terms = sum(rank[t] for t in ("compute_ns", "blocked_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns",
                                      "exposed_copy_ns", "idle_ns"))
        expect(terms == rank["span_ns"], f"rank {rank['rank']}: the terms are {terms}, the span {rank['span_ns']}")
    return {"collectives": trust["collectives"], "clock_violations": trust["clock_violations"],
            "step_ns": analysis["summary"]["step_ns_mean"], "overlap": analysis["summary"]["overlap_fraction"],
            "verdict": analysis["verdict"]}


@check(120)
def stream_waits(ctx):
    job = ctx.launch(ctx.training(20, "--width", "256"), ctx.ranks)
    code, table, stderr = job.run.analyze("--table", "stream-waits")
    expect(table is not None, f"analyze failed with {code}: {stderr[-300:]}")
    rows = table["rows"]
    expect(rows, "no stream waited for another: events are not recorded")
    kinds = ctx.files(job)[0].numbers("sync", "kind")
    return {"rows": len(rows), "stream_wait_events": kinds.count(2), "event_records": kinds.count(5)}


@check(120)
def cuda_graphs(ctx):
    def words():
        return ([str(ctx.build / "tests/gpu_job"), "graph", "10"] if ctx.fake
                else ctx.training(20, "--width", "256", "--cuda-graph"))
    ranks = 1 if ctx.fake else ctx.ranks
    nodes = ctx.files(ctx.launch(words(), ranks, raw=True))[0]
    whole = ctx.files(ctx.launch(words(), ranks, options=["--cuda-graphs", "whole"], raw=True))[0]
    of_nodes = sum(bool(node) for node in nodes.numbers("kernels", "graph_node"))
    expect(of_nodes > 0, "no kernel of a graph's node")
    expect(0 < whole.rows("kernels") < nodes.rows("kernels"),
           f"{whole.rows('kernels')} rows with whole graphs, {nodes.rows('kernels')} with nodes")
    return {"rows_nodes": nodes.rows("kernels"), "of_nodes": of_nodes, "rows_whole": whole.rows("kernels"),
            "tied": tied(nodes)[:2]}


@check(120)
def windows(ctx):
    """Five steps of forty. The program waits for the GPU after each, so that a kernel of a step runs within it."""
    def words(*options):
        return ctx.training(40, "--width", "256", *options)
    job = ctx.launch(words("--sync-every", "1"), ctx.ranks, options=["--steps", "10:15"])
    code, analysis, stderr = job.run.analyze()
    expect(analysis is not None, f"analyze failed with {code}: {stderr[-300:]}")
    expect(analysis["run"]["steps"] == 5, f"{analysis['run']['steps']} steps")
    expect(analysis["trust"]["unmatched_collectives"] == 0, f"trust: {analysis['trust']}")
    # Nothing but steps: the kernels of start and end are in two runs of different length alike.
    all_of = {}
    for steps in (20, 40):
        other = ctx.training(steps, "--width", "256", "--sync-every", "1")
        all_of[steps] = ctx.files(ctx.launch(other, ctx.ranks))[0].rows("kernels")
    of_a_step = (all_of[40] - all_of[20]) / 20
    kernels = ctx.files(job)[0].rows("kernels")
    # One that runs across a window's edge belongs to either side.
    expect(abs(kernels - 5 * of_a_step) <= 2, f"{kernels} kernels in 5 steps, {of_a_step} in each of the others")
    # Waiting every tenth step only, the program is ahead of the GPU when the window opens: reported, not judged.
    ahead = ctx.files(ctx.launch(words(), ctx.ranks, options=["--steps", "10:15"]))[0].rows("kernels")
    return {"kernels": kernels, "of_a_step": of_a_step, "kernels_if_ahead": ahead}


@check(90)
def sensors(ctx):
    job = ctx.launch(ctx.training(150 if ctx.fake else 3000, "--width", "1024"))
    file = ctx.files(job)[0]
    expect(file.rows("gpu_samples") > 0, f"no samples: {file.meta.get('fact.nvml')}")
    clock = [mhz for mhz in file.numbers("gpu_samples", "sm_clock_mhz") if mhz is not None]
    agent, app = int(file.meta["agent_cpu_ns"]), int(file.meta["app_cpu_ns"])
    return {"samples": file.rows("gpu_samples"), "sm_clock_mhz": [min(clock, default=None), max(clock, default=None)],
            "power_mw_max": max((mw for mw in file.numbers("gpu_samples", "power_mw") if mw is not None), default=None),
            "agent_cpu_share": round(agent / app, 4)}


# --- endings ---

def ended(ctx, how, codes):
    """Steps of 20 ms for some seconds, then the end: (what was recorded, the part of all kernels that it is)."""
    # The tests' GPU takes its time for each step.
    steps = 500 if ctx.fake else 200
    options = ("--width", "256", "--pause-ms", "20")
    whole = ctx.files(ctx.launch(ctx.training(steps, *options)))[0].rows("kernels")
    job = ctx.launch(ctx.training(steps, *options, "--end", how), codes=codes)
    file = ctx.files(job)[0]
    values = {"kernels": file.rows("kernels"), "of": whole, "exit": job.codes[0],
              "losses": {k: v for k, v in file.losses.items() if k.startswith("Gpu")}}
    # CUPTI's records are fetched twice a second: of four seconds the last one may be missing, no more.
    expect(whole > 0 and values["kernels"] >= 0.7 * whole, f"{values}")
    expect(values["kernels"] >= whole or values["losses"], f"nothing is said of what is missing: {values}")
    return values


@check(90)
def end_by_exception(ctx):
    return ended(ctx, "throw", (1, -signal.SIGABRT))


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


# --- a recording for later ---

@check(180)
def raw_capture_replays(ctx):
    """CUPTI's own buffers as they came, decoded again without a GPU: the same kernels."""
    job = ctx.launch(ctx.training(8, "--width", "128", "--batch", "32", "--mix"), ctx.ranks, raw=True)
    original = ctx.files(job)
    recorded = sorted(job.run.directory.parents[1].glob("raw/*.raw"))
    expect(len(recorded) == ctx.ranks, f"{len(recorded)} recordings of {ctx.ranks} ranks")
    replay = ctx.build / "tests/gpu_replay"
    if not replay.exists():
        raise Skipped(f"{replay} is not built (LOCKSTEP_BUILD_TESTS)")
    by_pid = {int(file.meta["pid"]): file for file in original}
    values = {}
    for path in recorded:
        again = ctx.files(ctx.launch([str(replay), str(path)]))[0]
        file = by_pid[int("".join(c for c in path.stem if c.isdigit()))]
        tables = [sorted(zip(kernel_names(f), *(f.numbers("kernels", c) for c in ("device", "stream", "correlation", "duration_ns"))))
                  for f in (file, again)]
        expect(len(tables[0]) == len(tables[1]) > 0, f"{path.name}: {len(tables[1])} kernels replayed of {len(tables[0])}")
        # The length of a recorded tick is measured anew in the replay: durations agree to some per cent.
        same = all(a[:4] == b[:4] and abs(a[4] - b[4]) <= 2 + a[4] // 10 for a, b in zip(*tables))
        expect(same, f"{path.name}: the replayed kernels differ")
        values[path.name] = {"bytes": path.stat().st_size, "kernels": len(tables[0])}
    return values


@check(120)
def under_mpirun(ctx):
    if shutil.which("mpirun") is None:
        raise Skipped("no mpirun")
    words = ctx.training(10, "--width", "256")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    sharing = ["bash", "-c", 'export NCCL_HOSTID=lockstep-rank$OMPI_COMM_WORLD_RANK; exec "$@"', "bash"]
    place = ctx.dir / "mpirun"
    place.mkdir()
    env = {**ctx.environment, **ctx.native, **sharing_environment(0), "MASTER_PORT": str(25000 + os.getpid() % 5000)}
    env.pop("NCCL_HOSTID")
    done = subprocess.run(["mpirun", *root, "--oversubscribe", "-np", str(ctx.ranks), *sharing, ctx.lockstep, "run",
                           "--after", "none", "--", *words], cwd=place, env=env, capture_output=True, text=True,
                          timeout=100)
    expect(done.returncode == 0, f"exit {done.returncode}: {done.stderr[-400:]}")
    run = Run(sorted(place.glob("lockstep.out/2*"))[-1], ctx)
    code, analysis, stderr = run.analyze()
    expect(analysis is not None, f"analyze failed with {code}: {stderr[-300:]}")
    expect(analysis["run"]["ranks"] == ctx.ranks and analysis["trust"]["unmatched_collectives"] == 0,
           f"{analysis['run']} {analysis['trust']}")
    return {"ranks": ctx.ranks}
