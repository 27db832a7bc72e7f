"""The GPU checks' own logic, on the tests' GPU: what must pass passes, what is broken is found, and what was found is
kept however a visit ends."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv[1]).resolve()
for part in ("lockstep", "liblockstep-gpu.so", "tests/e2e_gpu_job", "tests/gpu_job", "tests/gpu_kernels",
             "tests/gpu_replay"):
    if not (BUILD / part).exists():
        print(f"skipped: {part} is not built")
        sys.exit(77)
sys.path.insert(0, str(HERE))
import archive  # noqa: E402
import calls  # noqa: E402
import checking  # noqa: E402
import checks_cost  # noqa: E402
import checks_kernels  # noqa: E402
import checks_torch  # noqa: E402
import harness  # noqa: E402
import tool_times  # noqa: E402


def run(env=None, *options):
    with tempfile.TemporaryDirectory() as place:
        out, lines = os.path.join(place, "out.json"), os.path.join(place, "lines")
        done = subprocess.run([sys.executable, HERE / "run", BUILD, "--fake", "--pairs", "1", "--json", out, "--lines", lines,
                               *options], env={**os.environ, **(env or {})}, capture_output=True, text=True)
        checks = json.load(open(out))["checks"]
        written = [json.loads(line) for line in open(lines)]
        need({line["name"] for line in written if line["type"] == "check"} == set(checks), "not every check is in the lines")
        return done, checks, written


def need(true, what):
    if not true:
        print("FAILED:", what)
        sys.exit(1)


def refused(judge, *given):
    """A check's judgement of what is wrong."""
    try:
        value = judge(*given)
    except harness.Failed:
        return
    need(False, f"{judge.__name__} takes {given}: {value}")


def unpacked(directory, name, place):
    """Names in an archive; tar and gzip must find it whole."""
    pieces = sorted(pathlib.Path(directory).glob(f"{name}.tgz.*"))
    whole = pathlib.Path(place) / "whole.tgz"
    whole.write_bytes(b"".join(piece.read_bytes() for piece in pieces))
    into = pathlib.Path(place) / "into"
    into.mkdir(exist_ok=True)
    done = subprocess.run(["tar", "-C", str(into), "-xzvf", str(whole)], capture_output=True, text=True)
    need(done.returncode == 0 and done.stderr == "", done.stderr)
    return pieces, into, done.stdout.splitlines()


# What a visit takes at most is what was given for it, and every check has its place in one call.
need((calls.BUDGETS["correctness"], calls.BUDGETS["costs"]) == (330, 200), calls.BUDGETS)
for call, budget in calls.BUDGETS.items():
    need(calls.planned(call) <= budget, f"{call}: {calls.planned(call)} s planned of {budget}")
placed = [name for call in calls.CALLS.values() for name, _ in call]
need(sorted(placed) == sorted(set(checking.registered()) - {"under-mpirun"}), placed)

done, checks, lines = run()
print(done.stdout)
need(done.returncode == 0, done.stdout + done.stderr)
real = {name for name in checks if re.search("torch|proton|jax", name)}  # They need a real GPU.
need({c["result"] for name, c in checks.items() if name not in real | {"under-mpirun"}} == {"PASS"}, checks)
need(len(real) == 9 and {checks[name]["result"] for name in real} == {"SKIP"}, checks)
measured = [line for line in lines if line["type"] == "measured" and "ms_per_step" in line]
for check, sizes, variants in (("cost-of-capture", checks_cost.SIZES, ("bare", "capture")),
                               ("cost-of-short-kernels", ("short",), checks_cost.SHORT)):
    need({(line["size"], line["variant"]) for line in measured if line["check"] == check} ==
         {(size, variant) for size in sizes for variant in variants}, measured)

# A GPU's clock that is 0.5 % off is found; kernels for which there is no room are counted.
done, checks, _ = run({"FAKE_GPU_CLOCK_PPM": "5000"}, "--only", "durations-against-events")
need("off the time between two events" in checks["durations-against-events"].get("why", ""), checks)
done, checks, _ = run({"LOCKSTEP_GPU_BUFFERS": "1MiB"}, "--only", "graph-of-1000-nodes")
values = checks["graph-of-1000-nodes"].get("values")
need(values and values["recorded"] < values["launched"] == 30_000 and values["lost"], checks)

# Judgements: each takes what is right and refuses what is wrong in one thing.
series = {"ten_ms": {"count": 2, "event_ms": 20.0}}
checks_kernels.agreeing(series, {"ten_ms": [(0, 10_000_000), (10_004_000, 9_996_000)]})
refused(checks_kernels.agreeing, series, {"ten_ms": [(0, 10_000_000)]})
refused(checks_kernels.agreeing, series, {"ten_ms": [(0, 10_000_000), (10_030_000, 10_000_000)]})
refused(checks_kernels.agreeing, series, {"ten_ms": [(0, 9_980_000), (10_020_000, 9_980_000)]})  # The span is right.
checks_kernels.accounted(100, 100, {})
for lost in ("GpuTimesMissing", "GpuMemoryFull"):
    checks_kernels.accounted(100, 90, {lost: 10, "StepsUnmarked": 1})
