#!/usr/bin/python3
"""Imported traces against a known truth: eight ranks of one host, whose clocks agree,
are shifted and drifted; merge must find their clocks and their arrival order again.

  imported_clocks.py BUILD_DIR SHARED_DIR [--cases N] [--json-cases N] [--seed N]

Shifts are made in the imported rank files (fast), and in a few cases in the JSON
itself, which goes through the whole import again.
"""
import argparse
import glob
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
except ImportError:
    print("SKIPPED: no h5py or numpy")
    sys.exit(77)

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("shared")
parser.add_argument("--cases", type=int, default=18)
parser.add_argument("--json-cases", type=int, default=2)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--lockstep", help="another program than BUILD_DIR/lockstep")
arguments = parser.parse_args()
LOCKSTEP = os.path.abspath(arguments.lockstep or os.path.join(arguments.build, "lockstep"))
TRACES = sorted(glob.glob(os.path.join(arguments.shared, "traces", "param_dlrm_8rank", "*.json.gz")))
if len(TRACES) != 8:
    print("SKIPPED: no traces/param_dlrm_8rank in LOCKSTEP_SHARED_DIR")
    sys.exit(77)

RANKS = 8
# Who came last, and by how much (ns), as the unshifted starts of the kernels say.
LAST = [7, 7, 7, 7, 7, 5, 5, 4]
NO_TIME = np.iinfo(np.int64).min
LIMIT_ERROR_NS, LIMIT_EPS_NS = 10_000, 20_000


