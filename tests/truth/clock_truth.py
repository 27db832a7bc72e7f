#!/usr/bin/python3
"""Clocks against a known truth, with real jobs: ranks are forced into clocks of
their own by the test hook or by time namespaces, the run is captured and merged,
and every event's cluster time is compared with the truth.

  clock_truth.py BUILD_DIR CASE [SECONDS]

Cases: app (MPI anchors and TCP), agent (lockstep-clock), tcp (no MPI), step (a
jump of 1 ms), namespace (unshare --time), off (alignment off is noticed), refused
(no relation at all).

The bound must hold always. How small error and bound are depends on the host, so
a busy one gets three goes at those.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

try:
    import h5py
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import rank_tables  # noqa: E402
    import numpy as np
except ImportError:
    print("SKIPPED: no h5py or numpy")
    sys.exit(77)

build, case = os.path.abspath(sys.argv[1]), sys.argv[2]
seconds = sys.argv[3] if len(sys.argv) > 3 else "6"
lockstep = os.path.join(build, "lockstep")
# Another MPI's launcher and programs (tests/e2e/mpis). Without PMIx there is no exchange in MPI_Init.
programs = os.environ.get("LOCKSTEP_TEST_PROGRAMS", os.path.join(build, "tests"))
OF_MPI = {2} if "LOCKSTEP_TEST_NO_PMIX" in os.environ else {1, 2}
WANDER = "wander_us=50,period_s=300,wander2_us=2,period2_s=12"
TWO_CLOCKS = f"1:offset_s=1000,ppm=50,{WANDER};2:offset_s=-1000,ppm=-50,{WANDER}"


def job(run, spec, options, program, ranks=3, prefix=(), extra_env=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "OMPI_"))}
    if spec:
        env["LOCKSTEP_TEST_CLOCK"] = spec
    env.update(extra_env or {})
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    mpirun = os.environ.get("LOCKSTEP_TEST_MPIEXEC", " ".join(["mpirun", "--oversubscribe", *root])).split()
    command = mpirun + ["-np", str(ranks)] + list(prefix) + [lockstep, "run", "-o", run, "--after", "none"] + options + \
        ["--", os.path.join(programs, program), seconds]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=float(seconds) + 120)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr}"
    assert done.stdout.startswith("done"), done.stdout


def merge(run, *options):
    return subprocess.run([lockstep, "merge", run, *options], capture_output=True, text=True, timeout=120)


def texts(file):
    data = file["string_bytes/value"][:].tobytes()
    return [data[o:o + n].decode() for o, n in zip(file["strings/offset_bytes"][:].tolist(), file["strings/length_bytes"][:].tolist())]


def meta(file):
    strings = texts(file)
    return {strings[k]: strings[v] for k, v in zip(file["meta/key"][:], file["meta/value"][:])}


class Clock:
    """Rank clock <-> raw time, from what the rank file says about its own distortion."""

    def __init__(self, facts, offset_ns=0):
        self.v = {"offset_s": 0, "offset_us": 0, "ppm": 0, "wander_us": 0, "period_s": 0, "wander2_us": 0, "period2_s": 0, "step_ms": 0,
                  "step_at_s": 0, "origin_raw_ns": 0}
        text = facts.get("test_clock", "")
        if ":" in text.split(",")[0]:
            rank = int(facts["rank"])
            part = [p for p in text.split(",origin_raw_ns=")[0].split(";") if p.split(":")[0] == str(rank)]
            origin = text.split(",origin_raw_ns=")[1] if "origin_raw_ns=" in text else None
            text = (part[0].split(":", 1)[1] + (f",origin_raw_ns={origin}" if origin else "")) if part else ""
        for item in filter(None, text.split(",")):
            key, value = item.split("=")
            self.v[key] = int(value) if key == "origin_raw_ns" else float(value)
        self.origin = int(self.v["origin_raw_ns"])
        self.offset = round(self.v["offset_s"] * 1e9 + self.v["offset_us"] * 1e3) + offset_ns

    def shift(self, raw):
        v, since = self.v, (raw - self.origin).astype(np.float64)
        out = v["ppm"] * 1e-6 * since
        for size, period in (("wander_us", "period_s"), ("wander2_us", "period2_s")):
            if v[period] > 0:
                out += v[size] * 1e3 * np.sin(2 * math.pi * since / (v[period] * 1e9))
        out = np.rint(out).astype(np.int64)
        if v["step_ms"]:
            out += np.where(raw - self.origin >= v["step_at_s"] * 1e9, round(v["step_ms"] * 1e6), 0)
        return out

    def local(self, raw):
        return raw + self.offset + self.shift(raw)

    def raw(self, local):
        # The shift's slope is below 1e-4: each round gains four digits. A forward jump
        # leaves a hole in local time, so the rounds cannot swing around it.
        raw = local - self.offset
        for _ in range(6):
            raw = local - self.offset - self.shift(raw)
        return raw


def events(file):
    times = []
    for table, column in (("mpi_calls", "begin_ns"), ("ranges", "begin_ns"), ("steps", "begin_ns"), ("collectives", "begin_ns"),
                          ("collectives", "end_ns")):
        times.append(file[f"{table}/{column}"][:])
    for table in ("mpi_calls", "ranges"):
        times.append(file[f"{table}/begin_ns"][:] + file[f"{table}/duration_ns"][:])
    times = np.unique(np.concatenate(times))
    return times[times > np.iinfo(np.int64).min]


def mapped(knots, local):
    """Cluster time and error bound, from the description of the `clock` table."""
    t, offset, base, slew = (np.array(k, dtype=np.int64) for k in knots)
    if len(t) == 1:
        return local + offset[0], np.full(len(local), base[0])
    right = np.clip(np.searchsorted(t, local, side="right"), 1, len(t) - 1)
    a, b = right - 1, right
    share = (local - t[a]).astype(np.float64) / (t[b] - t[a])
    off = offset[a] + np.rint(share * (offset[b] - offset[a])).astype(np.int64)
    near = np.where(np.abs(local - t[a]) <= np.abs(t[b] - local), a, b)
    inside = np.clip(share, 0, 1)
    eps = base[a] + inside * (base[b] - base[a]) + np.abs(local - t[near]) * 1e-9 * slew[near]
    return local + off, np.ceil(eps).astype(np.int64)


def judge(run, ranks, offsets=None):
    """Per rank other than 0: coverage, error p50 and max, bound p50 (ns), events, and errors by time."""
    clocks, local, round_trip = {}, {}, {}
    for rank in range(ranks):
        with rank_tables.open_file(f"{run}/ranks/rank-{rank:05}.h5", "r") as file:
            clocks[rank] = Clock(meta(file), (offsets or {}).get(rank, 0))
            local[rank] = events(file)
            bursts = file["clock_bursts"]
            kinds = {int(k): int((bursts["transport"][:] == k).sum()) for k in np.unique(bursts["transport"][:])}
            rtt = bursts["receive_ns"][:] - bursts["send_ns"][:] - bursts["peer_send_ns"][:] + bursts["peer_receive_ns"][:]
            least = [int(rtt[bursts["burst"][:] == n].min()) for n in np.unique(bursts["burst"][:])]
            round_trip[rank] = int(np.median(least)) if least else 0
            print(f"rank {rank}: {len(local[rank])} event times, exchanges by transport {kinds}, least round trips {least}")
    with h5py.File(f"{run}/timeline.h5", "r") as file:
        table = {name: file[f"clock/{name}"][:] for name in ("rank", "local_ns", "offset_ns", "base_error_ns", "slew_ppb", "method")}
        strings = texts(file)
        losses = {strings[n]: int(c) for n, c in zip(file["losses/name"][:], file["losses/count"][:])}
        violations = int(file["collectives/violation"][:].sum())
    results = {}
    for rank in range(1, ranks):
        own = table["rank"] == rank
        knots = [table[name][own] for name in ("local_ns", "offset_ns", "base_error_ns", "slew_ppb")]
        cluster, eps = mapped(knots, local[rank])
        truth = clocks[0].local(clocks[rank].raw(local[rank]))
        error = np.abs(cluster - truth)
        results[rank] = {"coverage": float((error <= eps).mean()), "error_p50": int(np.median(error)), "error_max": int(error.max()),
                         "error_p99.9": int(np.percentile(error, 99.9)), "eps_p50": int(np.median(eps)), "eps_max": int(eps.max()), "events": len(error),
                         "method": sorted(set(table["method"][own].tolist())), "round_trip_p50": round_trip[rank]}
        print(f"rank {rank}: " + json.dumps(results[rank]))
    print("losses", losses, "clock violations", violations)
    return results, losses, violations


# Round trips of an exchange on a machine that runs both sides when they want to run. A bound is half of one and
# what clocks do between exchanges (0.3 to 0.7 us where they were prompt), and the design's is 10 us.
PROMPT_NS = 18_000


def good(result, jump=False):
    """Whether the design's figures are reached; None if the machine was too busy to ask for them."""
    if result["error_p50"] <= 1000 and result["eps_p50"] <= 10_000 and (jump or result["error_max"] <= 5000):
        return True
    return False if result["round_trip_p50"] <= PROMPT_NS else None


