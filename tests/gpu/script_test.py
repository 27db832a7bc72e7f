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
for part in ("lockstep", "liblockstep-gpu.so", "tests/e2e_gpu_job", "tests/gpu_job", "tests/gpu_replay"):
    if not (BUILD / part).exists():
        print(f"skipped: {part} is not built")
        sys.exit(77)
sys.path.insert(0, str(HERE))
import archive  # noqa: E402
import checking  # noqa: E402
import harness  # noqa: E402


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


done, checks, lines = run()
print(done.stdout)
need(done.returncode == 0, done.stdout + done.stderr)
need({c["result"] for name, c in checks.items() if "torch" not in name and name != "under-mpirun"} == {"PASS"}, checks)
need({c["result"] for name, c in checks.items() if "torch" in name} == {"SKIP"}, checks)
measured = [line for line in lines if line["type"] == "measured" and "ms_per_step" in line]
need({(line["size"], line["variant"]) for line in measured if line["check"] == "cost-of-capture"} ==
     {(size, variant) for size in ("2us", "10us", "100us") for variant in ("bare", "capture")}, measured)

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
        visit = subprocess.Popen([*call, "--only", "versions,raw-capture-replays,end-by-exception,end-by-plain-exit"],
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
            need("end-by-plain-exit" not in found, found)

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