refused(checks_kernels.accounted, 100, 99, {"StepsUnmarked": 1})
refused(checks_kernels.accounted, 100, 101, {})
refused(checks_kernels.accounted, 100, 0, {"NoRing": 100})
launches, kernels = {1: 10, 2: 110, 3: 120}, [(1, 15), (2, 115), (2, 116), (3, 130), (3, 131), (1, 16)]
windows = [(0, 50), (100, 200)]
refused(checks_kernels.tied_in_windows, windows, launches, kernels, 2, 2)  # One launch in the first window.
checks_kernels.tied_in_windows(windows[1:], launches, kernels, 2, 2)
refused(checks_kernels.tied_in_windows, windows[1:], launches, [*kernels, (4, 150)], 2, 2)
refused(checks_kernels.tied_in_windows, windows[1:], launches, kernels[:3] + [(2, 130), (3, 131)], 2, 2)
refused(checks_kernels.tied_in_windows, windows[1:], {**launches, 3: 130_000}, kernels, 2, 1)
of_step_1 = {"launches": 100, "of_step_1": 10}
checks_cost.recorded_as_asked("capture", of_step_1, 100, {})
checks_cost.recorded_as_asked("window over", of_step_1, 10, {})
for variant, kernels in (("capture", 99), ("window over", 11), ("window over", 0), ("gpu off", 1)):
    refused(checks_cost.recorded_as_asked, variant, of_step_1, kernels, {})
kept = "graphs are recorded node by node"
need(checks_torch.nodes_kept(["Cosh", "cosh", "tanh", "sinh"], kept, 2) == (2, 1), "nodes of graphs")
for names, stderr in ((["cosh", "cosh", "sinh"], ""), (["cosh", "sinh"], kept), (["cosh", "cosh"], kept),
                      (["cosh", "cosh", "sinh", "CUDA graph 1"], kept)):
    refused(checks_torch.nodes_kept, names, stderr, 2)
alone = {"kernel": "k", "count": 50, "ns": 2_000_000, "clock_ns": 2_010_000}
need(checks_torch.same_length(alone, {**alone, "ns": 2_010_000})["ratio"] == 1.005, "same length")
for wrong in ({"count": 49}, {"count": 0, "ns": None}, {"ns": 6_000_000}, {"ns": 1_900_000}):
    refused(checks_torch.same_length, alone, {**alone, **wrong})

# What other tools write.
leaf = {"children": [], "frame": {"name": "void spin_kernel(long)"}, "metrics": {"count": 3, "time (ns)": 6000}}
scope = {"children": [leaf], "frame": {"name": "scope"}, "metrics": {}}
root = {"children": [{**leaf, "frame": {"name": "other"}}, scope], "frame": {"name": "ROOT"},
        "metrics": {"count": 0, "time (ns)": 0}}
need(tool_times.of_proton([root, {"CUDA": {"0": {"arch": "90"}}}], "spin_kernel") ==
     {"kernel": "spin_kernel", "count": 3, "ns": 2000}, "Proton's tree")
events = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/device:GPU:0"}},
          {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "/host:CPU"}},
          *({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
            for pid, tid, name in ((1, 7, "Stream #7(Compute)"), (1, 8, "XLA Ops"), (2, 7, "Stream #7"))),
          *({"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": 0, "dur": dur}
            for pid, tid, name, dur in ((1, 7, "fusion", 400.0), (1, 7, "fusion", 402.0), (1, 7, "fusion", 480.0),
                                        (1, 7, "copy", 1.0), (1, 8, "fusion", 900.0), (2, 7, "fusion", 5000.0)))]
need(tool_times.of_jax({"traceEvents": events}) == {"kernel": "fusion", "count": 3, "ns": 402_000}, "JAX's trace")
need(tool_times.of_jax({"traceEvents": events[:2]})["count"] == 0, "JAX's trace without a GPU")

# A driver that does not let the GPU be profiled: every check that needs it says so, and the others are run.
done, checks, _ = run({"FAKE_CUPTI_FAIL": "cuptiActivityEnable=35"}, "--only", "versions,every-kernel-tied,sensors")
need(done.returncode == 1 and {c["result"] for c in checks.values()} == {"FAIL"}, checks)
need("state=refused" in checks["versions"]["why"], checks["versions"])
# A user's variables that say where things are reach the jobs; those that say what to record do not.
given = {"LOCKSTEP_CUPTI": "/nowhere/libcupti.so.13", "LOCKSTEP_STEPS": "1:2", "LOCKSTEP_GPU": "off", "NCCL_ALGO": "Tree"}
done, checks, _ = run(given, "--only", "windows")
need(checks["windows"]["result"] == "PASS", checks["windows"])
os.environ.update(given)
context = harness.Context(BUILD, sys.executable, True, 2, 1)
context.clean()
need(context.environment.get("LOCKSTEP_CUPTI") == given["LOCKSTEP_CUPTI"], context.environment)
need(not {"LOCKSTEP_STEPS", "LOCKSTEP_GPU", "NCCL_ALGO"} & set(context.environment), context.environment)
for name in given:
    del os.environ[name]