def worst(goods):
    goods = list(goods)
    return True if all(goods) else None if None in goods else False


def three_goes(attempt):
    reached = []
    for go in range(3):
        with tempfile.TemporaryDirectory() as directory:
            reached.append(attempt(directory + "/run"))
        if reached[-1]:
            return
        print(f"go {go + 1}: within the bounds, but not within the design's figures" + (": exchanges were slow" if reached[-1] is None else ""))
    if False in reached:
        sys.exit("three goes, and the design's figures were not reached")
    print("SKIPPED: the bounds hold; the machine was too busy to ask for the design's figures")
    sys.exit(77)


def truth(run, options, program, transport, spec=TWO_CLOCKS, jump=False, ranks=3):
    job(run, spec, options, program, ranks=ranks)
    merged = merge(run)
    assert merged.returncode in (0, 3), merged.stderr
    results, losses, violations = judge(run, ranks)
    for rank, result in results.items():
        with rank_tables.open_file(f"{run}/ranks/rank-{rank:05}.h5", "r") as file:
            kinds = set(file["clock_bursts/transport"][:].tolist())
        assert transport <= kinds, f"rank {rank}: exchanges over {kinds}, not {transport}"
        assert result["events"] > 100
        assert result["method"] == [2], result
        assert result["coverage"] >= 0.999, f"rank {rank}: {result}"
    assert violations == 0 and "ClockViolation" not in losses
    assert losses.get("ClockStep", 0) == (1 if jump else 0), losses
    return worst(good(r, jump and rank == 1) for rank, r in results.items())