def run(*words, code=0):
    done = subprocess.run([LOCKSTEP, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


class Distortion:
    """What is done to one rank's clock. The drift begins with the trace."""

    def __init__(self, origin_ns, offset_ns=0, ppm=0.0):
        self.origin, self.offset, self.ppm = origin_ns, offset_ns, ppm

    def __call__(self, t):
        t = np.asarray(t, np.int64)
        return t + self.offset + np.rint((t - self.origin).astype(np.float64) * self.ppm * 1e-6).astype(np.int64)


def distort_file(path, distortion):
    """Every time of the rank's clock in its tables."""
    with h5py.File(path, "r+") as file:
        for table in file.values():
            if not isinstance(table, h5py.Group):
                continue
            begins = table["begin_ns"][:] if "begin_ns" in table else None
            for name, column in table.items():
                unit = column.attrs.get("unit", b"")
                if (unit.decode() if isinstance(unit, bytes) else unit) != "ns" or column.dtype != np.int64 or len(column) == 0:
                    continue
                values = column[:]
                if name == "duration_ns":
                    column[:] = distortion(begins + values) - distortion(begins)
                elif name.endswith("_ns") and name not in ("cpu_ns", "run_delay_ns", "width_ns"):
                    column[:] = np.where(values == NO_TIME, values, distortion(np.where(values == NO_TIME, 0, values)))


def distort_json(source, target, distortion):
    with gzip.open(source) as file:
        trace = json.load(file)
    for event in trace["traceEvents"]:
        if "ts" not in event:
            continue
        begin = int(round(event["ts"] * 1000))
        event["ts"] = int(distortion(begin)) / 1000
        if "dur" in event:
            event["dur"] = int(distortion(begin + int(round(event["dur"] * 1000))) - distortion(begin)) / 1000
    with open(target, "w") as file:
        json.dump(trace, file)


def map_of(clock, rank):
    """Local time -> (cluster time, error), as the description of the table `clock` says."""
    rows = clock["rank"] == rank
    at, offset, base, slew = (clock[name][rows] for name in ("local_ns", "offset_ns", "base_error_ns", "slew_ppb"))

    def look(local):
        if len(at) == 1:
            near = np.zeros(len(local), int)
            return local + offset[0], base[0] + np.abs(local - at[0]) * 1e-9 * slew[0]
        right = np.clip(np.searchsorted(at, local, "right"), 1, len(at) - 1)
        left = right - 1
        share = (local - at[left]) / (at[right] - at[left])
        near = np.where(local - at[left] < at[right] - local, left, right)
        inside = np.clip(share, 0, 1)
        error = base[left] + inside * (base[right] - base[left]) + np.abs(local - at[near]) * 1e-9 * slew[near]
        return local + offset[left] + np.rint(share * (offset[right] - offset[left])).astype(np.int64), error

    return look


def read(run_dir):
    with h5py.File(os.path.join(run_dir, "timeline.h5")) as file:
        return {name: {column: file[name][column][:] for column in file[name]} for name in ("clock", "collectives", "collective_ranks")}


def margins():
    """Per collective: last arriver's margin over the second, from the original files."""
    timeline = read(ORIGINAL)
    members = timeline["collective_ranks"]
    result = []
    for c in range(len(timeline["collectives"]["seq"])):
        arrivals = np.sort(members["arrival_ns"][members["collective"] == c])
        result.append(int(arrivals[-1] - arrivals[-2]))
    return result


def judge(run_dir, spans, distortions):
    """Errors of a merged run against what was done to it."""
    timeline = read(run_dir)
    collectives, members = timeline["collectives"], timeline["collective_ranks"]
    assert len(collectives["seq"]) == RANKS and (collectives["seen"] == RANKS).all(), collectives["seen"]
    assert not collectives["violation"].any() and not collectives["mismatch"].any()
    errors, bounds = [], []
    for rank, (begin, end) in spans.items():
        t = np.linspace(begin, end, 200).astype(np.int64)
        cluster, eps = map_of(timeline["clock"], rank)(distortions[rank](t))
        errors.append(np.abs(cluster - distortions[0](t)))
        bounds.append(eps)
    errors, bounds = np.concatenate(errors), np.concatenate(bounds)
    for c in range(RANKS):
        last = int(collectives["last_rank"][c])
        assert last in (LAST[c], -1), f"collective {c}: rank {last} came last, not {LAST[c]}"
        # Twice both errors, and what the alignment may move the margin by.
        if MARGINS[c] > 4 * LIMIT_EPS_NS + 2 * LIMIT_ERROR_NS:
            assert last == LAST[c], f"collective {c}: a margin of {MARGINS[c]} ns is no tie"
    assert (members["wait_ns"] >= 0).all()
    return errors, bounds


def random_case(generator):
    """One or two ranks, 50 us to 5 s, up to 50 ppm."""
    case = {}
    for rank in generator.sample(range(RANKS), generator.choice([1, 2])):
        size = 50e-6 * (5 / 50e-6) ** generator.random()
        case[rank] = (int(generator.choice([-1, 1]) * size * 1e9), generator.uniform(-50, 50))
    return case


def links(source, target, changed):
    """A run directory with copies of the changed ranks' files only."""
    shutil.copytree(source, target, copy_function=lambda a, b: shutil.copy2(a, b) if any(
        a.endswith(f"rank-{rank:05d}.h5") for rank in changed) else os.link(a, b))
    for name in ("timeline.h5",):
        if os.path.exists(os.path.join(target, name)):
            os.unlink(os.path.join(target, name))


work = tempfile.mkdtemp(prefix="lockstep-imported-")
try:
    ORIGINAL = os.path.join(work, "original")
    run("import", "kineto", *TRACES, "-o", ORIGINAL)
    run("merge", ORIGINAL)
    MARGINS = margins()
    spans = {}
    for rank in range(RANKS):
        with h5py.File(os.path.join(ORIGINAL, "ranks", f"rank-{rank:05d}.h5")) as file:
            begin, end = file["kernels/begin_ns"][:], file["kernels/begin_ns"][:] + file["kernels/duration_ns"][:]
            spans[rank] = (int(begin.min()), int(end.max()))
    unshifted = {rank: Distortion(spans[rank][0]) for rank in range(RANKS)}

    # As they are: all matched, the arrival order of the kernels' starts, and nearly all of NCCL's time is waiting.
    errors, bounds = judge(ORIGINAL, spans, unshifted)
    assert errors.max() <= LIMIT_ERROR_NS and bounds.max() <= LIMIT_EPS_NS, (errors.max(), bounds.max())
    timeline = read(ORIGINAL)
    members = timeline["collective_ranks"]
    for c in range(RANKS):
        rows = np.flatnonzero(members["collective"] == c)
        assert members["rank"][rows[np.argmax(members["arrival_ns"][rows])]] == LAST[c], c
    assert [int(r) for r in timeline["collectives"]["last_rank"]] == [7, 7, 7, 7, -1, 5, 5, -1]
    for rank in range(RANKS):
        rows = members["rank"] == rank
        share = members["wait_ns"][rows].sum() / (members["end_high_ns"][rows] - members["arrival_ns"][rows]).sum()
        assert 0.875 <= share <= 0.985, f"rank {rank} waits {share:.3f} of its NCCL time"
    print(f"unshifted: error at most {errors.max()} ns, eps at most {bounds.max():.0f} ns")

    generator = random.Random(arguments.seed)
    all_errors, all_bounds = [], []
    for case in range(arguments.cases + arguments.json_cases):
        shifts = random_case(generator)
        distortions = {**unshifted, **{rank: Distortion(spans[rank][0], *shift) for rank, shift in shifts.items()}}
        target = os.path.join(work, "case")
        if case < arguments.cases:
            links(ORIGINAL, target, shifts)
            for rank in shifts:
                distort_file(os.path.join(target, "ranks", f"rank-{rank:05d}.h5"), distortions[rank])
        else:
            files = os.path.join(work, "json")
            os.makedirs(files)
            for path in TRACES:
                with gzip.open(path) as file:
                    rank = json.load(file)["distributedInfo"]["rank"]
                if rank in shifts:
                    distort_json(path, os.path.join(files, f"rank{rank}.json"), distortions[rank])
                else:
                    shutil.copy2(path, files)
            run("import", "kineto", files, "-o", target)
            shutil.rmtree(files)
        run("merge", target)
        try:
            errors, bounds = judge(target, spans, distortions)
        except AssertionError as error:
            raise AssertionError(f"case {case} {shifts}: {error}") from error
        assert errors.max() <= LIMIT_ERROR_NS, f"case {case} {shifts}: error {errors.max()} ns"
        assert bounds.max() <= LIMIT_EPS_NS, f"case {case} {shifts}: eps {bounds.max():.0f} ns"
        all_errors.append(errors)
        all_bounds.append(bounds)
        shutil.rmtree(target)
    errors, bounds = np.concatenate(all_errors), np.concatenate(all_bounds)
    covered = (errors <= bounds).mean()
    print(f"{len(all_errors)} cases: error median {np.median(errors):.0f} ns, at most {errors.max()} ns; "
          f"eps median {np.median(bounds):.0f} ns, at most {bounds.max():.0f} ns; covered {covered:.4%}")
    assert covered >= 0.99
finally:
    shutil.rmtree(work, ignore_errors=True)