# A name that is none is an error of use, not a run without checks.
done = subprocess.run([sys.executable, HERE / "run", BUILD, "--only", "no-such-check"], capture_output=True, text=True)
need(done.returncode == 2 and "no check no-such-check" in done.stderr, done.stderr)

# A check that hangs is ended with what it started; what it had measured is kept, and it failed only if its time was its own.
hanging = [sys.executable, "-c", "import os,time;print('{\"measured\": {\"pid\": %d}}' % os.getpid(),flush=True);os.fork();time.sleep(600)"]
seen = []
outcome = checking.isolated(hanging, 2, seen.append)
need(outcome == {"result": "FAIL", "why": "not finished after 2 s"} and len(seen) == 1, (outcome, seen))
for _ in range(200):
    alive = subprocess.run(["pgrep", "--runstates", "R,S,D", "-g", str(seen[0]["pid"])], capture_output=True, text=True).stdout
    if alive == "":
        break
    time.sleep(0.05)
need(alive == "", f"{alive} still run")
outcome = checking.isolated([sys.executable, "-c", "import sys; sys.exit('no such thing')"], 60, seen.append)
need(outcome["result"] == "FAIL" and "no such thing" in outcome["why"], outcome)

with tempfile.TemporaryDirectory() as place:
    # A visit to its end: captures are kept, and replay.
    call = [sys.executable, str(HERE / "call"), "correctness", str(BUILD), "--fake", "--out", place]
    done = subprocess.run([*call, "--only", "versions,raw-capture-replays"], capture_output=True, text=True)
    need(done.returncode == 0, done.stdout[-2000:] + done.stderr)
    _, into, names = unpacked(place, "correctness", place)
    raw = [name for name in names if name.endswith(".raw")]
    end = [json.loads(line) for line in (pathlib.Path(place) / "correctness.jsonl").read_text().splitlines()][-2:]
    need([line["type"] for line in end] == ["not_tested", "end"] and end[0]["text"] == list(calls.NOT_TESTED), end)
    need(len(raw) == 2 and sum(name.endswith(".h5") for name in names) >= 4, names)
    done = subprocess.run([str(BUILD / "lockstep"), "run", "--after", "none", "--", str(BUILD / "tests/gpu_replay"),
                           str(into / raw[0])], cwd=place, capture_output=True, text=True)
    records = re.search(r": (\d+) records", done.stdout)
    need(done.returncode == 0 and records and int(records[1]) > 0, done.stdout + done.stderr)

for number in (signal.SIGTERM, signal.SIGKILL):
    # What the second leaves running, for some seconds, writes there.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        # Cut off in its third check. What the first two left is there, whole.
        call = [sys.executable, str(HERE / "call"), "correctness", str(BUILD), "--fake", "--out", place]
        visit = subprocess.Popen([*call, "--only", "versions,raw-capture-replays,every-kernel-tied,counts-as-nccl-logs"],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                 env={**os.environ, "TMPDIR": place})
        written = pathlib.Path(place) / "correctness.jsonl"
        while visit.poll() is None:
            time.sleep(0.05)
            if written.exists() and '"kept", "check": "raw-capture-replays"' in written.read_text():
                break
        visit.send_signal(number)
        rest = visit.stdout.read()
        visit.wait()
        lines = [json.loads(line) for line in written.read_text().splitlines()]
        found = {line["name"]: line["result"] for line in lines if line["type"] == "check"}
        need(found.get("versions") == "PASS" and found.get("raw-capture-replays") == "PASS", rest[-2000:])
        _, _, names = unpacked(place, "correctness", place)
        need(sum(name.endswith(".raw") for name in names) == 2, names)
        if number == signal.SIGTERM:
            need(visit.returncode == 1 and lines[-1]["type"] == "end" and "cut off" in lines[-1]["tally"], lines[-1])
            need("counts-as-nccl-logs" not in found, found)

with tempfile.TemporaryDirectory() as place:
    # Limits: pieces of a size, no more than so many; what has no room is named, and smaller files after it are kept.
    root = pathlib.Path(place) / "root"
    root.mkdir()
    noise = random.Random(1)
    for name, size in (("a", 1500), ("b", 2500), ("huge", 40000), ("c", 900)):
        (root / name).write_bytes(noise.randbytes(size))
    kept = archive.Archive(place, "limits", 4096, 3)
    for name in ("a", "huge", "b", "c"):
        kept.add(root / name, name)
    kept.finish()
    pieces, into, names = unpacked(place, "limits", place)
    need(names == ["a", "b", "c"] and len(pieces) == 2, (names, pieces))
    need(all(piece.stat().st_size <= 4096 for piece in pieces), pieces)
    need((into / "b").read_bytes() == (root / "b").read_bytes(), "b came back changed")
    need(len(kept.left_out) == 1 and kept.left_out[0].startswith("huge: "), kept.left_out)
print("the checks pass on what is sound and fail on what is not; what was found is kept however it ends")