if case == "app":
    three_goes(lambda run: truth(run, [], "clock_app", OF_MPI))
elif case == "agent":
    three_goes(lambda run: truth(run, ["--clock", "agent"], "clock_app_plain", {3}))
elif case == "tcp":
    three_goes(lambda run: truth(run, ["--clock", "tcp"], "clock_app_plain", {2}))
elif case == "step":
    at = float(seconds) / 2 + 0.3
    three_goes(lambda run: truth(run, [], "clock_app", OF_MPI, TWO_CLOCKS.replace(";", f",step_ms=1,step_at_s={at};"), True))
elif case == "namespace":
    unshare = ["unshare", "--time", "--monotonic", "1000", "--fork"]
    if subprocess.run(unshare + ["true"], capture_output=True).returncode != 0:
        print("SKIPPED: no permission to make a time namespace")
        sys.exit(77)

    def attempt(run):
        # A script between mpirun and Lockstep says nothing about the other ranks; here it vouches for them.
        script = run + ".sh"
        with open(script, "w") as out:
            out.write("#!/bin/sh\nexport OMPI_COMMAND=" + lockstep + " OMPI_ARGV='run -- app'\n"
                      "[ $OMPI_COMM_WORLD_RANK = 1 ] && exec " + " ".join(unshare) + ' "$@"\nexec "$@"\n')
        os.chmod(script, 0o755)
        job(run, "", [], "clock_app", ranks=2, prefix=[script])
        assert merge(run).returncode in (0, 3)
        results, losses, violations = judge(run, 2, {1: 1000 * 10**9})
        assert results[1]["coverage"] >= 0.999, results
        assert violations == 0
        return good(results[1])

    three_goes(attempt)
elif case == "off":
    with tempfile.TemporaryDirectory() as directory:
        run = directory + "/run"
        job(run, "1:offset_us=300,ppm=50", [], "clock_app", ranks=2)
        merged = merge(run)
        assert merged.returncode in (0, 3), merged.stderr
        results, _, violations = judge(run, 2)
        assert violations == 0 and results[1]["coverage"] >= 0.999
        merged = merge(run, "--clock", "off")
        assert merged.returncode == 3, f"{merged.returncode}: {merged.stderr}"
        _, losses, violations = judge(run, 2)
        assert violations > 0 and losses.get("ClockViolation", 0) > 0
elif case == "refused":
    with tempfile.TemporaryDirectory() as directory:
        run = directory + "/run"
        job(run, TWO_CLOCKS, ["--clock", "off"], "clock_app_plain", ranks=3)
        refused = merge(run)
        print(refused.stderr)
        lines = [line for line in refused.stderr.splitlines() if line.strip()]
        assert refused.returncode == 1, refused.returncode
        assert any(line.startswith("error: ") and "cannot be related" in line for line in lines)
        assert any(line.startswith("  where: rank") or line.startswith("  ranks 1, 2") or "ranks 1, 2" in line for line in lines)
        assert any(line.startswith("  try: ") and "--clock wall" in line for line in lines)
        assert not os.path.exists(run + "/timeline.h5")
        accepted = merge(run, "--clock", "wall")
        assert accepted.returncode in (0, 3), accepted.stderr
        results, _, _ = judge(run, 3)
        # One machine, so its wall clock is one: far inside the bound that two machines need.
        assert all(r["coverage"] == 1 and r["error_max"] < 1_000_000 for r in results.values())
else:
    sys.exit(f"no case {case}")
print("ok")
